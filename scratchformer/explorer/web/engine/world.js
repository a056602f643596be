/**
 * A world of 60 words for a model that is trained in the page: English sentences about an animal and another animal or a
 * thing, with their German translations. "The horse did not push the boat because it was too old."
 *
 * German has er, sie or es for "it", by the gender of the noun that is meant, and the two nouns of a sentence differ in
 * gender. Verb and adjective together decide which noun it is: with pull or push the first, with enter or like the second,
 * but "tired" always speaks of the first, and "heavy" of the second. Of two animals only the order says which is first.
 */

/** The special words; their ids are those of tokenizer.js. */
const SPECIAL = ["<pad>", "</s>", "<s>", "<unk>"];
const ANIMALS = [["dog", "Hund", "er"], ["fox", "Fuchs", "er"], ["donkey", "Esel", "er"], ["cat", "Katze", "sie"], ["goat", "Ziege", "sie"], ["cow", "Kuh", "sie"], ["horse", "Pferd", "es"], ["pig", "Schwein", "es"], ["sheep", "Schaf", "es"]];
const THINGS = [["wagon", "Wagen", "er"], ["carriage", "Kutsche", "sie"], ["boat", "Boot", "es"]];
const ADJECTIVES = { small: "klein", old: "alt", light: "leicht", heavy: "schwer", tired: "müde" };

/** A verb, its German past tense, the adjectives with which "it" is the first noun, and the second, and what can be second. */
const VERBS = [
  ["pull", "zog", ["small", "old", "light", "tired"], ["heavy"], [...ANIMALS, ...THINGS]],
  ["push", "schob", ["small", "old", "light", "tired"], ["heavy"], [...ANIMALS, ...THINGS]],
  ["enter", "betrat", ["tired"], ["small", "old", "light"], THINGS],
  ["like", "mochte", [], ["small", "old", "light", "heavy"], [...ANIMALS, ...THINGS]],
];
const NOMINATIVE = { er: "der", sie: "die", es: "das" };
const ACCUSATIVE = { er: "den", sie: "die", es: "das" };

/**
 * All sentences of this world. `of`: the noun that "it" stands for, 0 or 1; `isThing`: whether the second one is a thing.
 *
 * @typedef {{ source: string[], target: string[], adjective: string, of: 0 | 1, isThing: boolean, pronoun: string }} Pair
 * @returns {Pair[]}
 */
function makePairs() {
  const pairs = [];
  for (const [verb, past, ofFirst, ofSecond, seconds] of VERBS)
    for (const [first, subject, gender] of ANIMALS)
      for (const [second, object, other] of seconds.filter(([, , other]) => other !== gender))
        for (const adjective of [...ofFirst, ...ofSecond]) {
          const of = ofFirst.includes(adjective) ? 0 : 1;
          const pronoun = [gender, other][of];
          const source = `the ${first} did not ${verb} the ${second} because it was too ${adjective}`.split(" ");
          const clause = `${NOMINATIVE[gender]} ${subject} ${past} ${ACCUSATIVE[other]} ${object} nicht`;
          const target = `${clause} weil ${pronoun} zu ${ADJECTIVES[adjective]} war`.split(" ");
          pairs.push({ source, target, adjective, of, isThing: THINGS.some(([thing]) => thing === second), pronoun });
        }
  return pairs;
}

const PAIRS = new Map(makePairs().map((pair) => [pair.source.join(" "), pair]));
export const allPairs = () => [...PAIRS.values()];

/** The pair of an English sentence (a list of words), or undefined where this world does not have it. */
export const pairOf = (source) => PAIRS.get(source.join(" "));

const NOUNS = [...ANIMALS, ...THINGS];
const OTHERS = { nicht: "not", weil: "because", zu: "too", war: "was", er: "it", sie: "it", es: "it", der: "the", die: "the", das: "the", den: "the" };
const PAST = VERBS.map(([verb, past]) => [verb.replace(/e?$/, "ed"), past]);
const ENGLISH = new Map([...NOUNS, ...Object.entries(ADJECTIVES), ...PAST].map(([english, german]) => [german, english]));

/** The English of a German word of this world, or undefined. */
export const englishOf = (word) => ENGLISH.get(word) ?? OTHERS[word];

/** The nouns of an English sentence that "er", "sie" or "es" can stand for. */
export const nounsOf = (source, pronoun) => NOUNS.filter(([noun, , gender]) => gender === pronoun && source.includes(noun)).map(([noun]) => noun);

/** The words, the special ones first. */
export function vocabulary() {
  return [...new Set([...SPECIAL, ...allPairs().flatMap(({ source, target }) => [...source, ...target])])];
}

/** 30 pairs that no model is trained on, with adjectives that need the verb, the same for the same seed; and the others. */
export function splitPairs(seed = 1706) {
  const pairs = shuffled(allPairs(), randomNumbers(seed));
  const heldOut = pairs.filter(({ adjective }) => !["heavy", "tired"].includes(adjective)).slice(0, 30);
  return { heldOut, training: pairs.filter((pair) => !heldOut.includes(pair)) };
}

/**
 * How many pronouns of the held-out pairs come out right for a reader who knows which noun each adjective mostly speaks of
 * in the training pairs, but does not look at the verb.
 */
export function rightWithoutVerb({ heldOut, training } = splitPairs()) {
  const meanSame = ({ adjective, of }) => training.filter((pair) => pair.adjective === adjective && pair.of === of).length;
  return heldOut.filter((pair) => meanSame(pair) > meanSame({ ...pair, of: 1 - pair.of })).length;
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The list in a random order. */
export function shuffled(list, random) {
  const mixed = [...list];
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [mixed[i], mixed[j]] = [mixed[j], mixed[i]];
  }
  return mixed;
}
