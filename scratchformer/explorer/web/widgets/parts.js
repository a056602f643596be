/**
 * What the widgets have in common: controls that change a state, and the parts of the lessons' drawings
 * (lessons/support/drawing.py) as SVG elements, with the same roles, shapes and sizes.
 *
 * Positions are in pixels, x to the right and y down; a shape is placed by its centre. A role is "ink", "soft", "line",
 * "plain", "forward", "query", "key", "value" or "gradient".
 */
import { button, fixed, h, range, s, words } from "../dom.js";

/** A row of chips, one of them picked. `onpick(i)` is called when another one is; `set(i)` picks without calling it. */
export function pickOne({ label, options, selected = 0, role, onpick }) {
  const bar = words(options, { label, selected, role, onpick: (i) => (element.set(i), onpick(i)) });
  const element = h("div", { class: "named" }, h("span", { class: "label" }, label), bar);
  element.set = bar.select;
  return element;
}

/** Makers of controls that change one entry of a state: `pick` sets the number of a chip, `slide` a number in a range. */
export function controlsOf(state, update) {
  const change = (key) => (x) => ((state[key] = x), update());
  return {
    pick: (key, label, options, role) => pickOne({ label, options, role, selected: Number(state[key]), onpick: change(key) }),
    slide: (key, label, min, max, step = 1, show = short) =>
      range({ label, min, max, step, value: state[key], show, oninput: change(key) }),
  };
}

/** Back and Next. `go` is called with −1 or 1; `set(step, last)` disables the one that leads no further. */
export function stepper(go) {
  const [back, next] = [button("Back", () => go(-1)), button("Next", () => go(1), { class: "button main" })];
  const element = h("div", { class: "named" }, back, next);
  element.set = (step, last) => {
    const focused = element.querySelector(":focus");
    [back.disabled, next.disabled] = [step === 0, step === last];
    if (focused?.disabled) (focused === back ? next : back).focus();
  };
  return element;
}

/** A row of controls. */
export const controls = (...parts) => h("div", { class: "controls" }, parts);

/** A row of sliders, which stays on a phone's screen while the picture is there. */
export const staying = (...parts) => h("div", { class: "controls staying" }, parts);

/** A number with at most three decimals (or `places`) and a true minus sign; `sign` adds a plus. */
export function short(x, sign = false, places = 3) {
  const rounded = Number(x.toFixed(places));
  return (sign && rounded > 0 ? "+" : "") + String(rounded === 0 ? 0 : rounded).replace("-", "−");
}

/** A number with two decimals, a true minus sign, and no −0.00. */
export const hundredths = (x) => fixed(x, 2);

/** A weight with four decimals, or more if it is small. It never looks like 1, which softmax doesn't give. */
export function share(weight) {
  if (weight >= 0.99995) return "> 0.9999";
  return weight > 1e-6 ? weight.toFixed(weight > 1e-3 ? 4 : weight > 1e-4 ? 5 : 6) : "< 0.000001";
}

export const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
export const dot = (a, b) => sum(a.map((x, i) => x * b[i]));

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
  const look = { "font-size": size, "text-anchor": anchor, "font-weight": bold ? 600 : null, "font-style": italic ? "italic" : null };
  return s("text", { x, y: y + 0.35 * size, class: `of-${role}`, ...look }, smallLetters(String(words), size));
}

function smallLetters(words, size) {
  return words.split(/([_^](?:\{[^}]*\}|\w))/).map((part, i) => {
    if (i % 2 === 0) return part;
    const dy = part[0] === "_" ? 0.3 * size : -0.36 * size;
    const letters = part.slice(1).replace(/[{}]/g, "");
    return [s("tspan", { dy, "font-size": Math.max(12, 0.72 * size) }, letters), s("tspan", { dy: -dy }, "\u200b")];
  });
}

/** A small line of words beside what it explains. */
export function note(x, y, words, anchor = "middle", size = 13) {
  return text(x, y, words, { role: "soft", size, anchor });
}

/** A gradient as a number. */
export function slope(x, y, words, anchor = "middle", size = 13) {
  return text(x, y, words, { role: "gradient", size, italic: true, anchor });
}

/** A gradient: an italic number behind a triangle that points up if the number should grow, else down. */
export function gradient(x, y, value, { words = short(value, true), size = 13, largest = 1 } = {}) {
  const side = 5 + 7 * Math.min(1, Math.abs(value) / largest);
  const up = value > 0 ? -1 : 1;
  const base = y - (up * side) / 2;
  const corners = [[x - side, base], [x, base], [x - side / 2, base + up * side]];
  return [short(value) === "0" ? null : polygon(corners, "gradient"), slope(x + 5, y, words, "start", size)];
}

/** A row of numbers or words in the shape of its role. */
export function cells(x, y, values, role = "plain", { cell = 46, height = 34, size = 15 } = {}) {
  const left = x - (cell * values.length) / 2;
  const edge = (i) => segment([left + i * cell, y - height / 2 + 4], [left + i * cell, y + height / 2 - 4]);
  const inside = (value, i) => text(left + (i + 0.5) * cell, y, typeof value === "number" ? short(value) : value, { size });
  return [outline(x, y, cell * values.length, height, role), values.map((_, i) => i > 0 && edge(i)), values.map(inside)];
}

/** The outline of a role: rounded for a query, cut corners for a key, square for the others. */
export function outline(x, y, width, height, role, filled = 0.13) {
  if (role !== "key") return rectangle(x, y, width, height, role, { filled, outlined: true, radius: { query: 15, value: 0 }[role] ?? 4 });
  const corners = [[-1, -1], [1, -1], [1, 1], [-1, 1]].flatMap(([right, down]) => {
    const two = [[width / 2, height / 2 - 9], [width / 2 - 9, height / 2]].map(([a, b]) => [x + right * a, y + down * b]);
    return right === down ? two : two.reverse();
  });
  return polygon(corners, role, { filled, outlined: true });
}

export function rectangle(x, y, width, height, role, { filled = 0.13, outlined = false, dashed = false, radius = 0 } = {}) {
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
  return { fill: `var(--${role})`, "fill-opacity": filled, stroke: outlined ? `var(--${role})` : null, "stroke-width": 1.6 };
}

/** A weight from 0 to 1: the filled part of an upright bar. */
export function bar(x, y, share, { width = 48, height = 80 } = {}) {
  const part = rectangle(x, y + ((1 - share) * height) / 2, width, share * height, "ink", { filled: 0.78 });
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
  return stroke(`M${x} ${y}C${x} ${middle} ${toX} ${middle} ${toX} ${toY}`, role, Math.max(0.6, 12 * weight), { opacity: 0.55 });
}

export function arrow([x, y], [toX, toY], role = "soft", width = 1.6) {
  const length = Math.hypot(toX - x, toY - y) || 1;
  const [dx, dy] = [(toX - x) / length, (toY - y) / length];
  const base = [toX - 8 * dx, toY - 8 * dy];
  const wings = [1, -1].map((side) => [base[0] - 4 * side * dy, base[1] + 4 * side * dx]);
  return [line([[x, y], base], role, width), polygon([[toX, toY], ...wings], role)];
}

function stroke(d, role, width, { dashed = false, opacity = null }) {
  const look = { stroke: `var(--${role})`, "stroke-width": width, "stroke-opacity": opacity };
  return s("path", { d, fill: "none", ...look, "stroke-dasharray": dashed ? "5 4" : null });
}

/** The point on a circle at an angle; 0 is to the right, and a quarter turn is above. */
export const around = (x, y, radius, angle) => [x + radius * Math.cos(angle), y - radius * Math.sin(angle)];

/** A dial with hands, each { angle, role }. */
export function dial(x, y, radius, hands) {
  const look = { filled: 0.04, outlined: true };
  const middle = segment([x - radius, y], [x + radius, y], "line", 1);
  return [circle(x, y, radius, "plain", look), middle, hands.map(({ angle, role }) => arrow([x, y], around(x, y, radius, angle), role, 2))];
}

/** The part of a circle between two hands, at most once around. */
export function arc(x, y, radius, from, to) {
  const once = Math.max(-2 * Math.PI, Math.min(2 * Math.PI, to - from));
  return line(Array.from({ length: 49 }, (_, i) => around(x, y, radius, from + (i / 48) * once)), "forward", 2.5);
}

export const degrees = (angle) => Math.round((angle * 180) / Math.PI);

/** Moves the numbers of `shown` to those of `state` within 0.3 s, or at once for those who want no motion. */
export function mover(state, shown, redraw) {
  let frame = 0;
  const move = () => {
    cancelAnimationFrame(frame);
    const from = { ...shown };
    const start = performance.now();
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const next = (now) => {
      const share = isStill ? 1 : Math.min(1, (now - start) / 300);
      for (const key of Object.keys(state)) shown[key] = from[key] + share * (state[key] - from[key]);
      redraw();
      if (share < 1) frame = requestAnimationFrame(next);
    };
    next(start);
  };
  move.end = () => cancelAnimationFrame(frame);
  return move;
}
