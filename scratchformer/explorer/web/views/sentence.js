/** What the views share: a sentence that the model has read, its translation and their words; numbers, bars, the focus. */

import { button, choice, h, number } from "../dom.js";
import { translate } from "../engine/beam.js";
import { row } from "../engine/tensor.js";
import { BOS, EOS, UNK } from "../engine/tokenizer.js";

const LONGEST = 40; // pieces, so that the pictures stay readable
const WORD = /[\p{L}\p{N}_-]+/gu;

/**
 * How a piece is shown: "▁The" is "The", a piece that continues a word gets a dot in front, the special ones are named.
 */
export function wordOf(piece) {
  const special = { "</s>": "⟨end⟩", "<s>": "⟨start⟩", "<unk>": "⟨unknown⟩", "<pad>": "⟨padding⟩", "▁": "⟨space⟩" };
  if (special[piece]) return special[piece];
  if (piece.startsWith("▁")) return piece.slice(1);
  return /^\p{L}/u.test(piece) ? `·${piece}` : piece;
}

/**
 * The pass in which the model reads a sentence and writes these words.
 *
 * written  ids of the translation, EOS last
 * Returns  { text, pass, source, written, read }: `source` names the rows of the encoder, `written` what each row of the
 *          decoder has to write (targetIds are its ids), `read` what it has read last
 */
export function passOf(page, text, targetIds, options) {
  const sourceIds = [...page.tokenizer.encode(text), EOS];
  const targetInIds = [BOS, ...targetIds.slice(0, -1)];
  const names = (ids) => page.tokenizer.pieces(ids).map(wordOf);
  return {
    text,
    targetIds,
    pass: page.model.forward(sourceIds, targetInIds, options),
    source: names(sourceIds),
    written: names(targetIds),
    read: names(targetInIds),
    nameOf: (id) => names([id])[0],
  };
}

/** The ids that the model writes for a sentence by beam search with the run's own settings, EOS last. */
export async function idsOf(page, text, removed = []) {
  const known = (page.shared.written ??= new Map());
  const key = [text, ...removed].join("\n");
  if (!known.has(key)) {
    const { beam, alpha, extra_length: extraLength } = page.data.decoding;
    const { ids } = await translate(page.model, page.tokenizer, text, { beam, alpha, extraLength, removed });
    known.set(key, [...ids, EOS]);
  }
  return known.get(key);
}

/** The sentence that all views show: the reader's own, or the first example. */
export function currentSentence(page) {
  return page.parameters.get("s") ?? page.shared.sentence ?? page.data.examples[0];
}

/** What belongs into the address, besides a view's own state: the sentence, unless it is the first example. */
export function sentenceParameter(page, text) {
  return text === page.data.examples[0] ? {} : { s: text };
}

/** The ids of a sentence with EOS at the end. Raises an error with one plain line where the page can't show it. */
export function sourceIdsOf({ tokenizer }, text) {
  const ids = tokenizer.encode(text);
  if (!ids.length) throw new Error("Type a sentence first.");
  if (ids.length <= LONGEST) return [...ids, EOS];
  throw new Error(`The sentence has ${ids.length} pieces, and this page shows at most ${LONGEST}: make it shorter.`);
}

/**
 * The words of a text that the training text has not: [{ word, start, end }]. Without a list of its words they are those
 * with letters that the tokenizer does not know.
 */
export function unknownWords({ data, tokenizer, shared }, text) {
  shared.known ??= data.words && new Set(data.words);
  const isKnown = (word) => (shared.known ? shared.known.has(word) : !tokenizer.encode(word).includes(UNK));
  const found = [...text.matchAll(WORD)].map(({ 0: word, index }) => ({ word, start: index, end: index + word.length }));
  return found.filter(({ word }) => !isKnown(word));
}

/** The number of letters to insert, to delete or to exchange that make one word of another. */
export function editDistance(a, b) {
  let above = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const line = [i];
    for (let j = 1; j <= b.length; j++)
      line.push(Math.min(above[j] + 1, line[j - 1] + 1, above[j - 1] + (a[i - 1] !== b[j - 1])));
    above = line;
  }
  return above[b.length];
}

/** Up to 3 words of a list that are nearly spelled like `word`, or begin like it; the nearest first. */
export function neighboursOf(word, list) {
  const low = word.toLowerCase();
  const distanceTo = (other) => (other.startsWith(low) ? 0.5 : editDistance(low, other));
  const near = list.map((other) => [other, distanceTo(other.toLowerCase())]);
  const most = Math.max(1, word.length / 3);
  const found = near.filter(([, distance]) => distance <= most).sort((a, b) => a[1] - b[1]);
  return found.slice(0, 3).map(([other]) => other);
}

/** The words of a list whose embeddings point in the most similar directions, the most similar first. */
export function similarWords(model, tokenizer, list, word, count = 8) {
  const vectorOf = (text) => {
    const sum = new Float64Array(model.config.d_model);
    for (const id of tokenizer.encode(text)) row(model.embeddings.source, id).forEach((x, j) => (sum[j] += x));
    const length = Math.hypot(...sum);
    return sum.map((x) => x / length);
  };
  const asked = vectorOf(word);
  const cosines = list.map((other) => [other, vectorOf(other).reduce((total, x, j) => total + x * asked[j], 0)]);
  const others = cosines.filter(([other]) => other !== word).sort((a, b) => b[1] - a[1]);
  return others.slice(0, count).map(([other]) => other);
}

/**
 * A field for a sentence, in which the words are underlined that the training text has not; below it, words to put in
 * their place. `onedit(text)` is called while she types, `set(text)` writes a text without it. `field` is the input, and
 * `hints` are those words.
 */
export function wordField(page, onedit = () => {}) {
  const { languages, words } = page.data;
  const field = h("input", { class: "field", type: "text", lang: languages.source, autocomplete: "off", spellcheck: "false" });
  const marks = h("span", { class: "marks", "aria-hidden": "true" });
  const hints = h("span", { class: "hints", role: "status" });
  const scroll = () => (marks.scrollLeft = field.scrollLeft);
  const put = (text) => (element.set(text), onedit(text), field.focus());
  const draw = () => {
    const text = field.value;
    const unknown = unknownWords(page, text);
    const ends = [0, ...unknown.map(({ end }) => end)];
    marks.replaceChildren(
      ...unknown.flatMap(({ word, start }, i) => [text.slice(ends[i], start), h("mark", {}, word)]),
      text.slice(ends.at(-1)),
    );
    scroll();
    hints.replaceChildren(
      ...unknown.slice(0, 3).map(({ word, start, end }) => {
        const offers = words ? neighboursOf(word, words) : [];
        const offer = (other) => button(other, () => put(text.slice(0, start) + other + text.slice(end)), { lang: languages.source });
        return h("span", {}, h("em", {}, word), " is not in the training text", offers.length ? "; try " : ".", offers.map(offer));
      }),
    );
  };
  field.addEventListener("input", () => (draw(), onedit(field.value)));
  field.addEventListener("scroll", scroll);
  const element = h("span", { class: "word-field" }, h("span", { class: "marked" }, field, marks), hints);
  Object.assign(element, { field, hints });
  element.set = (text) => ((field.value = text), draw());
  return element;
}

/**
 * A field for a sentence, and a list of examples. `onsubmit(text)` gets each sentence that the page can read, and its
 * promise's error is shown. The element's `submit(text)` does what the button does; `action` is what the button says.
 */
export function sentenceForm(page, onsubmit, label = "Sentence", action = "Translate") {
  const words = wordField(page);
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const refuse = (reason) => {
    trouble.hidden = !reason;
    trouble.textContent = reason;
  };
  const submit = (text) => {
    words.set(text.trim());
    try {
      sourceIdsOf(page, text.trim());
    } catch (error) {
      return refuse(error.message);
    }
    refuse("");
    onsubmit(text.trim()).catch((error) => refuse(error.message));
  };
  const examples = choice({
    label: "or an example",
    options: [["", "choose a sentence"], ...page.data.examples.map((example) => [example, example])],
    value: "",
    onchange: (example) => {
      examples.set("");
      if (example) submit(example);
    },
  });
  const onsubmitted = (event) => {
    event.preventDefault();
    submit(words.field.value);
  };
  words.field.id = label.toLowerCase().replace(" ", "-");
  const element = h(
    "form",
    { class: "sentence-form", onsubmit: onsubmitted },
    h("div", { class: "sentence-field" }, h("label", { class: "label", for: words.field.id }, label), words),
    h("button", { type: "submit", class: "button" }, action),
    examples,
    trouble,
  );
  element.submit = submit;
  return element;
}

/**
 * A form for the sentence that all views show: `onread` gets each one as `passOf` returns it, with the translation that
 * the model writes. An answer that comes after the next sentence was asked for, or after the element's `leave()`, is
 * dropped.
 */
export function readingForm(page, onread) {
  let turn = 0;
  const element = sentenceForm(page, async (text) => {
    const mine = ++turn;
    const ids = await idsOf(page, text);
    if (mine !== turn) return;
    page.shared.sentence = text;
    onread(passOf(page, text, ids));
  });
  element.leave = () => turn++;
  return element;
}

/** The position of the German pronoun among the words, or 0 without one. */
export function pronounIn(written) {
  return Math.max(
    0,
    written.findIndex((word) => ["er", "sie", "es", "ihn"].includes(word)),
  );
}

/**
 * The example that differs from a sentence in one word, so that the two can be compared; without one, the first that is
 * another sentence.
 */
export function partnerOf(examples, text) {
  const others = examples.filter((example) => example !== text);
  return others.find((example) => differInOneWord(example, text)) ?? others[0];
}

/** Whether two sentences are equal but for one word. */
export function differInOneWord(text, other) {
  const [a, b] = [text.split(" "), other.split(" ")];
  return a.length === b.length && a.filter((word, i) => word !== b[i]).length === 1;
}

/** The places [i, j] of what two lists have in common, in the same order: a longest common subsequence. */
export function commonPlaces(a, b) {
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--)
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const pairs = [];
  for (let [i, j] = [0, 0]; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (common[i][j + 1] >= common[i + 1][j]) j++;
    else i++;
  }
  return pairs;
}

/** The words of a text that another text has not in the same order: [[word, is new]…] */
export function markChanges(text, other) {
  const words = text.split(" ");
  const kept = new Set(commonPlaces(words, other.split(" ")).map(([i]) => i));
  return words.map((word, i) => [word, !kept.has(i)]);
}

/** A word in a sentence of the page, in its language; a punctuation mark in quotation marks. */
export function quoted(word, lang = null) {
  return h("em", { lang }, word?.replace(/^\p{P}$/u, "“$&”"));
}

/** What the views call a row of the decoder: the row that has read “weil” and must write “es”. */
export function rowName({ read, written }, i, lang) {
  return ["the row that has read ", quoted(read[i], lang), " and must write ", quoted(written[i], lang)];
}

/** A number without a power of ten: 0.00005. Below 0.001 it has `small` digits that count. */
export function decimal(x, digits = 3, small = 1) {
  const size = Math.abs(x);
  if (size >= 1e-3) return number(x, digits);
  return size < 5e-10 ? "0" : x.toFixed(small - 1 - Math.floor(Math.log10(size))).replace("-", "−");
}

/** Where a list of numbers is largest. */
export function argmax(values) {
  return values.indexOf(Math.max(...values));
}

/** The likeliest tokens at a position: [{ id, probability }], best first. */
export function likeliest(probabilities, count) {
  return Array.from(probabilities, (probability, id) => ({ id, probability }))
    .sort((a, b) => b.probability - a.probability)
    .slice(0, count);
}

/** A bar for a share from 0 to 1. */
export function barOf(share) {
  const bar = h("span", { class: "bar" });
  bar.style.setProperty("--share", share.toFixed(4));
  return bar;
}

/** Names the controls, so that `focusOf` finds them again: "loss 0", "loss 1", … */
export function named(controls, name) {
  [...controls].forEach((control, i) => (control.dataset.key = `${name} ${i}`));
}

/** Remembers which of an element's controls has the focus; call the result after the element was drawn again. */
export function focusOf(root) {
  const key = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  return () => {
    if (key)
      [...root.querySelectorAll("[data-key]")]
        .find((element) => element.dataset.key === key)
        ?.focus({ preventScroll: true });
  };
}

/** The link to a lesson; without the course beside the page only its name. `slug` is like "04_soft_lookup". */
export function lessonLink(page, slug) {
  const [number, ...name] = slug.split("_");
  const text = `Lesson ${number}, ${name.join(" ").replace("adam", "Adam")}`;
  return page.data.lessons ? h("a", { href: `${page.data.lessons}${slug}.html` }, text) : text;
}
