/** Positions: what is added to each embedding so that the model knows the order, as heat map, clocks and dot products. */

import { choice, figure, fitted, h, largestOf, number, plot, range, s, say, strip, ticks } from "../dom.js";
import { matrix, row, sinusoids } from "../engine/tensor.js";

const MOST = 64;

/** The first 64 rows of the tables: [{ name, table, isSinusoid }…]. A model with learned positions has two of its own. */
export function positionTables(model) {
  const { d_model: width, max_positions: limit } = model.config;
  const first = (name, learned) => {
    const table = matrix(learned ? Math.min(MOST, limit) : MOST, width);
    for (let pos = 0; pos < table.rows; pos++) row(table, pos).set(learned ? row(learned, pos) : sinusoids(pos, width));
    return { name, table, isSinusoid: !learned };
  };
  const learned = Object.entries(model.positions).filter(([, table]) => table);
  return [...learned.map(([side, table]) => first(`learned, for the ${side}`, table)), first("sinusoids of the paper", null)];
}

/** The dot product of row `pos` of a table with each of its rows: [[offset, product]…]. */
export function dotsByOffset(table, pos) {
  const mine = row(table, pos);
  return Array.from({ length: table.rows }, (_, other) => [
    other - pos,
    row(table, other).reduce((sum, value, j) => sum + value * mine[j], 0),
  ]);
}

/** A table as SVG: one path per sign and strength, so that thousands of cells stay quick. Rows are positions. */
function drawTable(table, width, onpick) {
  const { rows, cols, data } = table;
  const [left, top, height, across] = [30, 6, 5, (width - 32) / cols];
  const largest = largestOf(data);
  const paths = new Map();
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < cols; j++) {
      const level = Math.round((12 * data[i * cols + j]) / largest);
      if (level) paths.set(level, `${paths.get(level) ?? ""}M${j} ${i}h1v1h-1z`);
    }
  }
  const cells = [...paths].map(([level, d]) =>
    s("path", { d, fill: level > 0 ? "var(--positive)" : "var(--negative)", "fill-opacity": Math.abs(level) / 12 }),
  );
  const frame = s("rect", { x: left, width: across * cols, height, fill: "none", stroke: "var(--ink)", "stroke-width": 2 });
  const numbers = ticks(0, rows - 1, 6).map((pos) =>
    s("text", { x: left - 6, y: top + (pos + 0.5) * height + 4.5, "text-anchor": "end", class: "tick" }, pos),
  );
  const svg = s(
    "svg",
    {
      class: "table-map plot",
      width,
      height: rows * height + 2 * top,
      role: "img",
      "aria-label": `The table of positions: ${rows} rows and ${cols} columns; the slider chooses a row.`,
    },
    s("g", { class: "cells", transform: `translate(${left} ${top}) scale(${across} ${height})` }, cells),
    numbers,
    frame,
  );
  svg.addEventListener("click", (event) => onpick(Math.floor((event.clientY - svg.getBoundingClientRect().top - top) / height)));
  svg.select = (pos) => frame.setAttribute("y", top + pos * height);
  return svg;
}

/** One pair of columns (2i, 2i + 1) as a hand: its height is the sine, its width the cosine, as in lesson 09. */
function clock(sine, cosine, most) {
  const [x, y] = [30 + (24 * cosine) / most, 30 - (24 * sine) / most];
  return s(
    "svg",
    { width: 60, height: 60, viewBox: "0 0 60 60", "aria-hidden": "true" },
    s("circle", { cx: 30, cy: 30, r: 27, fill: "none", stroke: "var(--line)", "stroke-width": 1.5 }),
    s("line", { x1: 52, y1: 30, x2: 57, y2: 30, stroke: "var(--soft)", "stroke-width": 1.5 }),
    s("line", { x1: 30, y1: 30, x2: x, y2: y, stroke: "var(--forward)", "stroke-width": 3, "stroke-linecap": "round" }),
    s("circle", { cx: 30, cy: 30, r: 2.5, fill: "var(--ink)" }),
  );
}

/** 6.3, 39, 17,000: two digits that count. */
function turnText(positions) {
  return Number(positions.toPrecision(2)).toLocaleString("en", { minimumFractionDigits: positions < 9.95 ? 1 : 0 });
}

function mount(root, page) {
  const { model, data } = page;
  const width = model.config.d_model;
  const tables = positionTables(model);
  let { table, isSinusoid } = tables[0];
  let pos = Math.round(Number(page.parameters.get("pos") ?? 7)) || 0;

  let map = null;
  const mapBox = fitted((space) => {
    map = drawTable(table, space, (line) => (slider.set(line), choose(line)));
    map.select(pos);
    return map;
  });
  const slider = range({ label: "Position (a row of the table)", min: 0, max: table.rows - 1, value: pos, oninput: choose });
  const fingerprint = h("div", {});
  const clocks = h("ul", { class: "clocks" });
  const chart = fitted((space) => {
    const points = dotsByOffset(table, pos);
    return plot({
      label: `Dot product of position ${pos} with each position, against the distance`,
      width: space,
      height: 240,
      x: { label: "offset: the other position − this one" },
      y: { label: "dot product", from: Math.min(0, ...points.map(([, product]) => product)) },
      series: [{ name: "dot product", role: "forward", points }],
      marker: 0,
    });
  });
  const hand = h("p", { class: "note" });
  const view = figure(
    data.caption,
    h(
      "div",
      { class: "controls follows" },
      slider,
      tables.length > 1 ? choice({ label: "Table", options: tables.map(({ name }, i) => [i, name]), value: 0, onchange: take }) : null,
    ),
    h("h2", {}, "The table"),
    mapBox,
    h(
      "p",
      { class: "note" },
      "Each row belongs to a position; each column is one of the numbers of the vector. Blue is positive, orange negative, and a stronger colour is a larger number. Click a row, or move the slider.",
    ),
    h("h2", {}, "The vector of one position"),
    fingerprint,
    clocks,
    hand,
    h("h2", {}, "How alike are two positions?"),
    chart,
  );
  root.append(view);

  function take(chosen) {
    ({ table, isSinusoid } = tables[chosen]);
    mapBox.redraw();
    choose(pos);
  }

  function choose(chosen) {
    pos = Math.min(table.rows - 1, Math.max(0, chosen));
    const vector = row(table, pos);
    map?.select(pos);
    const most = largestOf(table.data);
    const first = Array.from(vector.subarray(0, 8), (value) => number(value, 3)).join("  ");
    fingerprint.replaceChildren(
      strip(vector, { label: `The vector of position ${pos}`, largest: most }),
      h("p", { class: "note" }, `Its first 8 of ${width} numbers: ${first}`),
    );
    const step = Math.max(1, Math.floor(width / 2 / 12));
    const pairs = Array.from({ length: Math.floor(width / 2 / step) }, (_, i) => 2 * i * step);
    clocks.replaceChildren(
      ...pairs.map((j) => {
        const turn = isSinusoid ? h("span", {}, "one turn:", h("br"), `${turnText(2 * Math.PI * 10000 ** (j / width))} positions`) : null;
        return h("li", {}, clock(vector[j], vector[j + 1], most), `${j}, ${j + 1}`, turn && h("br"), turn);
      }),
    );
    view.querySelector(".source").textContent = isSinusoid ? "the paper's formula (section 3.5), which no training changes" : data.caption;
    hand.textContent = isSinusoid
      ? "Two neighbouring columns, a sine and a cosine, are the height and the width of a hand; below it stand its columns, and after how many positions it has made one turn. The first hands turn quickly and tell neighbours apart; the last turn so slowly that only positions far apart differ in them."
      : "Two neighbouring columns drawn as a hand. Nothing makes these hands turn evenly: training chose these numbers freely.";
    chart.redraw();
    const dots = new Map(dotsByOffset(table, pos));
    const away = pos + 20 < table.rows ? 20 : -20;
    const one = pos + 1 < table.rows ? 1 : -1;
    say(
      view.sentence,
      `The dot product of position ${pos} with itself is ${number(dots.get(0))}, with position ${pos + one} it is ${number(dots.get(one))}, and with position ${pos + away} it is ${number(dots.get(away))}` +
        (isSinusoid ? ". It depends only on how far apart the two positions are." : "."),
    );
    page.go("positions", { pos });
  }

  choose(pos);
}

export const positionsView = {
  id: "positions",
  title: "Positions",
  question: "How does the model know the order of the words?",
  lead: "Attention alone can't tell first from last. So a vector for each position is added to the embedding of the word that stands there. Choose a position and look at its vector.",
  mount,
};
