/** Translate: a sentence of your own, its translation, and the beam search that found it as a growing tree. */

import { button, figure, h, number, percent, range, s, say, words } from "../dom.js";
import { BOS, EOS, UNK } from "../engine/tokenizer.js";
import { wordOf } from "./sentence.js";
import { lengthPenalty, translate } from "../engine/beam.js";

const LONGEST = 60;

/** The words of a text that another text has not in the same order: [[word, is new]…]. A longest common subsequence decides. */
export function markChanges(text, other) {
  const [a, b] = [text.split(" "), other.split(" ")];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
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

/**
 * The steps of a beam search as columns of a drawing: each column has the candidates of one step, the best on top.
 *
 * Each candidate: { token, row, parent (its row in the column before, −1 at the start), fate ("kept", "finished" or
 * "dropped"), probability (of this token after its parent), logProbability (of the whole prefix), ids }.
 */
export function layOut(steps) {
  let before = [{ ids: [], logProbability: 0, row: -1 }];
  return steps.map(({ candidates }) => {
    const column = candidates.map(({ parent, token, logProbability, ended, kept }, row) => ({
      token,
      row,
      parent: before[parent].row,
      fate: ended ? "finished" : kept ? "kept" : "dropped",
      probability: Math.exp(logProbability - before[parent].logProbability),
      logProbability,
      ids: [...before[parent].ids, token],
    }));
    before = column.filter(({ fate }) => fate === "kept");
    return column;
  });
}

/** Marks the candidates on the way to `ids` with best: true. */
export function markBest(columns, ids) {
  columns.forEach((column, t) => {
    for (const one of column) one.best = one.fate !== "dropped" && one.ids.every((token, i) => token === ids[i]) && t < ids.length;
  });
}

/** What is special about how the tokenizer reads a text: characters it doesn't know, words that it has no piece for. */
export function oddities(tokenizer, text) {
  const unknown = [...new Set(text)].filter((letter) => letter.trim() && tokenizer.encode(letter).includes(UNK));
  const split = [...new Set(text.match(/[\p{L}\p{N}]+/gu) ?? [])].filter(
    (word) => ![...word].some((letter) => unknown.includes(letter)) && tokenizer.encode(word).length >= Math.max(3, word.length / 2),
  );
  const notes = [];
  if (unknown.length) {
    notes.push(`The training text has no ${unknown.map((letter) => `“${letter}”`).join(", ")}: the model reads “unknown” there, and can't translate it.`);
  }
  if (split.length) {
    const list = split.slice(0, 3).map((word) => `“${word}”`).join(", ");
    notes.push(`The model has hardly met ${list} in training, and reads ${split.length > 1 ? "them" : "it"} in small pieces. Expect a guess: it knows only words of its training text.`);
  }
  return notes;
}

const COLUMN = { gap: 34, height: 43, box: 36 };

/** The tree up to step `until` (from 1) as SVG. */
function drawTree(columns, until, pieceOf, label) {
  const svg = s("svg", { class: "tree", role: "img", "aria-label": label });
  const shown = columns.slice(0, until);
  const rows = Math.max(...columns.map((column) => column.length));
  const widths = columns.map((column) => Math.max(52, ...column.map(({ token }) => 18 + 8.2 * pieceOf(token).length)));
  const middle = (rows * COLUMN.height) / 2;
  const edges = s("g", {});
  const nodes = s("g", {});
  let x = 66;
  let from = 52;
  shown.forEach((column, t) => {
    const width = widths[t];
    for (const { row, parent, fate, best, token, probability, logProbability } of column) {
      const y = (row + 0.5) * COLUMN.height;
      const start = parent < 0 ? middle : (parent + 0.5) * COLUMN.height;
      const bend = COLUMN.gap / 2;
      edges.append(
        s("path", {
          d: `M${from} ${start}C${from + bend} ${start} ${x - bend} ${y} ${x} ${y}`,
          fill: "none",
          stroke: best ? "var(--forward)" : fate === "dropped" ? "var(--line)" : "var(--soft)",
          "stroke-width": best ? 4 : fate === "dropped" ? 1 : 1.5,
          "stroke-dasharray": fate === "dropped" ? "3 4" : null,
        }),
      );
      const shape = { x, y: y - COLUMN.box / 2, width, height: COLUMN.box, rx: fate === "finished" ? 0 : 7 };
      const look =
        fate === "dropped"
          ? { fill: "var(--paper)", stroke: "var(--line)", "stroke-dasharray": "3 4" }
          : { fill: best ? "color-mix(in srgb, var(--forward) 20%, var(--paper))" : "var(--paper)", stroke: best ? "var(--forward)" : "var(--soft)", "stroke-width": best ? 2.5 : 1.5 };
      nodes.append(
        s(
          "g",
          { class: `${fate}${best ? " best" : ""}` },
          s("title", {}, `${pieceOf(token)}: ${percent(probability)} here, log-probability so far ${number(logProbability)}, ${fate}`),
          s("rect", { ...shape, ...look }),
          fate === "finished" ? s("rect", { x: x + 3, y: y - COLUMN.box / 2 + 3, width: width - 6, height: COLUMN.box - 6, fill: "none", stroke: look.stroke }) : null,
          s("text", { x: x + width / 2, y: y - 3, "text-anchor": "middle", class: "name" }, pieceOf(token)),
          s("text", { x: x + width / 2, y: y + 12, "text-anchor": "middle", class: "chance" }, percent(probability)),
        ),
      );
    }
    from = x + width;
    x += width + COLUMN.gap;
  });
  const total = 66 + widths.reduce((sum, width) => sum + width + COLUMN.gap, 0) - COLUMN.gap + 4;
  const root = s("g", {}, s("circle", { cx: 46, cy: middle, r: 6, fill: "var(--ink)" }), s("text", { x: 34, y: middle + 5, "text-anchor": "end", class: "chance" }, "start"));
  svg.append(edges, root, nodes);
  for (const [name, value] of Object.entries({ width: total, height: rows * COLUMN.height, viewBox: `0 0 ${total} ${rows * COLUMN.height}` })) svg.setAttribute(name, value);
  return { svg, end: from };
}

/** What the marks of the tree mean, drawn with the same shapes. */
function legend() {
  const key = (shape, text) => h("li", {}, s("svg", { width: 34, height: 20, "aria-hidden": "true" }, shape), text);
  const box = { x: 2, y: 2, width: 30, height: 16, fill: "none", stroke: "var(--soft)", "stroke-width": 1.5 };
  return h(
    "ul",
    { class: "keys" },
    key([s("path", { d: "M0 10H34", stroke: "var(--forward)", "stroke-width": 4 }), s("rect", { ...box, rx: 6, stroke: "var(--forward)", fill: "color-mix(in srgb, var(--forward) 20%, var(--paper))", "stroke-width": 2.5 })], "on the best path"),
    key(s("rect", { ...box, rx: 6 }), "kept for the next step"),
    key([s("rect", { ...box }), s("rect", { x: 5, y: 5, width: 24, height: 10, fill: "none", stroke: "var(--soft)" })], "finished sentence"),
    key(s("rect", { ...box, rx: 6, stroke: "var(--line)", "stroke-dasharray": "3 4" }), "dropped"),
    h("li", {}, "· in front: goes on with a word; the percentage is the piece's probability after the pieces before it"),
  );
}

function mount(root, page) {
  const { model, tokenizer, data, shared } = page;
  const language = data.languages.target;
  const pieceOf = (token) => wordOf(tokenizer.pieces([token])[0]);
  const asked = (name, fallback, from, to) => {
    const value = Number(page.parameters.get(name) ?? fallback);
    return Math.min(to, Math.max(from, Number.isFinite(value) ? value : fallback));
  };
  const setting = { beam: Math.round(asked("beam", Math.min(8, data.decoding.beam), 1, 8)), alpha: asked("alpha", Math.min(2, data.decoding.alpha), 0, 2) };
  shared.sentence = page.parameters.get("s") ?? shared.sentence;
  let running = 0;
  let gone = false;
  const run = (text) => translate(model, tokenizer, text, { beam: setting.beam, alpha: setting.alpha, extraLength: data.decoding.extra_length });

  const pair = h("section", {}, h("h2", {}, "Change one word"));
  const field = h("input", { class: "field", type: "text", id: "sentence", lang: data.languages.source, autocomplete: "off", spellcheck: "false", maxlength: 1000 });
  field.value = shared.sentence;
  const form = h("form", { class: "ask", onsubmit: (event) => (event.preventDefault(), show(field.value)) },
    h("label", { class: "label", for: "sentence" }, "Your sentence"), field, h("button", { type: "submit", class: "button main" }, "Translate"));
  const examples = h("ul", { class: "examples", "aria-label": "Examples" },
    data.examples.map((text) => h("li", {}, button(text, () => ((field.value = text), show(text)), { lang: data.languages.source }))));
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const result = h("div", { class: "result" });
  const about = h("div", {});
  const refresh = () => show(shared.sentence);
  const beamEffect = h("p", { class: "note" });
  const controls = h("div", { class: "controls" },
    range({ label: "Beam size", min: 1, max: 8, value: setting.beam, oninput: (value) => ((setting.beam = value), refresh()) }),
    range({ label: "α, against short translations", min: 0, max: 2, step: 0.1, value: setting.alpha, show: (value) => value.toFixed(1), oninput: (value) => ((setting.alpha = value), refresh()) }));
  const treeBox = h("div", { class: "scroll tree-box", tabindex: 0, role: "group", "aria-label": "The tree of the search" });
  const twin = h("ol", { class: "steps-list" });
  const player = h("div", { class: "controls" });
  const search = figure(data.caption, player, treeBox, legend());
  const searched = h("section", {},
    h("h2", {}, "How it was found: beam search"),
    h("p", { class: "note" }, "At each step the model gives every possible next piece a probability. The search keeps the likeliest beginnings, as many as the beam is large, and drops the rest."),
    controls, beamEffect, search, h("details", {}, h("summary", {}, "The same search as a list"), twin));
  root.append(pair, h("h2", {}, "Try your own"), form, trouble, result, about, h("p", { class: "label examples-label" }, "Or try one of these:"), examples, searched);
  const outputs = [result, about, searched];
  outputs.forEach((part) => (part.hidden = true));

  /** The two first examples side by side, with the words marked in which they differ. */
  async function showPair() {
    const [first, second] = data.examples;
    const [a, b] = [await run(first), await run(second)];
    if (gone) return;
    const marked = (text, other) => markChanges(text, other).map(([word, changed], i) => [i ? " " : "", changed ? h("mark", {}, word) : word]);
    const line = (text, other, german, otherGerman) => h("li", {},
      h("span", { class: "english", lang: data.languages.source }, marked(text, other)), h("span", { class: "german", lang: language }, marked(german, otherGerman)));
    const bare = (text, other) => markChanges(text, other).filter(([, changed]) => changed).map(([word]) => word.replace(/[.,!?]$/u, ""));
    const [before, after] = [bare(a.text, b.text), bare(b.text, a.text)];
    const list = (some) => some.flatMap((word, i) => [i === 0 ? "" : i === some.length - 1 ? " and " : ", ", h("em", { lang: language }, word)]);
    const sentence = h("p", { class: "sentence" }, "Put ", h("em", {}, bare(second, first).join(" ")), " in the place of ", h("em", {}, bare(first, second).join(" ")),
      before.length || after.length ? [", and the model changes ", list(before), " to ", list(after), "."] : ", and the translation stays the same.");
    if (before.includes("es") && after.includes("sie")) {
      sentence.append(" German has a pronoun for each gender: ", h("em", { lang: language }, "es"), " is the animal (das Tier), ", h("em", { lang: language }, "sie"),
        " is the street (die Straße). So the model had to find out which of the two ", h("em", {}, "it"), " stands for.");
    }
    pair.replaceChildren(pair.firstChild, h("ul", { class: "pair" }, line(first, second, a.text, b.text), line(second, first, b.text, a.text)), sentence);
  }

  let timer = 0;
  function drawSearch(outcome) {
    clearInterval(timer);
    const columns = layOut(outcome.steps);
    const winner = (t) => (t === columns.length ? [...outcome.ids, EOS] : outcome.steps[t - 1].alive[0]?.ids ?? []).filter((token) => token !== BOS);
    const label = `Beam search for ${outcome.ids.length} pieces; the same search follows as a list.`;
    let at = columns.length;
    const draw = () => {
      markBest(columns, winner(at));
      const { svg, end } = drawTree(columns, at, pieceOf, label);
      const left = treeBox.scrollLeft;
      treeBox.replaceChildren(svg);
      treeBox.scrollLeft = at === columns.length ? left : Math.max(0, end - treeBox.clientWidth + 20);
    };
    const to = (next) => {
      at = Math.min(columns.length, Math.max(1, next));
      slider.set(at);
      draw();
      if (at === columns.length) stop();
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    };
    const play = button("Play", () => {
      if (timer) return stop();
      if (at === columns.length) to(1);
      play.textContent = "Pause";
      timer = setInterval(() => to(at + 1), 450);
    });
    const slider = range({ label: "Step", min: 1, max: columns.length, value: at, show: (value) => `${value} of ${columns.length}`, oninput: (value) => (stop(), to(value)) });
    player.replaceChildren(play, button("Step back", () => (stop(), to(at - 1))), button("Step", () => (stop(), to(at === columns.length ? 1 : at + 1))), slider);
    draw();
    treeBox.scrollLeft = 0;
    twin.replaceChildren(...columns.map((column) => {
      const of = (fate) => column.filter((one) => one.fate === fate).map((one) => `${tokenizer.decode(one.ids.filter((token) => token !== EOS))} (${percent(one.probability)})`).join("; ");
      const part = (name, text) => (text ? [h("strong", {}, `${name}: `), h("span", { lang: language }, text), ". "] : null);
      return h("li", {}, part("Kept", of("kept")), part("Finished", of("finished")), part("Dropped", of("dropped")));
    }));
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
    if (ids.length > LONGEST) return refuse(`The sentence has ${ids.length} pieces, and this page translates at most ${LONGEST}: make it shorter.`);
    result.setAttribute("aria-busy", "true");
    let outcome;
    try {
      outcome = await run(text);
    } catch (error) {
      return refuse(error.message);
    } finally {
      result.removeAttribute("aria-busy");
    }
    if (mine !== running || gone) return;
    shared.sentence = text;
    shared.translation = outcome;
    page.go("translate", {
      s: text === data.examples[0] ? null : text,
      beam: setting.beam === data.decoding.beam ? null : setting.beam,
      alpha: setting.alpha === data.decoding.alpha ? null : setting.alpha,
    });
    outputs.forEach((part) => (part.hidden = false));
    const n = outcome.ids.length;
    result.replaceChildren(
      h("p", { class: "output", lang: language }, outcome.text || "(nothing)"),
      h("p", { class: "note" }, `score ${number(outcome.score)} · log-probability ${number(outcome.logProbability)} · probability of the whole translation ${percent(Math.exp(outcome.logProbability))}`));
    about.replaceChildren(
      h("div", { class: "pieces" },
        h("span", { class: "label" }, "It reads"), words(tokenizer.pieces(ids).map(wordOf), { label: "Pieces of the sentence", role: "plain" }),
        h("span", { class: "label" }, "It writes"), ((row) => (row.setAttribute("lang", language), row))(words(tokenizer.pieces(outcome.ids).map(wordOf), { label: "Pieces of the translation" }))),
      ...oddities(tokenizer, text).map((note) => h("p", { class: "note" }, note)));
    beamEffect.textContent = (setting.beam === 1 ? "With a beam of 1 the search is greedy: it always takes the likeliest next piece. " : `With a beam of ${setting.beam} the search compares ${setting.beam} beginnings at each step. `) +
      (setting.alpha === 0 ? "With α = 0 the score is the log-probability itself, which only falls with each piece: short translations win." : `With α = ${setting.alpha.toFixed(1)} the log-probability is divided by a number that grows with the length, so that longer translations have a chance.`);
    drawSearch(outcome);
    const penalty = lengthPenalty(n + 1, setting.alpha);
    say(search.sentence, ["The best translation is ", h("em", { lang: language }, outcome.text), `, in ${n} pieces and an end: its log-probability ${number(outcome.logProbability)}, divided by the length penalty ${number(penalty)}, gives the score ${number(outcome.score)}.`]);
  }

  showPair().then(() => !gone && show(field.value));
  return () => {
    gone = true;
    clearInterval(timer);
  };
}

export const translateView = {
  id: "translate",
  title: "Translate",
  question: "How does the model translate a sentence?",
  lead: "A small Transformer runs in this page. It reads an English sentence and writes the German one piece by piece. Change a word and see what changes in the translation.",
  mount,
};
