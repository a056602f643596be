/**
 * What the widgets have in common: a row of chips to pick from, and the parts of the lessons' drawings
 * (lessons/support/drawing.py) as SVG elements, with the same roles, shapes and sizes.
 *
 * Positions are in pixels, x to the right and y down; a shape is placed by its centre. A role is "ink", "soft", "line",
 * "plain", "forward", "query", "key", "value" or "gradient".
 */
import { h, s, words } from "../dom.js";

/** A row of chips, one of them picked. `onpick(i)` is called when another one is; `set(i)` picks without calling it. */
export function pickOne({ label, options, selected = 0, role, onpick }) {
  const bar = words(options, { label, selected, role, onpick: (i) => (element.set(i), onpick(i)) });
  const element = h("div", { class: "named" }, h("span", { class: "label" }, label), bar);
  element.set = bar.select;
  return element;
}

/** A number with at most three decimals and a true minus sign; `sign` adds a plus. */
export function short(x, sign = false) {
  const rounded = Math.round(1000 * x) / 1000;
  return (sign && rounded > 0 ? "+" : "") + String(rounded === 0 ? 0 : rounded).replace("-", "−");
}

/** A picture. `label` says in words what it shows. */
export function picture(width, height, label, ...parts) {
  return s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, parts);
}

/** A part of a picture that a pointer can pick. A control outside the picture must do the same for the keyboard. */
export function pickable(onclick, ...parts) {
  return s("g", { class: "pickable", onclick }, parts);
}

/** One line of words; y is its middle. d_k and e^z get small letters; braces hold more than one: W_{QK}. */
export function text(x, y, words, { role = "ink", size = 15, anchor = "middle", bold = false, italic = false } = {}) {
  const look = {
    "font-size": size,
    "text-anchor": anchor,
    "font-weight": bold ? 600 : null,
    "font-style": italic ? "italic" : null,
  };
  return s("text", { x, y: y + 0.35 * size, class: `of-${role}`, ...look }, smallLetters(String(words), size));
}

function smallLetters(words, size) {
  return words.split(/([_^](?:\{[^}]*\}|\w))/).map((part, i) => {
    if (i % 2 === 0) return part;
    const dy = part[0] === "_" ? 0.3 * size : -0.36 * size;
    const letters = part.slice(1).replace(/[{}]/g, "");
    return [s("tspan", { dy, "font-size": 0.72 * size }, letters), s("tspan", { dy: -dy }, "\u200b")];
  });
}

/** A gradient: an italic number behind a triangle that points up if the number should grow, else down. */
export function gradient(x, y, value, { words = short(value, true), size = 15, largest = 1 } = {}) {
  const side = 5 + 7 * Math.min(1, Math.abs(value) / largest);
  const up = value > 0 ? -1 : 1;
  const base = y - (up * side) / 2;
  const triangle = polygon(
    [
      [x - side, base],
      [x, base],
      [x - side / 2, base + up * side],
    ],
    "gradient",
  );
  return [
    short(value) === "0" ? null : triangle,
    text(x + 5, y, words, { role: "gradient", size, anchor: "start", italic: true }),
  ];
}

/** A row of numbers or words in the shape of its role. */
export function cells(x, y, values, role = "plain", { cell = 46, height = 34, size = 15 } = {}) {
  const left = x - (cell * values.length) / 2;
  const between = values
    .slice(1)
    .map((_, i) => segment([left + (i + 1) * cell, y - height / 2 + 4], [left + (i + 1) * cell, y + height / 2 - 4]));
  const numbers = values.map((value, i) =>
    text(left + (i + 0.5) * cell, y, typeof value === "number" ? short(value) : value, { size }),
  );
  return [outline(x, y, cell * values.length, height, role), between, numbers];
}

/** The outline of a role: rounded for a query, cut corners for a key, square for the others. */
export function outline(x, y, width, height, role, filled = 0.13) {
  if (role !== "key")
    return rectangle(x, y, width, height, role, { filled, outlined: true, radius: { query: 15, value: 0 }[role] ?? 4 });
  const [left, right, top, bottom] = [x - width / 2, x + width / 2, y - height / 2, y + height / 2];
  const cut = 9;
  const upper = [
    [left, top + cut],
    [left + cut, top],
    [right - cut, top],
    [right, top + cut],
  ];
  const lower = [
    [right, bottom - cut],
    [right - cut, bottom],
    [left + cut, bottom],
    [left, bottom - cut],
  ];
  return polygon([...upper, ...lower], role, { filled, outlined: true });
}

export function rectangle(
  x,
  y,
  width,
  height,
  role,
  { filled = 0.13, outlined = false, dashed = false, radius = 0 } = {},
) {
  const where = { x: x - width / 2, y: y - height / 2, width, height, rx: Math.min(radius, height / 2) };
  return s("rect", { ...where, ...filling(role, filled, outlined), "stroke-dasharray": dashed ? "5 4" : null });
}

function polygon(corners, role, { filled = 1, outlined = false } = {}) {
  return s("polygon", { points: corners.map((corner) => corner.join()).join(" "), ...filling(role, filled, outlined) });
}

export function circle(x, y, radius, role, { filled = 1, outlined = false } = {}) {
  return s("circle", { cx: x, cy: y, r: radius, ...filling(role, filled, outlined) });
}

function filling(role, filled, outlined) {
  return {
    fill: `var(--${role})`,
    "fill-opacity": filled,
    stroke: outlined ? `var(--${role})` : null,
    "stroke-width": 1.6,
  };
}

/** A weight from 0 to 1: the filled part of an upright bar. */
export function bar(x, y, share, { width = 48, height = 80 } = {}) {
  const filled = share * height;
  const part = rectangle(x, y + (height - filled) / 2, width, filled, "ink", { filled: 0.78 });
  return [rectangle(x, y, width, height, "ink", { filled: 0.1 }), part];
}

/** A straight line between two points. */
export function segment(from, to, role, width, dashed) {
  return line([from, to], role, width, dashed);
}

/** A line through the points. */
export function line(points, role = "line", width = 1.2, dashed = false) {
  return stroke(`M${points.map((point) => point.join(" ")).join("L")}`, role, width, { dashed });
}

/** A smooth line from above to below, as thick as the weight (0 to 1) it carries. */
export function thread([x, y], [toX, toY], weight, role = "value") {
  const middle = (y + toY) / 2;
  return stroke(`M${x} ${y}C${x} ${middle} ${toX} ${middle} ${toX} ${toY}`, role, Math.max(0.6, 12 * weight), {
    opacity: 0.55,
  });
}

export function arrow([x, y], [toX, toY], role = "soft", width = 1.6) {
  const length = Math.hypot(toX - x, toY - y) || 1;
  const [dx, dy] = [(toX - x) / length, (toY - y) / length];
  const base = [toX - 8 * dx, toY - 8 * dy];
  const wings = [
    [base[0] - 4 * dy, base[1] + 4 * dx],
    [base[0] + 4 * dy, base[1] - 4 * dx],
  ];
  return [line([[x, y], base], role, width), polygon([[toX, toY], ...wings], role)];
}

function stroke(d, role, width, { dashed = false, opacity = null }) {
  const look = {
    stroke: `var(--${role})`,
    "stroke-width": width,
    "stroke-opacity": opacity,
    "stroke-dasharray": dashed ? "5 4" : null,
  };
  return s("path", { d, fill: "none", ...look });
}
