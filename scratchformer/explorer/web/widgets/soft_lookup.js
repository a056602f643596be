/** The lookup of lesson 04: one query, three words, a blend of their values; forward and backward. */
import { h, range } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { arrow, bar, cells, fitted, gradient, line, pickOne, picture, pickable, rectangle, short, text, thread } from "./parts.js";

const WORDS = ["the", "street", "animal"];
const QUERIES = [
  ["it", [Math.SQRT2, 0]],
  ["tired", [0, Math.SQRT2 * Math.LN2]],
];
const KEYS = [[0, 1], [Math.LN2, 0], [Math.log(5), 1]];
const VALUES = [[1, 0], [0, 1], [2, 2]];

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
/** A list of numbers times one number each, added up: [w0·v0 + w1·v1 + …] */
const blend = (weights, vectors) => vectors[0].map((_, i) => dot(weights, vectors.map((vector) => vector[i])));

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

/** The exponentials, if all are whole numbers, so that weights can be written as fractions. */
function wholeExponentials(scores) {
  const found = scores.map((score) => Math.round(Math.exp(score)));
  return found.every((e, i) => e > 0 && e < 100 && Math.abs(Math.exp(scores[i]) - e) < 1e-6) ? found : null;
}

const pair = (vector, sign = false) => `(${vector.map((x) => short(x, sign)).join(", ")})`;

function mount(root, tell) {
  const keys = KEYS.map((key) => [...key]);
  const values = VALUES.map((value) => [...value]);
  let asking = 0;
  let word = 2;
  let backward = false;

  const drawing = fitted(draw);
  const byHand = h("p", { class: "by-hand" });
  const sliders = h("div", { class: "controls" });
  const queryChips = pickOne({ label: "Query of", options: QUERIES.map(([name]) => name), role: "query", onpick: (i) => ((asking = i), setSliders(), update()) });
  const wordChips = pickOne({ label: "Word", options: WORDS, selected: word, role: "key", onpick: pick });
  const way = pickOne({ label: "Show", options: ["forward", "backward"], onpick: (i) => ((backward = i === 1), update()) });
  root.append(h("div", { class: "controls" }, queryChips, wordChips, way), drawing, byHand, sliders);

  function pick(i) {
    word = i;
    wordChips.set(i);
    setSliders();
    update();
  }

  function setSliders() {
    const query = QUERIES[asking][1];
    const value = (i, which) =>
      range({ label: `Value of “${WORDS[word]}”, ${which} number`, min: -3, max: 3, step: 0.1, value: values[word][i], show: (x) => short(x), oninput: (x) => ((values[word][i] = x), update()) });
    const score = dot(query, keys[word]) / Math.SQRT2;
    sliders.replaceChildren(
      range({ label: `Score of “${WORDS[word]}”`, min: -2, max: 4, step: 0.001, value: score, show: (x) => short(x), oninput: (x) => ((keys[word] = keyFor(x, query, keys[word])), update()) }),
      value(0, "first"),
      value(1, "second"),
    );
  }

  function update() {
    drawing.redraw();
    const [name, query] = QUERIES[asking];
    const { scores, weights, answer } = lookup(query, keys, values);
    const back = lookupBackward([1, 0], query, keys, values, weights);
    const e = wholeExponentials(scores);
    const share = (i) => (e ? `${e[i]}/${e.reduce((a, b) => a + b)}` : short(weights[i]));
    const products = query.map((x, i) => `${short(x)} · ${short(keys[word][i])}`).join(" + ");
    byHand.textContent = backward
      ? `${WORDS[word]}: weight × (offer − average) = ${share(word)} · (${short(back.offers[word])} − ${short(back.average)}) = ${short(back.dscores[word], true)}`
      : `${WORDS[word]}: (${products}) / √2 = ${short(scores[word])}; e to the ${short(scores[word])} is ${short(Math.exp(scores[word]))}; divided by the sum ${short(scores.reduce((sum, z) => sum + Math.exp(z), 0))}: weight ${share(word)}`;
    if (!backward) {
      const best = weights.indexOf(Math.max(...weights));
      tell(["“", name, "” gives most of its weight, ", share(best), ", to ", h("em", {}, WORDS[best]), ", so the answer is ", pair(answer), "."]);
      return;
    }
    const rising = WORDS.filter((_, i) => short(back.dscores[i]) !== "0" && back.dscores[i] > 0);
    const those = rising.length ? `It grows if the score of ${rising.join(" or ")} grows: only ${rising.length > 1 ? "these words offer" : "this word offers"} more than the average.` : "No score can make it grow, because no word offers more than the average.";
    tell(`The first number of the answer is ${short(answer[0])}, and that is the average offer. ${those}`);
  }

  function draw(width) {
    const [name, query] = QUERIES[asking];
    const { scores, weights, answer } = lookup(query, keys, values);
    const back = lookupBackward([1, 0], query, keys, values, weights);
    const e = wholeExponentials(scores);
    const total = e?.reduce((a, b) => a + b);
    const isWide = width >= 600;
    const first = isWide ? 190 : 0;
    const step = (width - first) / WORDS.length;
    const column = (i) => first + (i + 0.5) * step;
    const cell = Math.min(54, (step - 10) / 2);
    const size = cell < 46 ? 13 : 15;
    // In a narrow drawing the query and the names of the steps stand above the rows, not beside them.
    const y = isWide
      ? { word: 16, key: 66, score: 138, weight: 226, value: 348, answer: 460, height: 500 }
      : { word: 92, key: 132, score: 214, weight: 318, value: 446, answer: 548, height: 588 };
    const ask = isWide ? [75, y.key] : [Math.max(70, width / 2), 36];
    const bus = y.key + 40;
    const parts = [text(ask[0], ask[1] - 28, `query of “${name}”`, { role: "soft", size: 13 }), cells(...ask, query, "query", { cell, size })];
    const steps = [
      [y.score, "1  compare", "score = q · k / √2"],
      [y.weight, "2  softmax", `weight = e^{score} / ${total ?? short(scores.reduce((sum, z) => sum + Math.exp(z), 0))}`],
      [y.value, "3  blend", "weights × values"],
    ];
    for (const [at, words, rule] of steps) {
      const [top, left] = isWide ? [at, 0] : [at - (at === y.weight ? 66 : at === y.value ? 58 : 32), 0];
      parts.push(text(left, top, words, { bold: true, anchor: "start" }));
      parts.push(isWide ? text(16, top + 20, rule, { role: "soft", size: 13, anchor: "start" }) : text(88, top, rule, { role: "soft", size: 13, anchor: "start" }));
    }
    WORDS.forEach((name, i) => {
      const x = column(i);
      const key = [cells(x, y.key, keys[i], "key", { cell, size }), isWide ? text(x, y.key - 28, "key", { role: "soft", size: 13 }) : null];
      const score = e ? (e[i] === 1 ? "0" : `ln ${e[i]}`) : short(scores[i]);
      const beside = backward && isWide;
      const column_ = [
        i === word ? rectangle(x, y.height / 2 + (isWide ? 0 : 38), step - 2, y.height - (isWide ? 0 : 76), "soft", { filled: 0.09, radius: 6 }) : rectangle(x, y.height / 2, step, y.height, "paper", { filled: 0 }),
        text(x, y.word, name, { bold: true }),
        line([[ask[0], isWide ? y.key + 17 : 53], [ask[0], isWide ? bus : 72], [x - 12, isWide ? bus : 72], [x - 12, isWide ? bus + 14 : 80]], "query"),
        key,
        text(beside ? x - 22 : x, y.score, score, { size }),
        bar(x, y.weight, weights[i], { width: Math.min(48, step / 2) }),
        text(x, y.weight + 53, e ? `${e[i]}/${total}` : short(weights[i]), { role: "soft", size: 13 }),
        cells(x, y.value, values[i], "value", { cell, size }),
        thread([x, y.value + 17], [column(1), y.answer - 17], weights[i]),
      ];
      if (isWide) column_.push(line([[x, y.key + 17], [x, bus + 14]], "key"));
      if (backward) {
        const places = isWide ? [x + 18, y.score] : [x - 14, y.score + 20];
        column_.push(
          gradient(...places, back.dscores[i], { size: isWide ? 14 : 13, largest: 0.4 }),
          text(x + (isWide ? 8 : 0), y.key + 28, pair(back.dkeys[i], true), { role: "gradient", size: 13, italic: true, anchor: isWide ? "start" : "middle" }),
          isWide
            ? gradient(x + 40, y.weight, back.offers[i], { words: `offer ${short(back.offers[i])}`, size: 14, largest: 2 })
            : text(x, y.weight - 50, `offer ${short(back.offers[i])}`, { role: "gradient", size: 13, italic: true }),
          text(x, y.value - 30, pair(back.dvalues[i], true), { role: "gradient", size: 13, italic: true }),
        );
      }
      parts.push(pickable(() => pick(i), column_));
    });
    parts.push(cells(column(1), y.answer, answer, "value", { cell, size }), text(column(1), y.answer + 30, "answer", { role: "soft", size: 13 }));
    if (backward) {
      parts.push(text(ask[0] + (isWide ? 8 : cell + 8), ask[1] + (isWide ? 28 : 0), pair(back.dquery, true), { role: "gradient", size: 13, italic: true, anchor: "start" }));
      if (isWide) {
        parts.push(text(16, y.weight + 46, `average offer ${short(back.average)}`, { role: "gradient", size: 14, italic: true, anchor: "start" }));
        parts.push(["How does this", "number grow?"].map((words, i) => text(0, y.answer - 14 + 20 * i, words, { role: "gradient", size: 14, italic: true, anchor: "start" })));
        parts.push(arrow([98, y.answer - 4], [column(1) - cell - 4, y.answer], "gradient"));
      }
    }
    const label = `Query of ${name} ${pair(query)}. ` + WORDS.map((word, i) => `${word}: score ${short(scores[i])}, weight ${short(weights[i])}, value ${pair(values[i])}${backward ? `, gradient of the score ${short(back.dscores[i], true)}` : ""}. `).join("") + `Answer ${pair(answer)}.`;
    return picture(width, y.height, label, parts);
  }

  setSliders();
  update();
}

export const softLookupWidget = { id: "soft_lookup", title: "A soft lookup", mount };
