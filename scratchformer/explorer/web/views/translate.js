/** Translate: a sentence of your own, its translation, and the beam search that found it as a growing tree. */

import { button, h, number, percent, range, say, words } from "../dom.js";
import { EOS, UNK, WordTokenizer } from "../engine/tokenizer.js";
import { differInOneWord, lessonLink, wordOf } from "./sentence.js";
import { layOut, markBest, searchFigure } from "./tree.js";
import { lengthPenalty, translate } from "../engine/beam.js";

const LONGEST = 60;

/** The words of a text that another text has not in the same order: [[word, is new]…]. A longest common subsequence decides. */
export function markChanges(text, other) {
  const [a, b] = [text.split(" "), other.split(" ")];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--)
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const marked = [];
  for (let i = 0, j = 0; i < a.length; i++) {
    while (j < b.length && a[i] !== b[j] && common[i][j + 1] === common[i][j]) j++;
    const same = j < b.length && a[i] === b[j];
    marked.push([a[i], !same]);
    if (same) j++;
  }
  return marked;
}

/** The first two neighbours among the examples that differ in one word, or null. */
export function minimalPair(examples) {
  const first = examples.findIndex((text, i) => i + 1 < examples.length && differInOneWord(text, examples[i + 1]));
  return first < 0 ? null : examples.slice(first, first + 2);
}

/** What is to be said about a text with characters that the tokenizer doesn't know, or null. */
export function unknownLetters(tokenizer, text) {
  if (tokenizer instanceof WordTokenizer) return null; // it refuses a text with unknown words
  const unknown = [...new Set(text)].filter((letter) => letter.trim() && tokenizer.encode(letter).includes(UNK));
  const list = unknown.map((letter) => `“${letter}”`).join(", ");
  return unknown.length ? `The training text has no ${list}: the model reads “unknown” there, and can't translate it.` : null;
}

/** The probability of each token of the best translation after those before it, the end's last. */
export function chancesOf({ steps, ids }) {
  const columns = layOut(steps);
  const written = [...ids, EOS];
  markBest(columns, written);
  return columns.slice(0, written.length).map((column) => column.find(({ best }) => best)?.probability ?? 0);
}

/**
 * Two sentences that differ in one word, and their translations, with the words marked in which they differ.
 *
 * sides      [{ text, translation }, { text, translation }], and perhaps a third one: the street is "wide"
 * languages  { source, target }
 * lesson     names the lesson that looks into the pair
 */
function contrast(sides, languages, lesson) {
  const changed = (name, from, to) =>
    markChanges(sides[from][name], sides[to][name])
      .filter(([, isNew]) => isNew)
      .map(([word]) => word.replace(/[.,!?]$/u, ""));
  const marked = (name, from) =>
    markChanges(sides[from][name], sides[from === 1 ? 0 : 1][name]).map(([word, isNew], i) => [
      i ? " " : "",
      isNew ? h("mark", {}, word) : word,
    ]);
  const line = (from) => [
    h("span", { class: "english", lang: languages.source }, marked("text", from)),
    h("span", { class: "german", lang: languages.target }, marked("translation", from)),
  ];
  const [before, after] = [changed("translation", 0, 1), changed("translation", 1, 0)];
  const em = (word) => h("em", { lang: languages.target }, word);
  const list = (some) => some.map((word, i) => [i === 0 ? "" : i === some.length - 1 ? " and " : ", ", em(word)]);
  const put = ["Put ", h("em", {}, changed("text", 1, 0)), " in the place of ", h("em", {}, changed("text", 0, 1))];
  const effect =
    before.length && after.length
      ? [", and the model changes ", list(before), " to ", list(after), "."]
      : ", and see the translation beside it.";
  const why = [
    " German has a pronoun for each gender: ",
    em("es"),
    " is the animal (das Tier), ",
    em("sie"),
    " is the street (die Straße).",
  ];
  const third = sides[2]?.translation.match(/weil (\w+) zu/)?.[1];
  const wide = third && [
    " A street that is too ",
    h("em", {}, "wide"),
    " is ",
    em("sie"),
    third === "sie" ? ", too, and the model writes so." : [", too, but the model writes ", em(third), " here: wrong."],
  ];
  const so = [
    " So which pronoun is right depends on which noun ",
    h("em", {}, "it"),
    " stands for, and the model has learned only a part of it.",
    wide,
    " How often it is right is tested in ",
    lesson,
    ".",
  ];
  const isKnown = languages.target === "de" && /animal.*street/.test(sides[0].text) && before.includes("es") && after.includes("sie");
  return [
    h(
      "ul",
      { class: "pair" },
      sides.map((_, i) => h("li", {}, line(i))),
    ),
    h("p", { class: "sentence" }, put, effect, isKnown ? [why, so] : null),
  ];
}

/**
 * What beam and α do to this sentence. `byBeam` and `byAlpha` are what the model writes with the `other` beam, and with
 * the other α.
 */
function effectOf({ beam, alpha }, { text }, other, byBeam, byAlpha, language) {
  const compared = (what, found) =>
    found.text === text
      ? [`With ${what}, the translation of this sentence is the same.`]
      : [`With ${what}, the model writes something else: `, h("em", { lang: language }, found.text || "(nothing)"), found.text ? "" : "."];
  const searching =
    beam === 1
      ? "With a beam of 1 the search is greedy: it always takes the likeliest next piece. "
      : `With a beam of ${beam} the search compares up to ${beam} beginnings at each step. `;
  const beams = [searching, ...compared(`a beam of ${other.beam}`, byBeam)];
  if (beam === 1) return [...beams, " Greedy search finds one translation only, so α changes its score and nothing else."];
  const length =
    alpha === 0
      ? " With α = 0 the score is the log-probability itself. It falls with each piece, so short translations have an advantage. "
      : ` With α = ${alpha.toFixed(1)} the log-probability is divided by a number that grows with the length, so that longer translations have a chance. `;
  return [...beams, length, ...compared(`α = ${other.alpha}`, byAlpha)];
}

function mount(root, page) {
  const { model, tokenizer, data, shared } = page;
  const language = data.languages.target;
  const asked = (name, fallback, from, to) => {
    const value = Number(page.parameters.get(name) ?? fallback);
    return Math.min(to, Math.max(from, Number.isFinite(value) ? value : fallback));
  };
  const setting = {
    beam: Math.round(asked("beam", Math.min(8, data.decoding.beam), 1, 8)),
    alpha: asked("alpha", Math.min(2, data.decoding.alpha), 0, 2),
  };
  shared.sentence = page.parameters.get("s") ?? shared.sentence;
  let running = 0;
  let gone = false;
  /** Greedy search and α = 0, to compare with; where these are chosen, the run's own settings. */
  const otherSetting = () => ({
    beam: setting.beam === 1 ? Math.max(2, data.decoding.beam) : 1,
    alpha: setting.alpha ? 0 : data.decoding.alpha || 0.6,
  });
  const run = (text, { beam = setting.beam, alpha = setting.alpha } = {}) =>
    translate(model, tokenizer, text, { beam, alpha, extraLength: data.decoding.extra_length });

  const pair = h("section", {}, h("h2", {}, "Change one word"));
  const field = h("input", {
    class: "field",
    type: "text",
    id: "sentence",
    lang: data.languages.source,
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 1000,
  });
  field.value = shared.sentence;
  const form = h(
    "form",
    { class: "ask", onsubmit: (event) => (event.preventDefault(), show(field.value)) },
    h("label", { class: "label", for: "sentence" }, "Your sentence"),
    field,
    h("button", { type: "submit", class: "button main" }, "Translate"),
  );
  const trials = new Map(data.trials);
  const examples = h(
    "ul",
    { class: "examples", "aria-label": "Examples" },
    data.examples.map((text) =>
      h(
        "li",
        {},
        button(text, () => ((field.value = text), show(text)), { lang: data.languages.source }),
        trials.has(text) ? h("span", { class: "trial" }, ` ← then, below, ${trials.get(text)}`) : null,
      ),
    ),
  );
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const result = h("div", { class: "result" });
  const about = h("div", {});
  const refresh = () => show(shared.sentence);
  const beamEffect = h("p", { class: "note" });
  const surest = h("p", { class: "note" });
  const controls = h(
    "div",
    { class: "controls" },
    range({ label: "Beam size", min: 1, max: 8, value: setting.beam, oninput: (value) => ((setting.beam = value), refresh()) }),
    range({
      label: "α, against short translations",
      min: 0,
      max: 2,
      step: 0.1,
      value: setting.alpha,
      show: (value) => value.toFixed(1),
      oninput: (value) => ((setting.alpha = value), refresh()),
    }),
  );
  const search = searchFigure(data, tokenizer);
  const searched = h(
    "section",
    {},
    h("h2", {}, "How it was found: beam search"),
    h(
      "p",
      { class: "note" },
      "At each step the model gives every possible next piece a probability. The search keeps the likeliest beginnings, as many as the beam is large, and drops the rest.",
    ),
    controls,
    beamEffect,
    search.figure,
    surest,
  );
  root.append(
    pair,
    h("h2", {}, "Try your own"),
    form,
    trouble,
    result,
    about,
    h("p", { class: "label examples-label" }, "Or try one of these:"),
    examples,
    searched,
  );
  const outputs = [result, about, searched];
  outputs.forEach((part) => (part.hidden = true));

  function refuse(reason) {
    trouble.hidden = false;
    trouble.textContent = reason;
    outputs.forEach((part) => (part.hidden = true));
  }

  async function show(text) {
    const mine = ++running;
    text = text.trim();
    trouble.hidden = true;
    if (!text) return refuse("There is nothing to translate: type a sentence first.");
    let ids;
    try {
      ids = tokenizer.encode(text);
    } catch (error) {
      return refuse(error.message);
    }
    if (ids.length > LONGEST)
      return refuse(`The sentence has ${ids.length} pieces, and this page translates at most ${LONGEST}: make it shorter.`);
    result.setAttribute("aria-busy", "true");
    const other = otherSetting();
    let outcome;
    let others;
    try {
      outcome = await run(text);
      others = [await run(text, { beam: other.beam }), await run(text, { alpha: other.alpha })];
    } catch (error) {
      if (mine === running) refuse(error.message);
      return;
    } finally {
      result.removeAttribute("aria-busy");
    }
    if (mine !== running || gone) return;
    shared.sentence = text;
    page.go("translate", {
      s: text === data.examples[0] ? null : text,
      beam: setting.beam === data.decoding.beam ? null : setting.beam,
      alpha: setting.alpha === data.decoding.alpha ? null : setting.alpha,
    });
    outputs.forEach((part) => (part.hidden = false));
    const n = outcome.ids.length;
    const chances = chancesOf(outcome);
    const least = chances.indexOf(Math.min(...chances));
    const written = [...tokenizer.pieces(outcome.ids).map(wordOf), "⟨end⟩"];
    result.replaceChildren(
      h("p", { class: "output", lang: language }, outcome.text || "(nothing)"),
      h(
        "div",
        { class: "pieces" },
        h("span", { class: "label" }, "It reads"),
        words(tokenizer.pieces(ids).map(wordOf), { label: "Pieces of the sentence" }),
        h("span", { class: "label" }, "It writes"),
        h("div", { lang: language }, words(written.slice(0, n), { label: "Pieces of the translation" })),
      ),
      h(
        "p",
        { class: "note" },
        `score ${number(outcome.score)} · log-probability ${number(outcome.logProbability)} · probability of the whole translation ${percent(Math.exp(outcome.logProbability))}`,
      ),
    );
    const unsure = [
      "The model is least sure of ",
      h("em", { lang: language }, written[least]),
      `, to which it gives ${percent(chances[least])}. One reason can be a word that it has not met in training.`,
    ];
    about.replaceChildren(
      ...[
        "The probability of the whole translation is the product of those of its pieces and of the end; the log-probability is its natural logarithm. The score, which decides between translations of different lengths, is explained below the search.",
        unknownLetters(tokenizer, text),
        chances[least] < 0.5 ? unsure : null,
      ].flatMap((note) => (note ? h("p", { class: "note" }, note) : [])),
    );
    surest.hidden = !data.label_smoothing;
    surest.replaceChildren(
      `The likeliest piece of the translation has ${percent(Math.max(...chances))}. Why not 100 %? The model was trained with label smoothing ${data.label_smoothing}: its goal was a probability of ${percent(1 - data.label_smoothing)} for the right piece, and one near 100 % made the loss larger. See `,
      lessonLink(page, "14_label_smoothing"),
      ".",
    );
    beamEffect.replaceChildren(...effectOf(setting, outcome, other, ...others, language));
    search.show(outcome);
    const penalty = lengthPenalty(n + 1, setting.alpha);
    say(
      search.figure.sentence,
      `The log-probability of the best translation, ${n} pieces and an end, is ${number(outcome.logProbability)}. Divided by the length penalty ${number(penalty)} it gives the score ${number(outcome.score)}.`,
    );
  }

  /** The contrast of the examples first, then the sentence of the field. */
  async function begin() {
    const found = minimalPair(data.examples);
    pair.hidden = !found;
    if (found) {
      try {
        const sides = [];
        const wide = data.examples.filter((text) => text === found[1].replace("narrow", "wide") && !found.includes(text));
        for (const text of [...found, ...wide]) sides.push({ text, translation: (await run(text)).text });
        pair.append(...contrast(sides, data.languages, lessonLink(page, "00_whole_game")));
      } catch {
        pair.hidden = true; // show() says why
      }
    }
    if (!gone) show(field.value);
  }

  begin();
  return () => {
    gone = true;
    search.stop();
  };
}

export const translateView = {
  id: "translate",
  title: "Translate",
  question: "How does the model translate a sentence?",
  lead: "A small Transformer runs in this page. It reads a sentence and writes the translation piece by piece. Change one word, and see what changes in the translation.",
  mount,
};
