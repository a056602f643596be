/** A beam search as a tree from left to right: a column for each step, the best candidate on top. */

import { button, choice, figure, h, number, percent, range, roving, s, say, scrolling } from "../dom.js";
import { lengthPenalty, translate } from "../engine/beam.js";
import { EOS } from "../engine/tokenizer.js";
import { wordOf } from "./sentence.js";

const HEIGHT = 43; // of a row
const BOX = 36; // height of a candidate's box
const GAP = 64; // between columns
const ROOT = 46; // where the start is
const LEFT = ROOT + GAP; // where the first column begins

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

/** A probability as text, a small one with two digits that count, so that rivals can be compared: 0.052 %. */
function fine(probability) {
  if (probability >= 0.01) return percent(probability);
  return probability < 1e-4 ? "< 0.01\u00a0%" : `${(100 * probability).toPrecision(2)}\u00a0%`;
}

/** Marks the candidates on the way to `ids` with best: true. */
export function markBest(columns, ids) {
  columns.forEach((column, t) => {
    for (const one of column) one.best = one.fate !== "dropped" && one.ids.every((token, i) => token === ids[i]) && t < ids.length;
  });
}

/**
 * The tree up to step `until` (from 1): { svg, end, boxes }, `end` is where its last column ends, and boxes are those of
 * each column. `name(token)` is a token's text, `describe(one)` says in words what a candidate is.
 */
function drawTree(columns, until, name, describe, label) {
  const rows = Math.max(...columns.map((column) => column.length));
  const widths = columns.map((column) => Math.max(60, ...column.map(({ token }) => 18 + 8.2 * name(token).length)));
  const places = widths.map((_, t) => widths.slice(0, t).reduce((x, width) => x + width + GAP, LEFT));
  const middle = (rows * HEIGHT) / 2;
  const yOf = (row) => (row < 0 ? middle : (row + 0.5) * HEIGHT);
  const shown = columns.slice(0, until);
  const ends = places.map((x, t) => x + widths[t]);
  const edges = shown.map((column, t) => column.map((one) => edge(one, t ? ends[t - 1] : ROOT, yOf(one.parent), places[t], yOf(one.row))));
  const boxes = shown.map((column, t) =>
    column.map((one) => node(one, name(one.token), describe(one), places[t], yOf(one.row), widths[t])),
  );
  const root = [
    s("circle", { cx: ROOT, cy: middle, r: 6, fill: "var(--ink)" }),
    s("text", { x: ROOT - 12, y: middle + 5, "text-anchor": "end", class: "chance" }, "start"),
  ];
  const [width, height] = [ends.at(-1) + 4, rows * HEIGHT];
  const svg = s(
    "svg",
    { class: "tree", role: "group", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` },
    edges,
    root,
    boxes,
  );
  return { svg, end: ends[until - 1], boxes };
}

/** From a candidate's parent to it, with the probability of this step. */
function edge({ best, fate, probability }, x0, y0, x1, y1) {
  const look = best
    ? { stroke: "var(--forward)", "stroke-width": 4 }
    : fate === "dropped"
      ? { stroke: "var(--line)", "stroke-dasharray": "3 4" }
      : { stroke: "var(--soft)", "stroke-width": 1.5 };
  const turn = x1 - 48; // the last part is straight, and has room for the number
  const bend = (turn - x0) / 2;
  const d = `M${x0} ${y0}C${x0 + bend} ${y0} ${turn - bend} ${y1} ${turn} ${y1}H${x1}`;
  return [
    s("path", { d, fill: "none", ...look }),
    s("text", { x: x1 - 3, y: y1 - 6, "text-anchor": "end", class: "chance" }, fine(probability)),
  ];
}

/** The outline of a candidate: dashed if it was dropped, double if it ended, filled on the best path. */
function outline({ best, fate }, x, y, width, height) {
  const box = { x, y, width, height, rx: fate === "finished" ? 0 : 7, fill: "var(--paper)" };
  if (fate === "dropped") return s("rect", { ...box, stroke: "var(--line)", "stroke-dasharray": "3 4" });
  const look = best
    ? { stroke: "var(--forward)", "stroke-width": 2.5, fill: "color-mix(in srgb, var(--forward) 20%, var(--paper))" }
    : { stroke: "var(--soft)", "stroke-width": 1.5 };
  if (fate === "kept") return s("rect", { ...box, ...look });
  return [
    s("rect", { ...box, ...look }),
    s("rect", { x: x + 3, y: y + 3, width: width - 6, height: height - 6, fill: "none", stroke: look.stroke }),
  ];
}

/** A candidate as a button: its piece, and the probability of the whole beginning. */
function node(one, name, description, x, y, width) {
  const { fate, best, logProbability } = one;
  const text = { x: x + width / 2, "text-anchor": "middle" };
  return s(
    "g",
    { class: `node ${fate}${best ? " best" : ""}`, role: "button", tabindex: -1, "aria-label": description, "aria-pressed": "false" },
    outline(one, x, y - BOX / 2, width, BOX),
    s("text", { ...text, y: y - 3, class: "name" }, name),
    s("text", { ...text, y: y + 12, class: "chance" }, fine(Math.exp(logProbability))),
  );
}

/** What the outlines of the tree mean. */
function treeLegend() {
  const looks = [
    [{ fate: "kept", best: true }, "on the best path"],
    [{ fate: "kept" }, "kept for the next step"],
    [{ fate: "finished" }, "finished sentence"],
    [{ fate: "dropped" }, "dropped"],
  ];
  const items = looks.map(([one, text]) =>
    h("li", {}, s("svg", { width: 34, height: 22, "aria-hidden": "true" }, outline(one, 2, 2, 30, 18)), text),
  );
  const numbers =
    "A line has the probability of the next piece, a box the product along its path: the probability of the whole beginning. The best boxes are kept. A piece with · continues the word before it.";
  return h("ul", { class: "keys" }, items, h("li", {}, numbers));
}

/** Lets a pointer, Tab and the arrow keys choose among the boxes of a tree, which are in columns. */
function choosable(svg, columns, onchoose) {
  let current = columns[0][0];
  const mark = (one, isChosen) => one.setAttribute("aria-pressed", String(isChosen));
  const choose = (one) => {
    mark(current, false);
    current.tabIndex = -1;
    mark(one, true);
    one.tabIndex = 0;
    current = one;
  };
  current.tabIndex = 0;
  columns.forEach((column, t) =>
    column.forEach((one, row) => {
      one.addEventListener("click", () => one.focus());
      one.addEventListener("focus", () => (choose(one), onchoose(t, row)));
    }),
  );
  const rows = Array.from({ length: Math.max(...columns.map(({ length }) => length)) }, (_, row) => columns.map((column) => column[row]));
  roving(svg, rows);
}

/**
 * The figure of a beam search, with a player: { figure, show, stop }.
 *
 * show(outcome)  draws what `translate` returned
 * stop()         pauses the player
 */
function searchFigure(data, tokenizer) {
  const nameOf = (token) => wordOf(tokenizer.pieces([token])[0]);
  const box = scrolling("The tree of the search");
  box.classList.add("tree-box");
  const player = h("div", { class: "controls" });
  const chosen = h("p", { class: "note chosen" });
  const whole = figure(data.caption, player, box, chosen, treeLegend());
  let timer = 0;
  let play = null;

  function stop() {
    clearInterval(timer);
    timer = 0;
    if (play) play.textContent = "Play";
  }

  function show(outcome) {
    stop();
    const columns = layOut(outcome.steps);
    const last = columns.length;
    const label = `Beam search for ${outcome.ids.length} pieces`;
    let at = last;
    const hint = "Choose a box: its text and its probabilities stand here.";
    const textOf = (ids) => tokenizer.decode(ids.filter((token) => token !== EOS));
    const describe = ({ ids, token, probability, logProbability, fate }) =>
      `“${textOf(ids)}”: ${nameOf(token)} has the probability ${fine(probability)} after the pieces before it, the whole beginning ${fine(Math.exp(logProbability))} (log-probability ${number(logProbability)}); ${fate}.`;
    chosen.textContent = hint;
    const to = (step) => {
      at = Math.min(last, Math.max(1, step));
      slider.set(at);
      const best = at === last ? [...outcome.ids, EOS] : (outcome.steps[at - 1].alive[0]?.ids ?? []);
      markBest(columns, best);
      const { svg, end, boxes } = drawTree(columns, at, nameOf, describe, label);
      choosable(svg, boxes, (t, row) => (chosen.textContent = describe(columns[t][row])));
      chosen.textContent = hint;
      box.replaceChildren(svg);
      box.scrollLeft = end - box.clientWidth + 20;
      if (at === last) stop();
    };
    const slider = range({
      label: "Step",
      min: 1,
      max: last,
      value: at,
      show: (step) => `${step} of ${last}`,
      oninput: (step) => (stop(), to(step)),
    });
    play = button("Play", () => {
      if (timer) return stop();
      if (at === last) to(1);
      play.textContent = "Pause";
      timer = setInterval(() => to(at + 1), 450);
    });
    player.replaceChildren(play, slider);
    to(last);
    box.scrollLeft = 0;
  }

  return { figure: whole, show, stop };
}

/** How the search finds a translation, step by step: drawn when it is opened. `sentence()` is the first one above. */
export function beamFold(page, sentence, write) {
  const { model, tokenizer, data, shared } = page;
  const asked = (name, fallback, most) => {
    const value = Number(page.parameters.get(name) ?? fallback);
    return Number.isFinite(value) ? Math.min(most, Math.max(0, value)) : fallback;
  };
  const setting = { beam: Math.max(1, Math.round(asked("beam", data.decoding.beam, 8))), alpha: asked("alpha", data.decoding.alpha, 2) };
  const content = h("div");
  let drawn = null;
  const fold = h("details", { class: "beam-fold", ontoggle: () => toggle() }, h("summary", {}, "How is a translation found? Watch the beam search"), content);

  function toggle() {
    if (!fold.open) return drawn?.stop();
    if (!drawn) draw();
  }

  function draw() {
    const isOwn = sentence() !== data.examples[0];
    const hints = new Map(data.trials);
    let text = isOwn ? sentence() : (data.trials[0]?.[0] ?? sentence());
    let turn = 0;
    drawn = searchFigure(data, tokenizer);
    const output = h("p", { class: "output", lang: data.languages.target });
    const hint = h("p", { class: "note" });
    const shown = async () => {
      const mine = ++turn;
      const found = await translate(model, tokenizer, text, { ...setting, extraLength: data.decoding.extra_length });
      if (mine !== turn) return;
      const n = found.ids.length;
      output.textContent = found.text || "(nothing)";
      const why = text === sentence() ? "" : "Another sentence than above, one whose translation depends on these settings. ";
      hint.textContent = hints.has(text) ? `${why}Now ${hints.get(text)}` : "";
      drawn.show(found);
      const penalty = lengthPenalty(n + 1, setting.alpha);
      say(
        drawn.figure.sentence,
        `The log-probability of the best translation, ${n} pieces and an end, is ${number(found.logProbability)}. Divided by the length penalty ${number(penalty)} it gives the score ${number(found.score)}, which decides between translations of different lengths.`,
      );
    };
    const set = (name, value) => {
      setting[name] = value;
      shared.search = { beam: setting.beam, alpha: setting.alpha };
      write();
      shown();
    };
    const options = [...new Set([text, sentence(), ...data.examples])].map((one) => [one, one]);
    content.append(
      h(
        "div",
        { class: "controls" },
        choice({ label: "Sentence", options, value: text, onchange: (next) => ((text = next), shown()) }),
        range({ label: "Beam size", min: 1, max: 8, value: setting.beam, oninput: (value) => set("beam", value) }),
        range({
          label: "α, against short translations",
          min: 0,
          max: 2,
          step: 0.1,
          value: setting.alpha,
          show: (value) => value.toFixed(1),
          oninput: (value) => set("alpha", value),
        }),
      ),
      output,
      hint,
      drawn.figure,
    );
    shown();
  }

  if (page.parameters.has("beam")) {
    shared.search = { beam: setting.beam, alpha: setting.alpha };
    fold.open = true; // its event draws it
  } else delete shared.search;
  return fold;
}
