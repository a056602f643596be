/** Lesson 09: a position as two hands; the dot product of two positions depends only on their distance. */
import { fitted, h, s } from "../dom.js";
import { arc, around, cells, controlsOf, degrees, dial, dot, line, mover, note, picture } from "./parts.js";
import { rectangle, segment, short, staying, sum, text } from "./parts.js";

const FURTHEST = 8;
const HANDS_IN_TABLE = 8;
const TABLE =
  "Framed: the four numbers of both positions. In the table, six more hands follow, each half as fast as the one before. " +
  "Blue is positive, orange negative.";
/** How far a hand turns from one position to the next, in radians: a quarter turn, and each hand half of the one before. */
const speed = (hand) => Math.PI / 2 / 2 ** hand;

/** The height and the width of each hand at a position: [sin, cos, sin, cos, …]. */
export function positionVector(position, hands = 2) {
  return Array.from({ length: hands }, (_, i) => [Math.sin(speed(i) * position), Math.cos(speed(i) * position)]).flat();
}

/** The dot product of two position vectors. */
export function similarity(one, other) {
  return dot(positionVector(one), positionVector(other));
}

function mount(root, tell) {
  const state = { first: 1, distance: 3 };
  const shown = { ...state };
  const drawing = fitted((width) => draw(width, state, shown));
  const move = mover(state, shown, drawing.redraw);
  const { slide } = controlsOf(state, update);
  const first = slide("first", "First position", 0, FURTHEST);
  const distance = slide("distance", "Distance", 0, FURTHEST);
  root.append(staying(first, distance), drawing, h("p", { class: "label" }, TABLE));

  function update() {
    const { first, distance } = state;
    const second = first + distance;
    const result = short(similarity(first, second));
    const turns = [0, 1].map((hand) => degrees(speed(hand) * distance));
    const cosines = `cos ${turns[0]}° + cos ${turns[1]}° = ${result}`;
    const both = distance ? `positions ${first} and ${second}` : `position ${first} and itself`;
    const others = distance ? `any two positions that are ${distance} apart` : "every position and itself";
    tell(`The dot product of ${both} is ${cosines}, and so it is for ${others}.`);
    move();
  }

  update();
  return move.end;
}

/** Both positions with their hands and numbers, the angles between them, the dot products with all positions, and the table. */
function draw(width, state, shown) {
  const isWide = width >= 560;
  const chosen = [state.first, state.first + state.distance];
  const names = isWide ? 92 : 82;
  const step = isWide ? Math.min(100, (width - 340) / 3) : (width - names) / 3;
  const column = (i) => names + (i + 0.5) * step;
  const vectors = chosen.map((position) => positionVector(position));
  const below = s("g", { transform: "translate(0 150)" }, drawHands({ isWide, names, step, column, chosen, shown, vectors }));
  const place = isWide ? [column(3) - 8, 150, width - column(3) + 8, 384] : [0, 496, width, 150];
  const label = chosen.map((position, i) => `Position ${position}: ${vectors[i].map((x) => short(x)).join(", ")}.`);
  const table = drawTable(...place, chosen, shown);
  return picture(width, isWide ? 546 : 650, label.join(" "), drawBars(width, isWide, chosen, shown), below, table);
}

function drawHands({ isWide, names, step, column, chosen, shown, vectors }) {
  const positions = [shown.first, shown.first + shown.distance];
  const radius = isWide ? Math.min(34, step / 2 - 6) : 28;
  const dials = isWide ? [62, 158] : [54, 132];
  const [top, high] = isWide ? [252, 32] : [218, 27];
  const rows = [0, 1, 2, 3].map((row) => top + high * row);
  const end = rows[3] + high + 4;
  const name = (y, words, size = 13) => note(names - 12, y, words, "end", size);
  const products = vectors[0].map((x, i) => x * vectors[1][i]);
  const hands = dials.map((y, hand) => {
    const angles = positions.map((position) => speed(hand) * position);
    const turn = degrees(speed(hand) * (chosen[1] - chosen[0]));
    const tips = angles.map((angle, i) => around(column(i), y, radius, angle));
    const look = angles.map((angle) => ({ angle, role: "ink" }));
    return [
      text(names - 12, y - 10, ["fast hand", "slow hand"][hand], { anchor: "end", size: isWide ? 15 : 13 }),
      name(y + 10, ["1/4 turn", "1/8 turn"][hand]),
      tips.map(([x, tip]) => Math.abs(tip - y) > 1 && line([[x, y], [x, tip]], "forward", 5)),
      look.map((one, i) => dial(column(i), y, radius, [one])),
      dial(column(2), y, radius, look),
      arc(column(2), y, radius / 2.4, ...angles),
      text(column(2), y + radius + 10, `${turn}°`, { size: 13 }),
    ];
  });
  return [
    text(names - 12, 12, "position", { bold: true, anchor: "end" }),
    chosen.map((position, i) => text(column(i), 12, position, { bold: true })),
    note(column(2), 12, "angle"),
    hands,
    ["height, fast", "width, fast", "height, slow", "width, slow"].map((words, i) => name(rows[i], words, 12)),
    vectors.map((vector, i) =>
      vector.map((x, row) => cells(column(i), rows[row], [x], "forward", { cell: Math.min(76, step - 8), height: high, size: 14 })),
    ),
    products.map((x, row) => text(column(2), rows[row], row ? `${x < -5e-4 ? "−" : "+"} ${short(Math.abs(x))}` : short(x), { size: 14 })),
    note(column(2), top - high + 4, "product"),
    segment([column(2) - 32, end - 17], [column(2) + 32, end - 17], "soft", 1.2),
    text(column(2) - 42, end, "dot product", { bold: true, anchor: "end" }),
    text(column(2), end, short(sum(products)), { bold: true }),
  ];
}

/** The dot products of the first position with all. */
function drawBars(width, isWide, chosen, shown) {
  const [zero, unit] = [80, 26];
  const each = width / (2 * FURTHEST + 1);
  const bars = Array.from({ length: 2 * FURTHEST + 1 }, (_, position) => {
    const score = similarity(shown.first, position);
    const x = (position + 0.5) * each;
    const isOne = chosen.includes(position);
    const look = position === chosen[1] ? ["forward", { filled: 1 }] : ["ink", { filled: 0.35 }];
    return [
      rectangle(x, zero - (unit * score) / 2, each * 0.6, Math.abs(unit * score), ...look),
      (isWide || isOne || position % 4 === 0) && text(x, zero + 42, position, { bold: isOne, role: isOne ? "ink" : "soft", size: 13 }),
    ];
  });
  const title = note(0, 12, `dot product of position ${chosen[0]} with positions 0 to ${2 * FURTHEST}`, "start");
  return [title, segment([0, zero], [width, zero]), bars];
}

/** The vectors of all positions as a heat map, a row for each, with a frame around the four numbers of the chosen ones. */
function drawTable(x, y, width, height, chosen, shown) {
  const [left, top, bottom] = [x + 26, y + 24, y + height];
  const [across, down] = [(x + width - left - 2) / (2 * HANDS_IN_TABLE), (bottom - top) / (2 * FURTHEST + 1)];
  const middle = (position) => top + (position + 0.5) * down;
  const colour = (value) => (value < 0 ? "negative" : "positive");
  const rows = Array.from({ length: 2 * FURTHEST + 1 }, (_, position) =>
    positionVector(position, HANDS_IN_TABLE).map((value, i) =>
      rectangle(left + (i + 0.5) * across, middle(position), across, down, colour(value), { filled: Math.abs(value) }),
    ),
  );
  const [first, second] = chosen;
  const places = [middle(first), first === second ? middle(first) : Math.max(middle(second), middle(first) + 12)]; // don't overlap
  const labels = chosen.map((position, i) => text(left - 6, places[i], position, { size: 12, anchor: "end", bold: true }));
  const frame = (at) => rectangle(left + 2 * across, middle(at), 4 * across, down, "ink", { filled: 0, outlined: true });
  const names = ["fast", "slow", "slower and slower →"];
  const heads = names.map((words, hand) => note(left + 2 * hand * across + 3, y + 12, words, "start", 12));
  return [heads, labels, rows, frame(shown.first), frame(shown.first + shown.distance)];
}

export const positionsWidget = { id: "positions", title: "Two hands on a dial", mount };
