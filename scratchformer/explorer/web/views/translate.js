/** Translate: a sentence of your own, its translation, and the beam search that found it as a growing tree. */

import { button, h, number, percent, range, say, words } from "../dom.js";
import { UNK } from "../engine/tokenizer.js";
import { lessonLink, wordOf } from "./sentence.js";
import { searchFigure } from "./tree.js";
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
  for (let i = 1; i < examples.length; i++) {
    const pair = [examples[i - 1], examples[i]];
    const [a, b] = pair.map((text) => text.split(" "));
    if (a.length === b.length && a.filter((word, j) => word !== b[j]).length === 1) return pair;
  }
  return null;
}

/** What is special about how the tokenizer reads a text: characters it doesn't know, words that it has no piece for. */
export function oddities(tokenizer, text) {
  const unknown = [...new Set(text)].filter((letter) => letter.trim() && tokenizer.encode(letter).includes(UNK));
  const split = [...new Set(text.match(/[\p{L}\p{N}]+/gu) ?? [])].filter(
    (word) => ![...word].some((letter) => unknown.includes(letter)) && tokenizer.encode(word).length >= Math.max(3, word.length / 2),
  );
  const quoted = (list) => list.map((text) => `“${text}”`).join(", ");
  const notes = [];
  if (unknown.length) {
    notes.push(`The training text has no ${quoted(unknown)}: the model reads “unknown” there, and can't translate it.`);
  }
  if (split.length) {
    const list = quoted(split.slice(0, 3));
    notes.push(
      `The model has hardly met ${list} in training, and reads small pieces instead. Expect a guess: it knows only words of its training text.`,
    );
  }
  return notes;
}

/**
 * Two sentences that differ in one word, and their translations, with the words marked in which they differ.
 *
 * sides      [{ text, translation }, { text, translation }]
 * languages  { source, target }
 * lesson     names the lesson that looks into the pair
 */
function contrast(sides, languages, lesson) {
  const changed = (name, from, to) =>
    markChanges(sides[from][name], sides[to][name])
      .filter(([, isNew]) => isNew)
      .map(([word]) => word.replace(/[.,!?]$/u, ""));
  const marked = (name, from) =>
    markChanges(sides[from][name], sides[1 - from][name]).map(([word, isNew], i) => [i ? " " : "", isNew ? h("mark", {}, word) : word]);
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
  const so = [
    " So which pronoun is right depends on which noun ",
    h("em", {}, "it"),
    " stands for. How this model chooses is tested in ",
    lesson,
    ".",
  ];
  const isKnown = languages.target === "de" && /animal.*street/.test(sides[0].text) && before.includes("es") && after.includes("sie");
  return [
    h("ul", { class: "pair" }, h("li", {}, line(0)), h("li", {}, line(1))),
    h("p", { class: "sentence" }, put, effect, isKnown ? [why, so] : null),
  ];
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
  const run = (text, beam = setting.beam) =>
    translate(model, tokenizer, text, { beam, alpha: setting.alpha, extraLength: data.decoding.extra_length });

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
  const examples = h(
    "ul",
    { class: "examples", "aria-label": "Examples" },
    data.examples.map((text) =>
      h(
        "li",
        {},
        button(text, () => ((field.value = text), show(text)), { lang: data.languages.source }),
      ),
    ),
  );
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const result = h("div", { class: "result" });
  const about = h("div", {});
  const refresh = () => show(shared.sentence);
  const beamEffect = h("p", { class: "note" });
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

  /** What beam and α do to this sentence. */
  function effect(outcome, greedy) {
    const { beam, alpha } = setting;
    const length =
      alpha === 0
        ? " With α = 0 the score is the log-probability itself. It falls with each piece, so short translations win."
        : ` With α = ${alpha.toFixed(1)} the log-probability is divided by a number that grows with the length, so that longer translations have a chance.`;
    if (beam === 1) return ["With a beam of 1 the search is greedy: it always takes the likeliest next piece.", length];
    const compared = greedy.text === outcome.text ? "would write the same" : ["would write ", h("em", { lang: language }, greedy.text)];
    return [
      `With a beam of ${beam} the search compares up to ${beam} beginnings at each step. Greedy search, with a beam of 1, `,
      compared,
      ".",
      length,
    ].flat();
  }

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
    const ids = tokenizer.encode(text);
    if (ids.length > LONGEST)
      return refuse(`The sentence has ${ids.length} pieces, and this page translates at most ${LONGEST}: make it shorter.`);
    result.setAttribute("aria-busy", "true");
    let outcome;
    let greedy;
    try {
      outcome = await run(text);
      greedy = await run(text, 1);
    } catch (error) {
      return refuse(error.message);
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
    result.replaceChildren(
      h("p", { class: "output", lang: language }, outcome.text || "(nothing)"),
      h(
        "p",
        { class: "note" },
        `score ${number(outcome.score)} · log-probability ${number(outcome.logProbability)} · probability of the whole translation ${percent(Math.exp(outcome.logProbability))}`,
      ),
    );
    about.replaceChildren(
      h(
        "div",
        { class: "pieces" },
        h("span", { class: "label" }, "It reads"),
        words(tokenizer.pieces(ids).map(wordOf), { label: "Pieces of the sentence" }),
        h("span", { class: "label" }, "It writes"),
        h("div", { lang: language }, words(tokenizer.pieces(outcome.ids).map(wordOf), { label: "Pieces of the translation" })),
      ),
      ...oddities(tokenizer, text).map((note) => h("p", { class: "note" }, note)),
    );
    beamEffect.replaceChildren(...effect(outcome, greedy));
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
        for (const text of found) sides.push({ text, translation: (await run(text)).text });
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
