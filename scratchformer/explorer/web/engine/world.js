/**
 * A world of 64 words for a model that is trained in the page: English sentences about an animal and a thing, with their
 * German translations. "The horse did not push the boat because it was too old."
 *
 * German has er, sie or es for "it", by the gender of the noun that is meant, and the two nouns of a sentence differ in
 * gender. Verb and adjective together decide which noun it is: an animal may be too old to push a thing, but whoever does
 * not enter or like a thing finds the thing too old. Only "tired" and "heavy" need no verb.
 */

/** The special words; their ids are those of tokenizer.js. */
const SPECIAL = ["<pad>", "</s>", "<s>", "<unk>"];
const ANIMALS = [["dog", "Hund", "er"], ["fox", "Fuchs", "er"], ["cat", "Katze", "sie"], ["goat", "Ziege", "sie"], ["horse", "Pferd", "es"], ["pig", "Schwein", "es"]];
const THINGS = [["wagon", "Wagen", "er"], ["cage", "Käfig", "er"], ["carriage", "Kutsche", "sie"], ["gondola", "Gondel", "sie"], ["boat", "Boot", "es"], ["raft", "Floß", "es"]];
const ADJECTIVES = { small: "klein", old: "alt", light: "leicht", heavy: "schwer", tired: "müde" };

/** A verb, its German past tense, and the adjectives with which "it" is the animal, and the thing. */
const VERBS = [
  ["pull", "zog", ["small", "old", "light", "tired"], ["heavy"]],
  ["push", "schob", ["small", "old", "light", "tired"], ["heavy"]],
  ["enter", "betrat", ["tired"], ["small", "old", "light"]],
  ["like", "mochte", [], ["small", "old", "light", "heavy"]],
];
const NOMINATIVE = { er: "der", sie: "die", es: "das" };
const ACCUSATIVE = { er: "den", sie: "die", es: "das" };

/**
 * All sentences of this world. `of`: the noun that "it" stands for; `genders`: the pronoun for either noun.
 *
 * @typedef {{ source: string[], target: string[], adjective: string, of: "animal" | "thing", genders: object, pronoun: string }} Pair
 * @returns {Pair[]}
 */
export function allPairs() {
  const pairs = [];
  for (const [verb, past, ofAnimal, ofThing] of VERBS)
    for (const [animal, subject, gender] of ANIMALS)
      for (const [thing, object, other] of THINGS.filter(([, , other]) => other !== gender))
        for (const adjective of [...ofAnimal, ...ofThing]) {
          const genders = { animal: gender, thing: other };
          const of = ofAnimal.includes(adjective) ? "animal" : "thing";
          const source = `the ${animal} did not ${verb} the ${thing} because it was too ${adjective}`.split(" ");
          const clause = `${NOMINATIVE[gender]} ${subject} ${past} ${ACCUSATIVE[other]} ${object} nicht`;
          const target = `${clause} weil ${genders[of]} zu ${ADJECTIVES[adjective]} war`.split(" ");
          pairs.push({ source, target, adjective, of, genders, pronoun: genders[of] });
        }
  return pairs;
}

/** The words, the special ones first. */
export function vocabulary() {
  return [...new Set([...SPECIAL, ...allPairs().flatMap(({ source, target }) => [...source, ...target])])];
}

/** 30 pairs that no model is trained on, always the same, and the others. */
export function splitPairs() {
  const pairs = shuffled(allPairs(), randomNumbers(2017));
  return { heldOut: pairs.slice(0, 30), training: pairs.slice(30) };
}

/**
 * How many pronouns of the held-out pairs come out right for a reader who knows what each adjective mostly speaks of in
 * the training pairs, animals or things, but does not look at the verb.
 */
export function rightWithoutVerb({ heldOut, training } = splitPairs()) {
  const animals = (adjective) => training.filter((pair) => pair.adjective === adjective).map(({ of }) => (of === "animal" ? 1 : -1));
  const guess = (adjective) => (animals(adjective).reduce((a, b) => a + b, 0) > 0 ? "animal" : "thing");
  return heldOut.filter(({ adjective, of }) => guess(adjective) === of).length;
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
