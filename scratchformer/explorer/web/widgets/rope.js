/** Lesson 23: RoPE turns a query and a key by their positions; their score depends only on the distance. */
import { fitted, h } from "../dom.js";
import { arc, around, cells, circle, controlsOf, dial, dot, hundredths, line, mover, note } from "./parts.js";
import { picture, segment, short, staying, text } from "./parts.js";

/** Both pairs of the query and both pairs of the key, before they are turned. */
const [QUERY, KEY] = [[5, 0], [3, 4]];
const FURTHEST = 100;
const PAIRS = [
  { name: "fast pair", speed: 1, role: "forward" },
  { name: "slow pair", speed: 1 / 100, role: "value" },
];

/** A pair of numbers, turned by an angle. */
export function turned([a, b], angle) {
  return [a * Math.cos(angle) - b * Math.sin(angle), a * Math.sin(angle) + b * Math.cos(angle)];
}

/** The dot product of each pair, for a query and a key at these positions. */
export function products(query, key) {
  return PAIRS.map(({ speed }) => dot(turned(QUERY, speed * query), turned(KEY, speed * key)));
}

const angleOf = ([a, b]) => Math.atan2(b, a);

function mount(root, tell) {
  const state = { key: 1, distance: 2 };
  const shown = { ...state };
  const drawing = fitted((width) => draw(width, state, shown));
  const move = mover(state, shown, drawing.redraw);
  const { slide } = controlsOf(state, update);
  const distance = slide("distance", "Distance: the query is further right by", 0, FURTHEST);
  const given = `Both pairs of the query are (${QUERY.join(", ")}), and both of the key (${KEY.join(", ")}), before they are turned.`;
  const key = slide("key", "Move both: position of the key", 0, FURTHEST);
  root.append(h("p", { class: "label" }, given), staying(key, distance), drawing);

  function update() {
    const { key, distance } = state;
    const cents = (at) => products(at, key).map((x) => Math.round(100 * x));
    const [now, before] = [cents(key + distance), cents(key)];
    const written = (number) => hundredths(number / 100).replace(/\.00$/, "");
    const added = now.map(written).join(" + ").replace("+ −", "− ");
    const score = `${added} = ${written(now[0] + now[1])}`;
    const [fast, slow] = now.map((number, i) => written(number - before[i]));
    const standing = `The query at position ${key + distance} and the key at position ${key} have the score ${score}`;
    const changes = `At distance 0 it is 15 + 15: the fast pair has changed by ${fast}, the slow pair by ${slow}`;
    const equal = `The query and the key both stand at position ${key} and are turned by the same angle. So the score is ${score}`;
    if (distance) tell(`${standing}, and so have any two that are ${distance} apart. ${changes}.`);
    else tell(`${equal}, as if they were not turned.`);
    move();
  }

  update();
  return move.end;
}

/** A dial for each pair with its query and key, their numbers and product; below, the products at all distances. */
function draw(width, state, shown) {
  const across = width / 2;
  const radius = Math.min(78, across / 2 - 22);
  const y = { dial: 58 + radius, query: 2 * radius + 98, key: 2 * radius + 134, product: 2 * radius + 168 };
  const pairs = PAIRS.map(({ name, speed }, i) => {
    const x = (i + 0.5) * across;
    const angles = [shown.key + shown.distance, shown.key].map((position) => speed * position);
    const [query, key] = [turned(QUERY, angles[0]), turned(KEY, angles[1])];
    const [start, end] = [angleOf(query), angleOf(key)];
    const between = Math.atan2(Math.sin(end - start), Math.cos(end - start));
    const look = { cell: Math.min(58, across / 2 - 26), height: 28, size: 14 };
    const label = (words, vector) => text(...around(x, y.dial, radius + 11, angleOf(vector)), words, { size: 14, bold: true });
    const cosine = `25 cos ${((Math.abs(between) * 180) / Math.PI).toFixed(2)}°`;
    return [
      text(x, 12, name, { bold: true }),
      note(x, 30, `${i ? "1/100 rad" : "1 rad"} per position`, "middle", 12),
      dial(x, y.dial, radius, [{ angle: start, role: "query" }, { angle: end, role: "key" }]),
      arc(x, y.dial, radius / 2.6, start, start + between),
      [label("q", query), label("k", key)],
      [["q", query, "query"], ["k", key, "key"]].map(([words, vector, role]) => [
        note(x - look.cell - 12, y[role], words),
        cells(x, y[role], vector.map(hundredths), role, look),
      ]),
      text(x, y.product, `${cosine} = ${hundredths(dot(query, key))}`, { size: width < 400 ? 12 : 14 }),
    ];
  });
  return picture(width, y.product + 180, said(state), pairs, drawProducts(width, y.product + 30, state));
}

function said({ key, distance }) {
  return products(key + distance, key).map((product, i) => `${PAIRS[i].name}: dot product ${hundredths(product)}.`).join(" ");
}

/** The product of each pair at all distances, with dots at the chosen one. */
function drawProducts(width, top, { distance }) {
  const [left, right, high] = [28, width - 8, 104];
  const x = (at) => left + (at / FURTHEST) * (right - left);
  const y = (product) => top + high / 2 - (product / 25) * (high / 2);
  const steps = Array.from({ length: 5 * FURTHEST + 1 }, (_, i) => i / 5);
  return [
    [-25, 0, 25].map((product) => [
      segment([left, y(product)], [right, y(product)], "line", 1),
      note(left - 5, y(product), short(product), "end", 12),
    ]),
    PAIRS.map(({ role }, i) => line(steps.map((at) => [x(at).toFixed(1), y(products(at, 0)[i]).toFixed(1)]), role, i ? 2.5 : 1.2)),
    segment([x(distance), top - 4], [x(distance), top + high + 4], "ink", 1.2),
    products(distance, 0).map((product, i) => circle(x(distance), y(product), 5, PAIRS[i].role)),
    [0, 25, 50, 75, 100].map((at) => note(x(at), top + high + 16, at, at === 100 ? "end" : "middle", 12)),
    note((left + right) / 2, top + high + 32, "products by distance: blue fast, orange slow", "middle", 12),
  ];
}

export const ropeWidget = { id: "rope", title: "Turned queries and keys", mount };
