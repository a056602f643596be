/** The lookup of lesson 04: one query, three words, a blend of their values; forward and backward. */
import { fitted, h, range } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { arrow, bar, cells, gradient, line, pickOne, pickable } from "./parts.js";
import { picture, rectangle, segment, short, text, thread } from "./parts.js";

const WORDS = ["the", "street", "animal"];
export const QUERIES = [
  ["it", [Math.SQRT2, 0]],
  ["tired", [0, Math.SQRT2 * Math.LN2]],
];
export const KEYS = [
  [0, 1],
  [Math.LN2, 0],
  [Math.log(5), 1],
];
export const VALUES = [
  [1, 0],
  [0, 1],
  [2, 2],
];

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
/** A list of numbers times one number each, added up: [w0·v0 + w1·v1 + …] */
const blend = (weights, vectors) =>
  vectors[0].map((_, i) =>
    dot(
      weights,
      vectors.map((vector) => vector[i]),
    ),
  );

/** One query (d), keys (S × d) and values (S × n) -> scores (S), weights (S), answer (n). */
export function lookup(query, keys, values) {
  const scores = keys.map((key) => dot(query, key) / Math.sqrt(query.length));
  const weights = Array.from(softmax(Float32Array.from(scores)));
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
    dkeys: dscores.map((slope) => query.map((x) => (slope * x) / root)),
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
  const total = scores.reduce((sum, score) => sum + Math.exp(score), 0);
  return {
    total: short(total),
    scores: scores.map((score, i) => (isWhole && whole[i] > 1 ? `ln ${whole[i]}` : short(score))),
    weights: weights.map((weight, i) => (isWhole ? `${whole[i]}/${Math.round(total)}` : short(weight))),
  };
}

const pair = (vector, sign = false) => `(${vector.map((x) => short(x, sign)).join(", ")})`;

function mount(root, tell) {
  const keys = KEYS.map((key) => [...key]);
  const values = VALUES.map((value) => [...value]);
  let asking = 0;
  let word = 2;
  let isBackward = false;
  let found;

  const drawing = fitted((width) =>
    draw(width, { ...found, name: QUERIES[asking][0], keys, values, word, isBackward, pick }),
  );
  const byHand = h("p", { class: "by-hand" });
  const sliders = h("div", { class: "controls" });
  const queries = pickOne({
    label: "Query of",
    options: QUERIES.map(([name]) => name),
    role: "query",
    onpick: (i) => ((asking = i), setSliders(), update()),
  });
  const picked = pickOne({ label: "Word", options: WORDS, selected: word, role: "key", onpick: pick });
  const ways = pickOne({
    label: "Show",
    options: ["forward", "backward"],
    onpick: (i) => ((isBackward = i === 1), update()),
  });
  root.append(h("div", { class: "controls" }, queries, picked, ways), drawing, byHand, sliders);

  function pick(i) {
    word = i;
    picked.set(i);
    setSliders();
    update();
  }

  function setSliders() {
    const query = QUERIES[asking][1];
    const slider = (name, [min, max, step], value, onmove) =>
      range({
        label: `“${WORDS[word]}”: ${name}`,
        min,
        max,
        step,
        value,
        show: (x) => short(Number(x)),
        oninput: (x) => (onmove(x), update()),
      });
    const score = lookup(query, keys, values).scores[word];
    sliders.replaceChildren(
      slider("score (by its key)", [-2, 4, 0.001], score, (x) => (keys[word] = keyFor(x, query, keys[word]))),
      slider("value, 1st number", [-3, 3, 0.1], values[word][0], (x) => (values[word][0] = x)),
      slider("value, 2nd number", [-3, 3, 0.1], values[word][1], (x) => (values[word][1] = x)),
    );
  }

  function update() {
    const [name, query] = QUERIES[asking];
    const forward = lookup(query, keys, values);
    const back = lookupBackward([1, 0], query, keys, values, forward.weights);
    found = { query, ...forward, back, text: written(forward.scores, forward.weights) };
    drawing.redraw();
    const { scores, weights, answer, text } = found;
    const products = query.map((x, i) => `${short(x)} · ${short(keys[word][i])}`).join(" + ");
    byHand.textContent = isBackward
      ? `${WORDS[word]}: weight × (offer − average) = ${text.weights[word]} · (${short(back.offers[word])} − ${short(back.average)}) = ${short(back.dscores[word], true)}`
      : `${WORDS[word]}: the score is (${products}) / √2 = ${short(scores[word])}, its exponential ${short(Math.exp(scores[word]))}, and the weight ${short(Math.exp(scores[word]))} / ${text.total} = ${short(weights[word])}`;
    if (isBackward) {
      const rising = WORDS.filter((_, i) => back.dscores[i] > 5e-4);
      const offers = `offer${rising.length === 1 ? "s" : ""} more than the average, ${short(back.average)}: an offer is the first number of a value`;
      const cause = rising.length
        ? [
            `a larger score of `,
            h("em", {}, rising.join(" or ")),
            ` makes it grow, because only ${rising.length === 1 ? "this word" : "these words"} ${offers}.`,
          ]
        : ["no score can make it grow."];
      tell([`The first number of the answer is ${short(answer[0])}: `, ...cause]);
    } else {
      const largest = Math.max(...weights);
      const best = WORDS.filter((_, i) => weights[i] > largest - 1e-6);
      tell([
        "The largest weight of “",
        name,
        "” is ",
        text.weights[weights.indexOf(largest)],
        ", on ",
        h("em", {}, best.join(" and ")),
        ", and the answer is ",
        pair(answer),
        ".",
      ]);
    }
  }

  setSliders();
  update();
}

/** The picture of the lesson. In a narrow one, the names of the steps stand above their rows and not beside them. */
function draw(
  width,
  { query, name, keys, values, scores, weights, answer, back, text: shown, word, isBackward, pick },
) {
  const isWide = width >= 640;
  const left = isWide ? 150 : 0;
  const step = (width - left) / WORDS.length;
  const column = (i) => left + (i + 0.5) * step;
  const cell = Math.min(54, (step - 10) / 2);
  const size = cell < 46 ? 13 : 15;
  const y = isWide
    ? { ask: 66, word: 16, key: 66, score: 138, weight: 226, value: 348, answer: 460, height: 500 }
    : { ask: 36, word: 92, key: 130, score: 220, weight: 336, value: 460, answer: 560, height: 598 };
  const ask = isWide ? 64 : width / 2 - 24;
  const slope = (x, at, words, anchor = "middle") =>
    text(x, at, words, { role: "gradient", size: 13, italic: true, anchor });

  const steps = [
    [isWide ? y.score : y.score - 30, "1  compare", "score = q · k / √2"],
    [isWide ? y.weight : y.weight - 72, "2  softmax", `weight = e^{score} / ${shown.total}`],
    [isWide ? y.value : y.value - (isBackward ? 48 : 36), "3  blend", "weights × values"],
  ].map(([at, title, rule]) => [
    text(0, at, title, { bold: true, anchor: "start" }),
    isWide
      ? text(16, at + 20, rule, { role: "soft", size: 13, anchor: "start" })
      : text(width, at, rule, { role: "soft", size: 13, anchor: "end" }),
  ]);

  const columns = WORDS.map((label, i) => {
    const x = column(i);
    const top = y.word - 16;
    const bottom = y.value + 28;
    const backward = () => [
      isWide
        ? gradient(x + 16, y.score, back.dscores[i], { size: 14, largest: 0.4 })
        : gradient(x - 14, y.score + 20, back.dscores[i], { size: 13, largest: 0.4 }),
      slope(isWide ? x + 8 : x, y.key + 28, pair(back.dkeys[i], true), isWide ? "start" : "middle"),
      isWide
        ? gradient(x + 22, y.weight, back.offers[i], { words: `offer ${short(back.offers[i])}`, size: 14, largest: 2 })
        : slope(x, y.weight - 50, `offer ${short(back.offers[i])}`),
      slope(x, y.value - 28, pair(back.dvalues[i], true)),
    ];
    const beside = isBackward && isWide;
    return pickable(
      () => pick(i),
      rectangle(x, (top + bottom) / 2, step - 2, bottom - top, "soft", { filled: i === word ? 0.1 : 0, radius: 8 }),
      text(x, y.word, label, { bold: true }),
      isWide ? text(x, y.key - 28, "key", { role: "soft", size: 13 }) : null,
      isWide
        ? elbow([ask, y.key + 17], y.key + 40, [x - 12, y.key + 54])
        : elbow([ask, y.ask + 17], y.ask + 34, [x, y.ask + 44]),
      isWide ? segment([x, y.key + 17], [x, y.key + 54], "key") : null,
      cells(x, y.key, keys[i], "key", { cell, size }),
      text(beside ? x - 24 : x, y.score, shown.scores[i], { size }),
      bar(beside ? x - 24 : x, y.weight, weights[i], { width: Math.min(48, step / 2) }),
      text(beside ? x - 24 : x, y.weight + 53, shown.weights[i], { role: "soft", size: 13 }),
      cells(x, y.value, values[i], "value", { cell, size }),
      thread([x, y.value + 17], [column(1), y.answer - 17], weights[i]),
      isBackward ? backward() : null,
    );
  });

  const question = isWide && [
    text(16, y.weight + 46, `average offer ${short(back.average)}`, {
      role: "gradient",
      size: 14,
      anchor: "start",
      italic: true,
    }),
    ["How does this", "number grow?"].map((words, i) =>
      text(0, y.answer - 14 + 20 * i, words, { role: "gradient", size: 14, anchor: "start", italic: true }),
    ),
    arrow([98, y.answer - 4], [column(1) - cell - 4, y.answer], "gradient"),
  ];
  const label =
    `Query of ${name} ${pair(query)}. ` +
    WORDS.map(
      (word, i) =>
        `${word}: score ${short(scores[i])}, weight ${short(weights[i])}, value ${pair(values[i])}${isBackward ? `, gradient of the score ${short(back.dscores[i], true)}` : ""}. `,
    ).join("") +
    `Answer ${pair(answer)}.`;
  return picture(
    width,
    y.height,
    label,
    columns,
    steps,
    text(ask, y.ask - 28, `query of “${name}”`, { role: "soft", size: 13 }),
    cells(ask, y.ask, query, "query", { cell, size }),
    isBackward
      ? slope(isWide ? ask + 6 : ask + cell + 6, isWide ? y.ask + 28 : y.ask, pair(back.dquery, true), "start")
      : null,
    cells(column(1), y.answer, answer, "value", { cell, size }),
    text(column(1), y.answer + 29, "answer", { role: "soft", size: 13 }),
    isBackward ? question : null,
  );
}

/** The line from the query to a word: down, across at the height `turn`, and down again. */
function elbow([x, y], turn, [toX, toY]) {
  const points = [x, y, x, turn, toX, turn, toX, toY];
  return line(
    [0, 2, 4, 6].map((i) => points.slice(i, i + 2)),
    "query",
  );
}

export const softLookupWidget = { id: "soft_lookup", title: "A soft lookup", mount };
