/**
 * Figure 1 of the paper, drawn for the model at hand: the encoder on the left, the decoder on the right, first step at
 * the bottom.
 */

import { largestOf, s } from "../dom.js";

const BOX_TITLES = {
  "source.text": "Source words",
  "source.embedding": "Embedding",
  "source.positions": "+ Position",
  "target.text": "Words written so far",
  "target.embedding": "Embedding",
  "target.positions": "+ Position",
  "encoder.out": "Norm",
  "decoder.out": "Norm",
  logits: "Logits",
  softmax: "Softmax",
};
const SUBLAYERS = {
  "encoder.self": "Self-attention",
  "decoder.self": "Masked attention",
  "decoder.cross": "Cross-attention",
  "encoder.ff": "Feed-forward",
  "decoder.ff": "Feed-forward",
};

const MARGIN = 18;
const CHANNEL = 34; // between the columns
const TITLE_WIDTH = 114; // of a box's title, where cells stand beside it

/** The box of Figure 1 that a stage belongs to: all stages inside a sublayer share its box. */
export function boxOf(stage) {
  const [stack, layer, sublayer, part] = stage.split(".");
  if (!part) return stage;
  return ["out", "norm"].includes(part) ? stage : `${stack}.${layer}.${sublayer}`;
}

/**
 * The boxes in the order of computation: [{ id, title, side, layer, sublayer, stages }]. `ids` are the ids of all
 * stages.
 */
export function boxesOf(ids) {
  const boxes = new Map();
  const preNorm = ids.some((id) => id.endsWith(".norm"));
  const add = (id, stage) => {
    if (!boxes.has(id)) {
      const [stack, layer, sublayer, part] = id.split(".");
      const inLayer = sublayer !== undefined;
      const title = !inLayer
        ? BOX_TITLES[id]
        : part === "norm"
          ? "Norm"
          : part === "out"
            ? preNorm
              ? "Add"
              : "Add & norm"
            : SUBLAYERS[`${stack}.${sublayer}`];
      const side = stack === "source" || stack === "encoder" ? "source" : "target";
      boxes.set(id, {
        id,
        title,
        side,
        layer: inLayer ? Number(layer) : null,
        sublayer: inLayer ? `${stack}.${layer}.${sublayer}` : null,
        stages: [],
      });
    }
    if (stage) boxes.get(id).stages.push(stage);
  };
  for (const id of ids) {
    if (id === "source.embedding") add("source.text");
    if (id === "target.embedding") add("target.text");
    add(boxOf(id), id);
  }
  add("softmax");
  return [...boxes.values()];
}

const columnWidth = (width) => Math.max(0, (width - 2 * MARGIN - CHANNEL) / 2);
const cellsWidth = (positions) => 12 + 10 * positions;

/** Where each box stands: Map from id to { x, y, width, height }, with the picture's `height`. `gap` is between boxes. */
export function placeBoxes(boxes, width, boxHeight, gap = 12) {
  const column = columnWidth(width);
  const places = new Map();
  let height = 0;
  for (const [side, x] of [
    ["source", MARGIN],
    ["target", MARGIN + column + CHANNEL],
  ]) {
    let up = 6;
    let layer = null;
    for (const box of boxes.filter((one) => one.side === side)) {
      if (box.layer !== layer) up += 16;
      layer = box.layer;
      places.set(box.id, { x, y: -up - boxHeight, width: column, height: boxHeight });
      up += boxHeight + gap;
    }
    height = Math.max(height, up);
  }
  for (const place of places.values()) place.y += height;
  return { places, height };
}

/**
 * The picture as SVG in CSS pixels. Its `update(current, sizes)` marks the box with the id `current`, or none, and fills
 * the cells of each box by `sizes(box)`: a number from 0 to 1 for each position.
 *
 * boxes, width, label   what is drawn (boxesOf), how wide, and what it is called
 * onpick(id)            makes the boxes buttons; the arrow keys move among them in the order of computation
 * names                 gives each box a row of cells: { source: { below }, target: { below, above } }, the words under the
 *                       side's first box and above its last one
 * content(box)          what stands in a box beside its title, without `names`: a vector, a text, or null
 */
export function figureOne({ boxes, width, label, onpick, names = null, content = () => null }) {
  const most = names && Math.max(names.source.below.length, names.target.below.length);
  const isFlat = !names || columnWidth(width) - TITLE_WIDTH >= cellsWidth(most);
  const [boxHeight, gap] = isFlat ? [24, 5] : [42, 12];
  const { places, height: bare } = placeBoxes(boxes, width, boxHeight, gap);
  const insideOf = (place) =>
    isFlat ? { ...place, x: place.x + TITLE_WIDTH, width: place.width - TITLE_WIDTH } : place;
  const room = (lists) => (names ? 8 + 6.2 * Math.max(...lists.flat().map((word) => word.length)) : 0);
  const [above, below] = [room([names?.target.above]), room([names?.source.below, names?.target.below])];
  const svg = s("svg", {
    width,
    height: above + bare + below,
    viewBox: `0 ${-above} ${width} ${above + bare + below}`,
    class: "figure-one",
    role: "group",
    "aria-label": label,
  });
  svg.append(...layerFrames(boxes, places, gap), ...arrows(boxes, places, gap));
  const drawn = boxes.map((box) => {
    const { id, side, layer, title } = box;
    const { x, y, width: w, height: t } = places.get(id);
    const inside = insideOf(places.get(id));
    const at = isFlat ? { x: x + 8, y: y + t / 2 + 4.5 } : { x: x + w / 2, y: y + 17, "text-anchor": "middle" };
    const name = `${layer === null ? "" : `${side === "source" ? "encoder" : "decoder"} layer ${layer + 1}, `}${title}`;
    return s(
      "g",
      { class: "box", "data-key": id, role: "button", "aria-label": name, onclick: () => onpick(id) },
      s("rect", { x, y, width: w, height: t, rx: 5 }),
      s("text", { ...at, "font-size": 13 }, title),
      names ? cellsOf(inside, names[side].below.length) : contentOf(inside, content(box)),
    );
  });
  svg.addEventListener("keydown", (event) => onKey(event, drawn, boxes, onpick));
  svg.append(...drawn);
  if (names) {
    const wordsOf = (id, list, where) => svg.append(wordsAt(insideOf(places.get(id)), list, where));
    wordsOf("source.embedding", names.source.below, "below");
    wordsOf("target.embedding", names.target.below, "below");
    wordsOf("logits", names.target.above, "above");
  }
  svg.update = (current, sizes) => {
    drawn.forEach((group, i) => {
      const isCurrent = boxes[i].id === current;
      group.classList.toggle("current", isCurrent);
      group.setAttribute("tabindex", isCurrent || (!current && i === 0) ? 0 : -1);
      if (isCurrent) group.setAttribute("aria-current", "step");
      else group.removeAttribute("aria-current");
      if (names)
        sizes(boxes[i]).forEach((size, k) =>
          group.querySelectorAll(".cell-fill")[k].setAttribute("fill-opacity", Math.min(1, size).toFixed(3)),
        );
    });
  };
  return svg;
}

/** Where the cell of a position is in a box: x of its left side, and its width. */
function cellAt({ x, width }, i, count) {
  const step = (width - 12) / count;
  return { x: x + 6 + i * step, width: step };
}

function cellsOf(place, count) {
  return Array.from({ length: count }, (_, i) => {
    const { x, width } = cellAt(place, i, count);
    const shape = { x, y: place.y + place.height - 18, width: width - 1, height: 13 };
    return [
      s("rect", { ...shape, class: "cell-frame" }),
      s("rect", { ...shape, class: "cell-fill", "fill-opacity": 0 }),
    ];
  });
}

/** A vector as cells, positive numbers in the upper half and negative ones in the lower half, or a text; where it fits. */
function contentOf({ x, y, width, height }, content) {
  if (content === null || width < 28) return null;
  const right = x + width - 7;
  if (typeof content === "string")
    return s("text", { x: right, y: y + height / 2 + 4.5, "text-anchor": "end", class: "outcome" }, content);
  const cell = (width - 10) / content.length;
  const most = largestOf(content);
  const cells = Array.from(content, (value, i) =>
    s("rect", {
      x: x + 3 + i * cell,
      y: y + (value < 0 ? height / 2 : 4),
      width: cell,
      height: height / 2 - 4,
      fill: value < 0 ? "var(--negative)" : "var(--positive)",
      "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(2),
    }),
  );
  return s("g", { class: "cells" }, cells);
}

function wordsAt(place, list, where) {
  const y = where === "below" ? place.y + place.height + 5 : place.y - 5;
  const words = list.map((word, i) => {
    const { x, width } = cellAt(place, i, list.length);
    return s(
      "text",
      {
        transform: `translate(${x + width / 2 + 3.5} ${y}) rotate(-90)`,
        "text-anchor": where === "below" ? "end" : "start",
        "font-size": 11,
      },
      word,
    );
  });
  return s("g", { class: "cell-names", "aria-hidden": "true" }, words);
}

/** The least width with which `positions` cells in a box have room for their words. */
export function widthFor(positions) {
  return 2 * (cellsWidth(positions) + MARGIN) + CHANNEL;
}

function onKey(event, drawn, boxes, onpick) {
  const at = drawn.indexOf(event.target);
  if (at < 0) return;
  const step = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
  if (!step && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  event.stopPropagation();
  const next = Math.min(boxes.length - 1, Math.max(0, at + (step ?? 0)));
  onpick(boxes[next].id);
}

function layerFrames(boxes, places, gap) {
  const frames = new Map();
  for (const { id, side, layer } of boxes) {
    if (layer === null) continue;
    const { x, y, width, height } = places.get(id);
    const key = `${side}.${layer}`;
    const frame = frames.get(key) ?? { side, layer, x: x - 14, width: width + 28, top: Infinity, bottom: 0 };
    frames.set(key, { ...frame, top: Math.min(frame.top, y - 6), bottom: Math.max(frame.bottom, y + height + 0.65 * gap) });
  }
  return [...frames.values()].flatMap(({ side, layer, x, width, top, bottom }) => [
    s("rect", { x, y: top - 10, width, height: bottom - top + 10, rx: 8, class: "layer-frame" }),
    s(
      "text",
      {
        x: side === "source" ? x + 6 : x + width - 6,
        y: top + 1,
        "text-anchor": side === "source" ? "start" : "end",
        "font-size": 11,
        class: "layer-name",
      },
      `layer ${layer + 1}`,
    ),
  ]);
}

function arrows(boxes, places, gap) {
  const found = [];
  const line = (d) => found.push(s("path", { d, class: "wire" }));
  const head = (x, y, dx, dy) =>
    found.push(
      s("path", {
        d: `M${x} ${y}l${-6 * dx - 3.5 * dy} ${-6 * dy - 3.5 * dx}l${7 * dy} ${7 * dx}z`,
        class: "wire-head",
      }),
    );
  for (const side of ["source", "target"]) {
    const column = boxes.filter((box) => box.side === side);
    column.slice(1).forEach((box, i) => {
      const from = places.get(column[i].id);
      const to = places.get(box.id);
      const x = to.x + to.width / 2;
      line(`M${x} ${from.y}V${to.y + to.height + 5}`);
      head(x, to.y + to.height, 0, -1);
    });
    for (const box of column.filter(({ id }) => id.endsWith(".out") && id.split(".").length === 4)) {
      const first = places.get(column.find((one) => one.sublayer === box.sublayer).id);
      const last = places.get(box.id);
      const out = side === "source" ? -1 : 1;
      const edge = side === "source" ? last.x : last.x + last.width;
      const y = first.y + first.height + 0.6 * gap;
      line(`M${first.x + first.width / 2} ${y}H${edge + 9 * out}V${last.y + last.height / 2}H${edge + 5 * out}`);
      head(edge, last.y + last.height / 2, -out, 0);
    }
  }
  const top = boxes.findLast(({ id, side }) => side === "source" && id !== "softmax");
  const from = places.get(top.id);
  const channel = from.x + from.width + 10;
  for (const box of boxes.filter(({ id }) => /^decoder\.\d+\.cross$/.test(id))) {
    const to = places.get(box.id);
    const y = to.y + to.height / 2;
    line(`M${from.x + from.width} ${from.y + from.height / 2}H${channel}V${y}H${to.x - 5}`);
    head(to.x, y, 1, 0);
  }
  return found;
}
