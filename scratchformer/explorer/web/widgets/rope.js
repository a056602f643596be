/** Lesson 23: RoPE turns a query and a key by their positions; their score depends only on the distance. */
import { fitted, h, plot } from "../dom.js";
import { arc, around, cells, controlsOf, dial, dot, hundredths, mover, note, picture, staying, text } from "./parts.js";

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
  const distance = slide("distance", "Query further right by", 0, FURTHEST);
  const given = `Both pairs of the query are (${QUERY.join(", ")}), and both of the key (${KEY.join(", ")}), before they are turned.`;
  const key = slide("key", "Key at position", 0, FURTHEST);
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
  const { key, distance } = state;
  const said = products(key + distance, key).map((product, i) => `${PAIRS[i].name}: dot product ${hundredths(product)}.`).join(" ");
  return h("div", {}, picture(width, y.product + 20, said, pairs), drawProducts(width, state));
}

/** The product of each pair at all distances, and where we are. */
function drawProducts(width, { distance }) {
  const steps = Array.from({ length: 5 * FURTHEST + 1 }, (_, i) => i / 5);
  const series = PAIRS.map(({ name, role }, i) => ({ name, role, points: steps.map((at) => [at, products(at, 0)[i]]) }));
  series.push({ name: `distance ${distance}`, role: "ink", points: [-25, 25].map((product) => [distance, product]) });
  return plot({ label: "Products by distance", width, height: 180, x: { label: "distance" }, y: { label: "product" }, series });
}

export const ropeWidget = { id: "rope", title: "Turned queries and keys", mount };
