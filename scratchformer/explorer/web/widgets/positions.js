/** Lesson 09: a position as two hands; the dot product of two positions depends only on their distance. */
import { h, range } from "../dom.js";
import { arrow, cells, circle, fitted, line, picture, rectangle, short, text } from "./parts.js";

/** How far the fast and the slow hand turn from one position to the next, in radians. */
export const SPEEDS = [Math.PI / 2, Math.PI / 4];
const FURTHEST = 8;

/** The height and the width of each hand at a position: [sin, cos, sin, cos]. */
export function positionVector(position) {
  return SPEEDS.flatMap((speed) => [Math.sin(speed * position), Math.cos(speed * position)]);
}

/** The dot product of two position vectors. */
export function similarity(one, other) {
  const second = positionVector(other);
  return positionVector(one).reduce((sum, x, i) => sum + x * second[i], 0);
}

function mount(root, tell) {
  const state = { first: 1, distance: 3 };
  let shown = { ...state };
  let frame = 0;
  const drawing = fitted(draw);
  const byHand = h("p", { class: "by-hand" });
  const slider = (label, key, max) => range({ label, min: 0, max, value: state[key], oninput: (x) => ((state[key] = x), update()) });
  root.append(h("div", { class: "controls" }, slider("Move both: first position", "first", FURTHEST), slider("Distance to the second", "distance", FURTHEST)), drawing, byHand);

  function update() {
    const second = state.first + state.distance;
    const [one, other] = [state.first, second].map(positionVector);
    const product = (i) => `${short(one[i])} · ${other[i] < -1e-9 ? `(${short(other[i])})` : short(other[i])}`;
    byHand.textContent = `${[0, 1, 2, 3].map(product).join(" + ")} = ${short(similarity(state.first, second))}`;
    const turns = SPEEDS.map((speed) => Math.round((speed * state.distance * 180) / Math.PI));
    tell(
      `Positions ${state.first} and ${second} are ${state.distance} apart: between their hands lie ${turns[0]}° and ${turns[1]}°, and the dot product is cos ${turns[0]}° + cos ${turns[1]}° = ${short(similarity(state.first, second))}, wherever you move both.`,
    );
    turn();
  }

  /** The hands turn to where they should be; at once for those who want no motion. */
  function turn() {
    cancelAnimationFrame(frame);
    const from = { ...shown };
    const start = performance.now();
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const next = (now) => {
      const share = isStill ? 1 : Math.min(1, (now - start) / 300);
      for (const key of Object.keys(state)) shown[key] = from[key] + share * (state[key] - from[key]);
      drawing.redraw();
      if (share < 1) frame = requestAnimationFrame(next);
    };
    next(start);
  }

  function dial(x, y, angle, radius) {
    const tip = [x + radius * Math.cos(angle), y - radius * Math.sin(angle)];
    return [
      circle(x, y, radius, "plain", { filled: 0.04, outlined: true }),
      line([[x - radius, y], [x + radius, y]], "line", 1),
      Math.abs(tip[1] - y) > 1 ? line([[tip[0], y], tip], "forward", 5) : null,
      arrow([x, y], tip, "ink", 2),
    ];
  }

  function draw(width) {
    const isWide = width >= 560;
    const [first, second] = [shown.first, shown.first + shown.distance];
    const names = isWide ? 110 : 82;
    const step = Math.min(110, (width - names) / 3);
    const column = (i) => names + (i + 0.5) * step;
    const rows = [232, 270, 308, 346];
    const radius = Math.min(32, step / 2 - 6);
    const vectors = [first, second].map(positionVector);
    const products = vectors[0].map((x, i) => x * vectors[1][i]);
    const parts = [
      text(names - 14, 14, "position", { bold: true, anchor: "end" }),
      [state.first, state.first + state.distance].map((position, i) => text(column(i), 14, position, { bold: true })),
      text(column(2), 196, "products", { role: "soft", size: 13 }),
      ["fast hand", "slow hand"].map((name, i) => [text(names - 14, 60 + 86 * i, name, { anchor: "end", size: isWide ? 15 : 13 }), text(names - 14, 80 + 86 * i, ["1/4 turn", "1/8 turn"][i], { role: "soft", size: 13, anchor: "end" })]),
      [first, second].map((position, i) => SPEEDS.map((speed, hand) => dial(column(i), 70 + 86 * hand, speed * position, radius))),
      SPEEDS.map((speed, hand) => text(column(2), 70 + 86 * hand, `${Math.round((speed * state.distance * 180) / Math.PI)}° apart`, { role: "soft", size: 13 })),
      ["height, fast", "width, fast", "height, slow", "width, slow"].map((name, i) => text(names - 14, rows[i], name, { role: "soft", size: isWide ? 13 : 12, anchor: "end" })),
      vectors.map((vector, i) => vector.map((x, row) => cells(column(i), rows[row], [x], "forward", { cell: Math.min(70, step - 8), height: 38, size: 14 }))),
      products.map((x, row) => text(column(2), rows[row], short(x), { size: 14 })),
      text(column(2), 386, short(products.reduce((a, b) => a + b)), { bold: true }),
      line([[column(2) - 30, 368], [column(2) + 30, 368]], "soft", 1.2),
      text(column(2) - 40, 386, "dot product", { bold: true, anchor: "end" }),
    ];
    const count = 2 * FURTHEST + 1;
    const each = (width - 20) / count;
    const zero = 496;
    const unit = 34;
    parts.push(text(0, 424, `dot product of position ${state.first} with each position`, { role: "soft", size: 13, anchor: "start" }), line([[0, zero], [width, zero]]));
    for (let position = 0; position < count; position++) {
      const score = similarity(first, position);
      const x = 10 + (position + 0.5) * each;
      const isSecond = position === state.first + state.distance;
      parts.push(rectangle(x, zero - (unit * score) / 2, each * 0.6, Math.abs(unit * score), isSecond ? "forward" : "ink", { filled: isSecond ? 1 : 0.35 }));
      parts.push(text(x, zero + 86, position, { bold: isSecond || position === state.first, role: isSecond || position === state.first ? "ink" : "soft", size: isWide ? 14 : 11 }));
    }
    const label = `Position ${state.first}: ${vectors[0].map((x) => short(x)).join(", ")}. Position ${state.first + state.distance}: ${vectors[1].map((x) => short(x)).join(", ")}.`;
    return picture(width, 596, label, parts);
  }

  update();
  return () => cancelAnimationFrame(frame);
}

export const positionsWidget = { id: "positions", title: "Two hands on a dial", mount };
