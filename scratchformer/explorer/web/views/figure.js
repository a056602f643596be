/**
 * Figure 1 of the paper, drawn for the model at hand: the encoder on the left, the decoder on the right, first step at
 * the bottom. Layer 1 stands in full; each further layer is one box until it is opened.
 */

import { largestOf, s } from "../dom.js";

const BOX_TITLES = {
  "source.text": "Source words",
  "source.embedding": "Embedding",
  "source.positions": "+ Position",
  "target.text": "Words so far",
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
const CHANNEL = 38; // between the columns
const TITLE_WIDTH = 118; // of a box's title, where cells stand beside it
const BOX_HEIGHT = 24;
const GAP = 8; // between boxes

/** The layer whose steps are folded together, like "decoder.1", or null: layer 1 and what stands outside layers has none. */
export function foldOf(stage) {
  const [stack, layer, sublayer] = stage.split(".");
  return sublayer !== undefined && Number(layer) > 0 ? `${stack}.${layer}` : null;
}

/** The box of Figure 1 that a stage belongs to: all stages inside a sublayer share its box. */
export function boxOf(stage) {
  const [stack, layer, sublayer, part] = stage.split(".");
  if (!part) return stage;
  return ["out", "norm"].includes(part) ? stage : `${stack}.${layer}.${sublayer}`;
}

/**
 * The boxes in the order of computation: [{ id, title, side, layer, sublayer, stages }].
 *
 * ids     the ids of all stages
 * opened  the further layer that stands in full, like "decoder.1"
 */
export function boxesOf(ids, opened = null) {
  const boxes = new Map();
  const preNorm = ids.some((id) => id.endsWith(".norm"));
  const add = (id, stage) => {
    if (!boxes.has(id)) {
      const [stack, layer, sublayer, part] = id.split(".");
      const inLayer = sublayer !== undefined;
      const side = stack === "source" || stack === "encoder" ? "source" : "target";
      const titles = { norm: "Norm", out: preNorm ? "Add" : "Add & norm" };
      const ofLayer = titles[part] ?? SUBLAYERS[`${stack}.${sublayer}`];
      boxes.set(id, {
        id,
        title: inLayer ? ofLayer : (BOX_TITLES[id] ?? `Layer ${Number(layer) + 1}`),
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
    const fold = foldOf(id);
    add(fold && fold !== opened ? fold : boxOf(id), id);
  }
  add("softmax");
  return [...boxes.values()];
}

/** Where each box stands: Map from id to { x, y, width, height }, with the picture's `height`. */
export function placeBoxes(boxes, width) {
  const column = Math.max(0, (width - 2 * MARGIN - CHANNEL) / 2);
  const places = new Map();
  let height = 0;
  for (const [side, x] of [["source", MARGIN], ["target", MARGIN + column + CHANNEL]]) {
    let up = 6;
    let layer = null;
    for (const box of boxes.filter((one) => one.side === side)) {
      if (box.layer !== layer) up += 16;
      layer = box.layer;
      places.set(box.id, { x, y: -up - BOX_HEIGHT, width: column, height: BOX_HEIGHT });
      up += BOX_HEIGHT + GAP;
    }
    height = Math.max(height, up);
  }
  for (const place of places.values()) place.y += height;
  return { places, height };
}

/**
 * The picture as SVG in CSS pixels.
 *
 * boxes, width, label   what is drawn (boxesOf), how wide, and what it is called
 * current               the id of the box that is marked
 * reached               the ids of the boxes that the walk has come to; the others are pale
 * onpick(id)            makes the boxes buttons; the arrow keys move among them in the order of computation
 * content(box)          what stands in a box beside its title: a vector, a text, or null
 * flow(from, to)        backward: the length of the gradient, 0 to 1, that box `to` sends to box `from`, or, with `true`
 *                       as a third argument, past its sublayer; null: the arrows are those of the forward pass
 */
export function figureOne({ boxes, width, label, current, reached, onpick, content, flow = null }) {
  const { places, height } = placeBoxes(boxes, width);
  const svg = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    class: `figure-one${flow ? " way-back" : ""}`,
    role: "group",
    "aria-label": label,
  });
  svg.append(...layerFrames(boxes, places), ...arrows(boxes, places, flow, current));
  const drawn = boxes.map((box) => {
    const { id, side, layer, title } = box;
    const place = places.get(id);
    const name = `${layer === null ? "" : `${side === "source" ? "encoder" : "decoder"} layer ${layer + 1}, `}${title}`;
    const isCurrent = id === current;
    return s(
      "g",
      {
        class: `box${isCurrent ? " current" : ""}${reached.has(id) ? "" : " ahead"}`,
        "data-key": id,
        role: "button",
        tabindex: isCurrent ? 0 : -1,
        "aria-current": isCurrent ? "step" : null,
        "aria-label": name,
        onclick: () => onpick(id),
      },
      s("rect", { ...place, rx: 5 }),
      s("text", { x: place.x + 8, y: place.y + place.height / 2 + 4.5, "font-size": 13 }, title),
      contentOf(place, title, content(box)),
    );
  });
  svg.addEventListener("keydown", (event) => onKey(event, drawn, boxes, onpick));
  svg.append(...drawn);
  return svg;
}

/** A vector as cells, positive numbers in the upper half and negative ones in the lower half, or a text; where it fits. */
function contentOf(place, title, content) {
  const { y, height } = place;
  if (typeof content === "string") {
    if (24 + 7.6 * (title.length + content.length) > place.width) return null;
    return s("text", { x: place.x + place.width - 7, y: y + height / 2 + 4.5, "text-anchor": "end", class: "outcome" }, content);
  }
  const [x, width] = [place.x + TITLE_WIDTH, place.width - TITLE_WIDTH];
  if (content === null || width < 18) return null;
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

function layerFrames(boxes, places) {
  const frames = new Map();
  for (const { id, side, layer } of boxes) {
    if (layer === null) continue;
    const { x, y, width, height } = places.get(id);
    const key = `${side}.${layer}`;
    const frame = frames.get(key) ?? { side, layer, x: x - 14, width: width + 28, top: Infinity, bottom: 0 };
    frames.set(key, { ...frame, top: Math.min(frame.top, y - 6), bottom: Math.max(frame.bottom, y + height + 0.65 * GAP) });
  }
  return [...frames.values()].flatMap(({ side, layer, x, width, top, bottom }) => {
    const text = { x: side === "source" ? x + 6 : x + width - 6, "text-anchor": side === "source" ? "start" : "end" };
    return [
      s("rect", { x, y: top - 11, width, height: bottom - top + 11, rx: 8, class: "layer-frame" }),
      s("text", { ...text, y: top + 1, "font-size": 12, class: "layer-name" }, `layer ${layer + 1}`),
    ];
  });
}

/**
 * The wires from box to box, and a head at the end of each; with `flow` the head is at the other end, and the wire as
 * thick as the gradient is long; those that bring the gradient to the `current` box are lit.
 */
function arrows(boxes, places, flow, current) {
  const found = [];
  /** The wire from `box` to the `reader` is a path between two places: [x, y] and the direction of a head there. */
  const wire = (path, from, to, box, reader, isPast = false) => {
    const strength = flow?.(box, reader, isPast) ?? 0;
    const isFlow = strength > 0;
    const [x, y, dx, dy] = flow ? from : to;
    const thick = isFlow ? 1.2 + 7 * strength : 1.2;
    const head = 6 + (thick - 1.2) / 1.5;
    const half = 0.6 * head;
    const look = isFlow ? (box.id === current ? "wire flow lit" : "wire flow") : "wire";
    const line = s("path", { d: path, class: look, "stroke-width": thick.toFixed(1) });
    const tip = `M${x} ${y}l${-head * dx - half * dy} ${-head * dy - half * dx}l${2 * half * dy} ${2 * half * dx}z`;
    found.push(line, s("path", { d: tip, class: isFlow ? "wire-head flow" : "wire-head" }));
  };
  for (const side of ["source", "target"]) {
    const column = boxes.filter((box) => box.side === side);
    column.slice(1).forEach((box, i) => {
      const [from, to] = [places.get(column[i].id), places.get(box.id)];
      const x = to.x + to.width / 2;
      const bottom = to.y + to.height;
      const path = `M${x} ${from.y - (flow ? 5 : 0)}V${bottom + (flow ? 0 : 5)}`;
      wire(path, [x, from.y, 0, 1], [x, bottom, 0, -1], column[i], box);
    });
    for (const box of column.filter(({ id }) => id.endsWith(".out") && id.split(".").length === 4)) {
      const inner = column.find((one) => one.sublayer === box.sublayer);
      const [first, last] = [places.get(inner.id), places.get(box.id)];
      const out = side === "source" ? -1 : 1;
      const edge = side === "source" ? last.x : last.x + last.width;
      const [x, y, end] = [first.x + first.width / 2, first.y + first.height + 0.6 * GAP, last.y + last.height / 2];
      const path = `M${x + (flow ? 5 * out : 0)} ${y}H${edge + 9 * out}V${end}H${edge + (flow ? 0 : 5 * out)}`;
      wire(path, [x, y, -out, 0], [edge, end, -out, 0], column[column.indexOf(inner) - 1], box, true);
    }
  }
  const top = boxes.findLast(({ side }) => side === "source");
  const from = places.get(top.id);
  const right = from.x + from.width;
  for (const box of boxes.filter(({ id }) => /^decoder\.\d+(\.cross)?$/.test(id))) {
    const to = places.get(box.id);
    const [start, y] = [from.y + from.height / 2, to.y + to.height / 2];
    const path = `M${right + (flow ? 5 : 0)} ${start}H${right + 10}V${y}H${to.x - (flow ? 0 : 5)}`;
    wire(path, [right, start, -1, 0], [to.x, y, 1, 0], top, box);
  }
  return found;
}
