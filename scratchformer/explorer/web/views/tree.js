/** A beam search as a tree from left to right: a column for each step, the best candidate on top. */

import { button, figure, h, number, percent, range, s } from "../dom.js";
import { EOS } from "../engine/tokenizer.js";
import { wordOf } from "./sentence.js";

const HEIGHT = 43; // of a row
const BOX = 36; // height of a candidate's box
const GAP = 34; // between columns
const LEFT = 66; // where the first column begins

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

/** The tree up to step `until` (from 1): { svg, end }, `end` is where its last column ends. `name(token)` is a token's text. */
function drawTree(columns, until, name, label) {
  const rows = Math.max(...columns.map((column) => column.length));
  const widths = columns.map((column) => Math.max(52, ...column.map(({ token }) => 18 + 8.2 * name(token).length)));
  const places = widths.map((_, t) => widths.slice(0, t).reduce((x, width) => x + width + GAP, LEFT));
  const middle = (rows * HEIGHT) / 2;
  const yOf = (row) => (row < 0 ? middle : (row + 0.5) * HEIGHT);
  const shown = columns.slice(0, until);
  const ends = places.map((x, t) => x + widths[t]);
  const edges = shown.map((column, t) =>
    column.map((one) => edge(one, t ? ends[t - 1] : LEFT - 14, yOf(one.parent), places[t], yOf(one.row))),
  );
  const nodes = shown.map((column, t) => column.map((one) => node(one, name(one.token), places[t], yOf(one.row), widths[t])));
  const root = [
    s("circle", { cx: LEFT - 20, cy: middle, r: 6, fill: "var(--ink)" }),
    s("text", { x: LEFT - 32, y: middle + 5, "text-anchor": "end", class: "chance" }, "start"),
  ];
  const [width, height] = [ends.at(-1) + 4, rows * HEIGHT];
  const svg = s(
    "svg",
    { class: "tree", role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` },
    edges,
    root,
    nodes,
  );
  return { svg, end: ends[until - 1] };
}

function edge({ best, fate }, x0, y0, x1, y1) {
  const look = best
    ? { stroke: "var(--forward)", "stroke-width": 4 }
    : fate === "dropped"
      ? { stroke: "var(--line)", "stroke-dasharray": "3 4" }
      : { stroke: "var(--soft)", "stroke-width": 1.5 };
  const bend = GAP / 2;
  return s("path", { d: `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`, fill: "none", ...look });
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

function node(one, name, x, y, width) {
  const { fate, best, probability, logProbability } = one;
  const text = { x: x + width / 2, "text-anchor": "middle" };
  return s(
    "g",
    { class: `${fate}${best ? " best" : ""}` },
    s("title", {}, `${name}: ${percent(probability)} here, log-probability so far ${number(logProbability)}, ${fate}`),
    outline(one, x, y - BOX / 2, width, BOX),
    s("text", { ...text, y: y - 3, class: "name" }, name),
    s("text", { ...text, y: y + 12, class: "chance" }, percent(probability)),
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
  return h(
    "ul",
    { class: "keys" },
    items,
    h("li", {}, "The percentage is the piece's probability after those before it; · goes on with a word."),
  );
}

/**
 * The figure of a beam search, with a player and a list that says the same: { figure, show, stop }.
 *
 * show(outcome)  draws what `translate` returned
 * stop()         pauses the player
 */
export function searchFigure(data, tokenizer) {
  const language = data.languages.target;
  const nameOf = (token) => wordOf(tokenizer.pieces([token])[0]);
  const box = h("div", { class: "scroll tree-box", tabindex: 0, role: "group", "aria-label": "The tree of the search" });
  const list = h("ol", { class: "steps-list" });
  const player = h("div", { class: "controls" });
  const twin = h("details", {}, h("summary", {}, "The same search as a list"), list);
  const whole = figure(data.caption, player, box, treeLegend(), twin);
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
    const label = `Beam search for ${outcome.ids.length} pieces; the list below says the same.`;
    let at = last;
    const to = (step) => {
      at = Math.min(last, Math.max(1, step));
      slider.set(at);
      const best = at === last ? [...outcome.ids, EOS] : (outcome.steps[at - 1].alive[0]?.ids ?? []);
      markBest(columns, best);
      const { svg, end } = drawTree(columns, at, nameOf, label);
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
    player.replaceChildren(
      play,
      button("Step back", () => (stop(), to(at - 1))),
      button("Step", () => (stop(), to(at === last ? 1 : at + 1))),
      slider,
    );
    to(last);
    box.scrollLeft = 0;
    list.replaceChildren(
      ...columns.map((column) =>
        h(
          "li",
          {},
          ["kept", "finished", "dropped"].map((fate) => listOf(column, fate)),
        ),
      ),
    );
  }

  function listOf(column, fate) {
    const texts = column
      .filter((one) => one.fate === fate)
      .map(({ ids, probability }) => `${tokenizer.decode(ids.filter((token) => token !== EOS))} (${percent(probability)})`);
    return texts.length ? [h("strong", {}, `${fate}: `), h("span", { lang: language }, texts.join("; ")), ". "] : null;
  }

  return { figure: whole, show, stop };
}
