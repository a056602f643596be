/** The lookup of lesson 04: one query, three words, a blend of their values; forward and backward. */
import { fitted, h } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { bar, cells, controls, controlsOf, dot, gradient, line, note, pickable, picture } from "./parts.js";
import { rectangle, segment, short, slope, staying, sum, text, thread } from "./parts.js";

const WORDS = ["the", "street", "animal"];
export const QUERIES = [
  ["it", [Math.SQRT2, 0]],
  ["tired", [0, Math.SQRT2 * Math.LN2]],
];
export const KEYS = [[0, 1], [Math.LN2, 0], [Math.log(5), 1]];
export const VALUES = [[1, 0], [0, 1], [2, 2]];

/** Vectors times one number each, added up: w0·v0 + w1·v1 + … */
const blend = (weights, vectors) => vectors[0].map((_, i) => dot(weights, vectors.map((vector) => vector[i])));

/** One query (d), keys (S × d) and values (S × n) -> scores (S), weights (S), answer (n). */
export function lookup(query, keys, values) {
  const scores = keys.map((key) => dot(query, key) / Math.sqrt(query.length));
  const weights = softmax(scores);
  return { scores, weights, answer: blend(weights, values) };
}

/** The gradients of dy · answer with respect to all that went into it. `offers` are those of the weights. */
export function lookupBackward(dy, query, keys, values, weights) {
  const offers = values.map((value) => dot(dy, value));
  const average = dot(weights, offers);
  const dscores = weights.map((weight, i) => weight * (offers[i] - average));
  const root = Math.sqrt(query.length);
  return {
    offers,
    average,
    dscores,
    dquery: blend(dscores, keys).map((x) => x / root),
    dkeys: dscores.map((dscore) => query.map((x) => (dscore * x) / root)),
    dvalues: weights.map((weight) => dy.map((x) => weight * x)),
  };
}

/** The key nearest to `key` that gives the query this score. */
export function keyFor(score, query, key) {
  const further = (score * Math.sqrt(query.length) - dot(query, key)) / dot(query, query);
  return key.map((x, i) => x + further * query[i]);
}

/** How weights are written: as fractions while the exponentials are whole numbers, as in the lesson. */
function written(scores, weights) {
  const whole = scores.map((score) => Math.round(Math.exp(score)));
  const isWhole = whole.every((e, i) => e > 0 && e < 100 && Math.abs(Math.exp(scores[i]) - e) < 1e-6);
  const total = sum(scores.map(Math.exp));
  return {
    total: short(total),
    scores: scores.map((score, i) => (isWhole && whole[i] > 1 ? `ln ${whole[i]}` : short(score))),
    weights: weights.map((weight, i) => (isWhole ? `${whole[i]}/${Math.round(total)}` : short(weight))),
  };
}

/** The gradient of a score, from numbers with so many decimals that a calculator agrees. */
export function gradientByHand(weight, offer, average, fraction) {
  const slope = weight * (offer - average);
  const rounded = (places) => [weight, offer, average].map((x) => Number(x.toFixed(places)));
  const agrees = ([a, b, c]) => Math.abs(a * (b - c) - slope) < 5e-5 && short(a * (b - c)) === short(slope);
  const places = [3, 4, 5].find((places) => agrees(rounded(places))) ?? 6;
  const factor = fraction.includes("/") ? fraction : short(weight, false, places);
  return `${factor} · (${short(offer, false, places)} − ${short(average, false, places)}) = ${short(slope, true)}`;
}

const pair = (vector, sign = false) => `(${vector.map((x) => short(x, sign)).join(", ")})`;

function mount(root, tell) {
  const keys = KEYS.map((key) => [...key]);
  const values = VALUES.map((value) => [...value]);
  const state = { asking: 0, word: 2, isBackward: 0, score: 0, first: 0, second: 0 };
  let last;
  let found;
  const { pick, slide } = controlsOf(state, update);
  const word = pick("word", "Word", WORDS, "key");
  const sliders = {
    score: slide("score", "Score (by its key)", -2, 4, 0.001),
    first: slide("first", "Value, 1st number", -3, 3, 0.1),
    second: slide("second", "2nd number", -3, 3, 0.1),
  };
  const drawing = fitted((width) => draw(width, { ...found, pick: (i) => (word.set(i), (state.word = i), update()) }));
  const byHand = h("p", { class: "by-hand" });
  const query = pick("asking", "Query of", QUERIES.map(([name]) => name), "query");
  const top = controls(query, word, pick("isBackward", "Show", ["Forward", "Backward"]));
  root.append(top, staying(Object.values(sliders)), drawing, byHand);

  /** Takes over what a slider says; or, when another query or word was picked, sets the sliders to it. */
  function update() {
    const [name, query] = QUERIES[state.asking];
    const i = state.word;
    const now = `${state.asking} ${i}`;
    if (last === now) {
      keys[i] = keyFor(state.score, query, keys[i]);
      values[i] = [state.first, state.second];
    } else {
      const score = lookup(query, keys, values).scores[i];
      Object.assign(state, { score, first: values[i][0], second: values[i][1] });
      for (const [key, slider] of Object.entries(sliders)) slider.set(state[key]);
    }
    last = now;
    const { scores, weights, answer } = lookup(query, keys, values);
    const back = lookupBackward([1, 0], query, keys, values, weights);
    const shown = written(scores, weights);
    found = { word: i, isBackward: state.isBackward === 1, name, query, keys, values, scores, weights, answer, back, shown };
    drawing.redraw();
    const products = query.map((x, j) => `${short(x)} · ${short(keys[i][j])}`).join(" + ");
    const e = short(Math.exp(scores[i]));
    const rule = `the score is (${products}) / √2 = ${short(scores[i])}, its exponential ${e}`;
    byHand.textContent = state.isBackward
      ? `${WORDS[i]}: weight × (offer − average) = ${gradientByHand(weights[i], back.offers[i], back.average, shown.weights[i])}`
      : `${WORDS[i]}: ${rule}, and the weight ${e} / ${shown.total} = ${short(weights[i])}`;
    const largest = Math.max(...weights);
    const best = WORDS.filter((_, j) => weights[j] > largest - 1e-6).join(" and ");
    const rising = WORDS.filter((_, j) => back.dscores[j] > 5e-4);
    const begins = rising.map((word) => short(values[WORDS.indexOf(word)][0])).join(" and ");
    const why = rising.length === 1 ? `its value begins with ${begins}` : `their values begin with ${begins}`;
    const cause = rising.length ? `A larger score of *${rising.join(" or ")}* makes it grow: ${why}` : "No score can make it grow";
    const first = `The first number of the answer, ${short(answer[0])}, is the average of the values’ first numbers`;
    const most = `The largest weight of “${name}” is ${shown.weights[weights.indexOf(largest)]}, on *${best}*`;
    if (state.isBackward) tell(`${first}. ${cause}.`);
    else tell(`${most}, and the answer is ${pair(answer)}.`);
  }

  update();
}

/** The picture of the lesson. In a narrow one, the names of the steps stand above their rows and not beside them. */
function draw(width, { query, name, keys, values, scores, weights, answer, back, shown, word, isBackward, pick }) {
  const isWide = width >= 640;
  const left = isWide ? 150 : 0;
  const step = (width - left) / WORDS.length;
  const column = (i) => left + (i + 0.5) * step;
  const cell = Math.min(54, (step - 10) / 2);
  const look = { cell, size: cell < 46 ? 13 : 15 };
  const high = isWide ? 80 : 44;
  const y = isWide
    ? { ask: 66, word: 16, key: 66, score: 138, weight: 226, value: 348, answer: 460, height: 500 }
    : { ask: 34, word: 72, key: 104, score: 174, weight: 264, value: 364, answer: 436, height: 474 };
  const ask = isWide ? 64 : width / 2 - 24;

  const steps = [
    [isWide ? y.score : y.score - 24, "1  compare", "score = q · k / √2"],
    [isWide ? y.weight : y.weight - 50, "2  softmax", `weight = e^{score} / ${shown.total}`],
    [isWide ? y.value : y.value - 44, "3  blend", "weights × values"],
  ].map(([at, title, rule]) => [
    text(0, at, title, { bold: true, anchor: "start" }),
    isWide ? note(16, at + 20, rule, "start") : note(width, at, rule, "end"),
  ]);

  const columns = WORDS.map((label, i) => {
    const x = column(i);
    const [top, bottom] = [y.word - 16, y.value + 28];
    const [turn, end] = isWide ? [y.key + 40, [x - 12, y.key + 54]] : [y.ask + 25, [x, y.ask + 31]];
    return pickable(
      () => pick(i),
      rectangle(x, (top + bottom) / 2, step - 2, bottom - top, "soft", { filled: i === word ? 0.1 : 0, radius: 8 }),
      text(x, y.word, label, { bold: true }),
      isWide && [note(x, y.key - 28, "key"), segment([x, y.key + 17], [x, y.key + 54], "key")],
      line([[ask, y.ask + 17], [ask, turn], [end[0], turn], end], "query"),
      cells(x, y.key, keys[i], "key", look),
      text(x, y.score, shown.scores[i], { size: look.size }),
      bar(x, y.weight, weights[i], { width: Math.min(48, step / 2), height: high }),
      note(x, y.weight + high / 2 + 12, shown.weights[i]),
      cells(x, y.value, values[i], "value", look),
      thread([x, y.value + 17], [column(1), y.answer - 17], weights[i]),
      isBackward && [
        gradient(x - 14, y.score + 20, back.dscores[i], { largest: 0.4 }),
        slope(isWide ? x + 8 : x, y.key + 28, pair(back.dkeys[i], true), isWide ? "start" : "middle"),
        slope(x + (isWide ? 30 : 0), y.weight - (isWide ? 0 : high / 2 + 10), `offer ${short(back.offers[i])}`, isWide ? "start" : "middle"),
        slope(x, y.value - 25, pair(back.dvalues[i], true)),
      ],
    );
  });

  const said = WORDS.map((word, i) => {
    const slope = isBackward ? `, gradient of the score ${short(back.dscores[i], true)}` : "";
    return `${word}: score ${short(scores[i])}, weight ${short(weights[i])}, value ${pair(values[i])}${slope}. `;
  });
  return picture(
    width,
    y.height,
    `Query of ${name} ${pair(query)}. ${said.join("")}Answer ${pair(answer)}.`,
    columns,
    steps,
    note(ask, y.ask - 26, `query of “${name}”`),
    cells(ask, y.ask, query, "query", look),
    cells(column(1), y.answer, answer, "value", look),
    note(column(1), y.answer + 28, "answer"),
    isBackward && [
      slope(isWide ? ask + 6 : ask + cell + 6, isWide ? y.ask + 28 : y.ask, pair(back.dquery, true), "start"),
      slope(column(1) + cell + 8, y.answer, "(+1, 0)", "start"),
    ],
  );
}

export const softLookupWidget = { id: "soft_lookup", title: "A soft lookup", mount };
