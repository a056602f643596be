/** What the views share: a sentence that the model has read, its translation and their words; numbers, bars, the focus. */

import { choice, h, number } from "../dom.js";
import { translate } from "../engine/beam.js";
import { BOS, EOS } from "../engine/tokenizer.js";

const LONGEST = 40; // pieces, so that the pictures stay readable

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

/**
 * A field for a sentence, and a list of examples. `onsubmit(text)` gets each sentence that the page can read, and its
 * promise's error is shown. The element's `submit(text)` does what the button does; `action` is what the button says.
 */
export function sentenceForm(page, onsubmit, label = "Sentence", action = "Translate") {
  const field = h("input", { class: "field", type: "text", lang: page.data.languages.source, autocomplete: "off" });
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const refuse = (reason) => {
    trouble.hidden = !reason;
    trouble.textContent = reason;
  };
  const submit = (text) => {
    field.value = text.trim();
    let size;
    try {
      size = page.tokenizer.encode(field.value).length;
    } catch (error) {
      return refuse(error.message);
    }
    if (!size) return refuse("Type a sentence first.");
    if (size > LONGEST) {
      return refuse(`The sentence has ${size} pieces, and this page shows at most ${LONGEST}: make it shorter.`);
    }
    refuse("");
    onsubmit(field.value).catch((error) => refuse(error.message));
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
    submit(field.value);
  };
  const element = h(
    "form",
    { class: "sentence-form", onsubmit: onsubmitted },
    h("label", { class: "sentence-field" }, h("span", { class: "label" }, label), field),
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

/** Whether two sentences are equal but for one word. */
export function differInOneWord(text, other) {
  const [a, b] = [text.split(" "), other.split(" ")];
  return a.length === b.length && a.filter((word, i) => word !== b[i]).length === 1;
}

/** A word in a sentence of the page, in its language. */
export function quoted(word, lang = null) {
  return h("em", { lang }, word);
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
