/**
 * Where one number of a stage comes from: its operands, and a sentence.
 *
 * @typedef {object} Explanation
 * @property {"lookup" | "sum" | "dot" | "norm" | "mix"} kind  how `parts` make `result`: their product (lookup), their
 *   sum (sum, dot, mix), or (x - mean) / deviation · γ + β, where x is the sum of the parts before these four (norm)
 * @property {string} text  one sentence
 * @property {{ label: string, value: number }[]} parts
 * @property {number} result
 * @property {{ label: string, values: Float32Array }} [left]  the two vectors of a dot product or a mix
 * @property {{ label: string, values: Float32Array }} [right]
 * @property {number} [bias]  the last part of a dot product
 * @property {boolean} [relu]  result = max(sum, 0)
 * @property {number} [divisor]  result = sum / divisor
 */

import { column, columns, row } from "./tensor.js";

/** √d_model E[id] */
export function explainLookup(word, entry, scale, j, result) {
  const parts = [
    { label: `column ${j} of the table's row for ${word}`, value: entry },
    { label: "√d_model", value: scale },
  ];
  return { kind: "lookup", text: equation(parts, "×", result), parts, result };
}

/** A sum of two numbers: [label, value] each. */
export function explainSum(addends, result) {
  const parts = addends.map(([label, value]) => ({ label, value }));
  return { kind: "sum", text: equation(parts, "+", result), parts, result };
}

/** LayerNorm of a sum: `addends` and the norm's `constants` (mean, deviation, γ, β), [label, value] each. */
export function explainNorm(addends, constants, result) {
  const parts = [...addends, ...constants].map(([label, value]) => ({ label, value }));
  const x = addends.map(([, value]) => show(value)).join(" + ");
  const [mean, deviation, gamma, beta] = constants.map(([, value]) => show(value));
  const text =
    `${x}, minus the row's mean ${mean}, divided by its standard deviation ${deviation}, ` +
    `times γ = ${gamma}, plus β = ${beta}, is ${show(result)}.`;
  return { kind: "norm", text, parts, result };
}

/** Column j of x W + b, or of max(x W + b, 0) if `relu`. x is a row of a stage. */
export function explainLinear(word, title, x, layer, j, sum, relu) {
  const left = { label: `${word}: ${title}`, values: x };
  const right = { label: layer.columnName(j), values: column(layer.W, j) };
  const bias = layer.b ? { bias: layer.b[j] } : {};
  const parts = [...products(left, right), ...(layer.b ? [{ label: "bias", value: layer.b[j] }] : [])];
  const result = relu ? Math.max(sum, 0) : sum;
  const text =
    `The vector of ${word} · ${right.label}${layer.b ? ` + the bias ${show(layer.b[j])}` : ""} = ${show(sum)}` +
    `${relu && sum <= 0 ? ", and ReLU makes 0 of it" : ""}.`;
  return { kind: "dot", text, parts, result, left, right, ...bias, ...(relu && { relu }) };
}

/** Column j of the heads' outputs for query i: the mean of a column of the values, with the weights of its head. */
export function explainMix(pass, q, v, weights, i, j, result) {
  const head = Math.floor(j / (v.value.cols / weights.length));
  const left = { label: `weights of ${pass.word(q.side, i)} in head ${head + 1}`, values: row(weights[head], i) };
  const right = { label: `column ${j} of the values`, values: column(v.value, j) };
  const parts = products(left, right).map(({ value }, s) => ({ label: pass.word(v.side, s), value }));
  const most = left.values.indexOf(left.values.reduce((a, b) => Math.max(a, b)));
  const text =
    `The mean of ${right.label}, weighted by head ${head + 1}, is ${show(result)}: the largest weight, ` +
    `${show(left.values[most])}, is that of ${parts[most].label}, where the column has ${show(right.values[most])}.`;
  return { kind: "mix", text, parts, result, left, right };
}

export function explainRemoved(head) {
  return { kind: "mix", text: `Head ${head + 1} is removed, so its output is 0.`, parts: [], result: 0 };
}

/** The score of a query and a key, before softmax; the text says which weight it becomes. */
export function explainScore(pass, q, k, head, i, s, score, weight, d_k) {
  const [query, key] = [pass.word(q.side, i), pass.word(k.side, s)];
  const left = { label: `query of ${query}`, values: row(columns(q.value, head * d_k, d_k), i) };
  const right = { label: `key of ${key}`, values: row(columns(k.value, head * d_k, d_k), s) };
  const divisor = Math.sqrt(d_k);
  const text =
    score === -Infinity
      ? `${query} must not look at ${key}, which comes later: the weight is 0.`
      : `The ${left.label} · the ${right.label} is ${show(score * divisor)}; divided by √${d_k} it is ` +
        `${show(score)}, and softmax turns this into the weight ${show(weight)}.`;
  return { kind: "dot", text, parts: products(left, right), result: score, left, right, divisor };
}

function products(left, right) {
  return Array.from(left.values, (value, i) => ({ label: String(i), value: value * right.values[i] }));
}

function equation(parts, sign, result) {
  return `${parts.map(({ label, value }) => `${show(value)} (${label})`).join(` ${sign} `)} = ${show(result)}.`;
}

/** Three digits that count, and a true minus sign. */
function show(x) {
  return String(Number(x.toPrecision(3))).replaceAll("-", "−");
}

// Titles --------------------------------------------------------------------------------------------------------------

const TITLES = {
  "source.embedding": "Embedding of the source",
  "source.positions": "Source: embedding + position",
  "encoder.out": "Encoder: output, normalised",
  "target.embedding": "Embedding of the target",
  "target.positions": "Target: embedding + position",
  "decoder.out": "Decoder: output, normalised",
  logits: "Logits",
};

const SUBLAYERS = { self: "self-attention", cross: "cross-attention", ff: "feed-forward" };

const PARTS = {
  norm: "x, normalised",
  q: "queries",
  k: "keys",
  v: "values",
  heads: "outputs of the heads, side by side",
  hidden: "hidden units",
  update: "update",
  post: "x + update, normalised",
  pre: "x + update",
};

/** The title of a stage, for a model with norm "post" or "pre". */
export function titleOf(id, norm) {
  if (id in TITLES) return TITLES[id];
  const [stack, n, sublayer, part] = id.split(".");
  const layer = `${stack === "encoder" ? "Encoder" : "Decoder"} layer ${Number(n) + 1}`;
  return `${layer}, ${SUBLAYERS[sublayer]}: ${PARTS[part === "out" ? norm : part]}`;
}
