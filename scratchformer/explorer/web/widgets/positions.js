/** Lesson 09: a position as two hands; the dot product of two positions depends only on their distance. */
import { fitted, h, range, s } from "../dom.js";
import { arrow, cells, circle, line, picture, rectangle, segment, short, text } from "./parts.js";

/** How far the fast and the slow hand turn from one position to the next, in radians. */
const SPEEDS = [Math.PI / 2, Math.PI / 4];
const FURTHEST = 8;
const degrees = (angle) => Math.round((angle * 180) / Math.PI);
/** The angle between two hands, at most 180°, if one has turned so far from the other. */
const apart = (turn) => Math.min(turn % 360, 360 - (turn % 360));

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
  const drawing = fitted((width) => draw(width, state, shown));
  const byHand = h("p", { class: "by-hand" });
  const slider = (label, key, max) =>
    range({ label, min: 0, max, value: state[key], oninput: (x) => ((state[key] = x), update()) });
  root.append(
    h(
      "div",
      { class: "controls" },
      slider("Move both: first position", "first", FURTHEST),
      slider("Distance to the second", "distance", FURTHEST),
    ),
    drawing,
    byHand,
  );

  function update() {
    const second = state.first + state.distance;
    const [one, other] = [state.first, second].map(positionVector);
    const product = (i) => `${short(one[i])} · ${other[i] < -1e-9 ? `(${short(other[i])})` : short(other[i])}`;
    byHand.textContent = `${[0, 1, 2, 3].map(product).join(" + ")} = ${short(similarity(state.first, second))}`;
    const [fast, slow] = SPEEDS.map((speed) => degrees(speed * state.distance));
    const far = [fast, slow].filter((turn) => apart(turn) !== turn);
    tell(
      `The dot product of positions ${state.first} and ${second} is cos ${fast}° + cos ${slow}° = ${short(similarity(state.first, second))}, and so it is for any two positions that are ${state.distance} apart.${far.length ? ` A hand that has turned by ${far.map((turn) => `${turn}° is ${apart(turn)}° away`).join(", by ")}: the cosine is the same.` : ""}`,
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

  update();
  return () => cancelAnimationFrame(frame);
}

/** A dial with a hand at each angle, which points to the right at 0 and upwards at a quarter turn. */
function dial(x, y, radius, angles) {
  const tips = angles.map((angle) => [x + radius * Math.cos(angle), y - radius * Math.sin(angle)]);
  return [
    circle(x, y, radius, "plain", { filled: 0.04, outlined: true }),
    segment([x - radius, y], [x + radius, y], "line", 1),
    tips.map((tip) => arrow([x, y], tip, "ink", 2)),
  ];
}

/** The height of a hand as a thick line. */
function heightOf(x, y, radius, angle) {
  const tip = [x + radius * Math.cos(angle), y - radius * Math.sin(angle)];
  return Math.abs(tip[1] - y) > 1 ? line([[tip[0], y], tip], "forward", 5) : null;
}

/** The part of a circle from one angle to the next, which lies between two hands. */
function arc(x, y, radius, from, to) {
  const points = Array.from({ length: 49 }, (_, i) => from + (i / 48) * Math.min(to - from, 2 * Math.PI));
  return line(
    points.map((angle) => [x + radius * Math.cos(angle), y - radius * Math.sin(angle)]),
    "forward",
    2.5,
  );
}

function angleText(turn) {
  return apart(turn) === turn ? `${turn}°` : `${turn}°: ${apart(turn)}° apart`;
}

/** Both positions with their hands and numbers, the angles between them, and the dot products with all positions. */
function draw(width, state, shown) {
  const isWide = width >= 560;
  const positions = [shown.first, shown.first + shown.distance];
  const names = isWide ? 120 : 82;
  const step = Math.min(160, (width - names) / 3);
  const column = (i) => names + (i + 0.5) * step;
  const radius = Math.min(34, step / 2 - 6);
  const dials = [66, 156];
  const rows = [232, 266, 300, 334];
  const vectors = positions.map(positionVector);
  const products = vectors[0].map((x, i) => x * vectors[1][i]);
  const name = (y, words, size = 13) => text(names - 12, y, words, { role: "soft", size, anchor: "end" });

  const hands = [
    text(names - 12, 12, "position", { bold: true, anchor: "end" }),
    [state.first, state.first + state.distance].map((position, i) => text(column(i), 12, position, { bold: true })),
    text(column(2), 12, "angle", { role: "soft", size: 13 }),
    SPEEDS.map((speed, hand) => {
      const angles = positions.map((position) => speed * position);
      return [
        text(names - 12, dials[hand] - 10, ["fast hand", "slow hand"][hand], { anchor: "end", size: isWide ? 15 : 13 }),
        name(dials[hand] + 10, ["1/4 turn", "1/8 turn"][hand]),
        angles.map((angle, i) => [
          heightOf(column(i), dials[hand], radius, angle),
          dial(column(i), dials[hand], radius, [angle]),
        ]),
        dial(column(2), dials[hand], radius, angles),
        arc(column(2), dials[hand], radius / 2.4, ...angles),
        text(column(2), dials[hand] + radius + 11, angleText(degrees(speed * state.distance)), { size: 13 }),
      ];
    }),
    ["height, fast", "width, fast", "height, slow", "width, slow"].map((words, i) =>
      name(rows[i], words, isWide ? 13 : 12),
    ),
    vectors.map((vector, i) =>
      vector.map((x, row) =>
        cells(column(i), rows[row], [x], "forward", { cell: Math.min(76, step - 8), height: 34, size: 14 }),
      ),
    ),
    products.map((x, row) =>
      text(column(2), rows[row], row ? `${short(x)[0] === "−" ? "−" : "+"} ${short(Math.abs(x))}` : short(x), {
        size: 14,
      }),
    ),
    segment([column(2) - 32, 354], [column(2) + 32, 354], "soft", 1.2),
    text(column(2) - 42, 372, "dot product", { bold: true, anchor: "end" }),
    text(column(2), 372, short(products.reduce((a, b) => a + b)), { bold: true }),
  ];

  const [zero, unit] = [96, 32];
  const each = width / (2 * FURTHEST + 1);
  const bars = Array.from({ length: 2 * FURTHEST + 1 }, (_, position) => {
    const score = similarity(shown.first, position);
    const x = (position + 0.5) * each;
    const isSecond = position === state.first + state.distance;
    const isOne = isSecond || position === state.first;
    return [
      rectangle(x, zero - (unit * score) / 2, each * 0.6, Math.abs(unit * score), isSecond ? "forward" : "ink", {
        filled: isSecond ? 1 : 0.35,
      }),
      isWide || isOne || position % 4 === 0
        ? text(x, zero + 50, position, { bold: isOne, role: isOne ? "ink" : "soft", size: 13 })
        : null,
    ];
  });
  const title = text(0, 12, `dot product of position ${state.first} with positions 0 to ${2 * FURTHEST}`, {
    role: "soft",
    size: 13,
    anchor: "start",
  });
  const label = positions
    .map((_, i) => `Position ${state.first + i * state.distance}: ${vectors[i].map((x) => short(x)).join(", ")}.`)
    .join(" ");
  const below = s("g", { transform: "translate(0 172)" }, hands);
  return picture(width, 560, label, title, segment([0, zero], [width, zero]), bars, below);
}

export const positionsWidget = { id: "positions", title: "Two hands on a dial", mount };
