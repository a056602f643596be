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

import { column, columns, matmulT, matrix, row, softmaxBackward } from "./tensor.js";

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

// Backward ------------------------------------------------------------------------------------------------------------

/**
 * The gradient of one number of a stage: a share from each stage that reads it, and their sum.
 *
 * @param {Map<string, import("./tensor.js").Matrix>} gradients  what model.backward returned
 * @returns {{ roads: object[], result: number }}  a road has the id of its `reader`, `left` and `right` (as in an
 *   explanation), `divisor`, `result` and `text`; `over`: the side whose positions its terms are
 */
export function explainGradient(pass, gradients, id, i, j) {
  const roads = [];
  for (const reader of pass.stages.values()) {
    reader.inputs.forEach((input, n) => {
      if (input !== id) return;
      const road = THROUGH[reader.op.kind](reader, gradients.get(reader.id), n, i, j);
      roads.push({ reader: reader.id, ...dotProduct(road) });
    });
  }
  return { roads, result: row(gradients.get(id), i)[j] };
}

/** The share of a stage in the gradient of number [i, j] of its weight `n`, whose value has the gradient dy: a road. */
export function explainWeight(stage, dy, n, i, j) {
  return { over: stage.side, ...dotProduct(OF_WEIGHTS[stage.op.kind](stage, dy, n, i, j)) };
}

/** The gradients of a head's weights and of its scores, by the stage `heads` and the gradient of its value. */
export function scoreGradients({ op }, dy, head) {
  const w = op.weights[head];
  const width = dy.cols / op.weights.length;
  const part = (m) => columns(m, head * width, width);
  const dweights = op.removed.has(head) ? matrix(w.rows, w.cols) : matmulT(part(dy), part(op.inputs[2].value));
  const dscores = matrix(w.rows, w.cols);
  for (let t = 0; t < w.rows; t++) row(dscores, t).set(softmaxBackward(row(dweights, t), row(w, t)));
  return { dweights, dscores };
}

/** How the gradient of a reader's value becomes that of number [i, j] of its input `n`, for each kind of operation. */
const THROUGH = {
  sum: (reader, dy, n, i, j) => ({
    text: "It is added to another number, so the gradient of the sum arrives unchanged.",
    left: { label: "gradient of the sum", values: [row(dy, i)[j]] },
    right: { label: "1", values: [1] },
  }),
  linear: ({ op }, dy, n, i, j) => ({
    text: op.layer.table
      ? "The gradients of all scores · column j of the table of embeddings."
      : `The gradient of the output · row ${j} of ${op.layer.name}${op.activated ? "; where ReLU made 0, the gradient is 0" : ""}.`,
    left: { label: "gradient of the output", values: row(op.dsums(dy), i) },
    right: { label: op.layer.table ? `column ${j} of E` : `row ${j} of ${op.layer.name}`, values: row(op.layer.W, j) },
  }),
  norm: ({ op: { saved, layer } }, dy, n, i, j) => {
    const x = row(saved.normalized, i);
    return {
      text: `Each number of the output depends on this one, also through mean and deviation σ = ${show(saved.deviation[i])}.`,
      left: { label: "γ × gradient of the output", values: row(dy, i).map((g, k) => g * layer.gamma[k]) },
      right: {
        label: `(1 if it is ${j}) − 1/d − n n_${j}/d`,
        values: Array.from(x, (value, k) => (k === j ? 1 : 0) - (1 + value * x[j]) / x.length),
      },
      divisor: saved.deviation[i],
      dividedBy: "σ",
    };
  },
  heads: (reader, dy, n, i, j) => {
    const { inputs, weights, removed, divisor } = reader.op;
    const [q, k] = inputs;
    const width = inputs[n].value.cols / weights.length;
    const head = Math.floor(j / width);
    const named = (label, values) => ({ label, values });
    const [name, other] = [["query", "keys"], ["key", "queries"], ["value"]][n];
    if (removed.has(head)) return { text: `Head ${head + 1} is removed.`, left: named("", []), right: named("", []) };
    if (n === 2)
      return {
        over: q.side,
        text: `A value is in the output of each position, times its weight there: head ${head + 1}.`,
        left: named("weight", column(weights[head], i)),
        right: named("gradient of the output", column(dy, j)),
      };
    const { dscores } = scoreGradients(reader, dy, head);
    return {
      over: n === 0 ? k.side : q.side,
      text: `A score is query · key / √d_k, so the gradient of a ${name} is made of the ${other}: head ${head + 1}.`,
      left: named("gradient of the score", n === 0 ? row(dscores, i) : column(dscores, i)),
      right: named(`column ${j} of the ${other}`, column(inputs[1 - n].value, j)),
      divisor,
      dividedBy: "√d_k",
    };
  },
};

/** The gradient of a weight is a sum over positions, for each kind of operation that has weights. */
const OF_WEIGHTS = {
  linear: ({ op }, dy, n, i, j) => {
    if (op.layer.table) return overPositions(op.x, j, "last vector", column(dy, i), "gradient of the score");
    const dsums = column(op.dsums(dy), j);
    return n === 0 ? overPositions(op.x, i, "input", dsums) : overPositions(null, j, "1", dsums);
  },
  norm: ({ op }, dy, n, i, j) => overPositions(n === 0 ? op.saved.normalized : null, j, n === 0 ? "x, normalised" : "1", column(dy, j)),
  lookup: ({ op }, dy, n, i, j) => onlyRow(op.ids, i, op.scale, "√d_model, where this word is read", dy, j),
  sum: (stage, dy, n, i, j) => onlyRow([...Array(dy.rows).keys()], i, 1, "1 at this position", dy, j),
};

/** The sum over positions of column j of x, or of 1, times the gradients of one number of the output. */
function overPositions(x, j, label, values, of = "gradient of the output") {
  const left = { label: x ? `${label}, number ${j}` : label, values: x ? column(x, j) : values.map(() => 1) };
  return { text: `The sum over all positions of ${left.label} × ${of}.`, left, right: { label: of, values } };
}

/** The same for row i of a table, which only some positions read. */
function onlyRow(ids, i, factor, label, dy, j) {
  const left = { label, values: ids.map((id) => (id === i ? factor : 0)) };
  return { text: `The sum over all positions of ${label}, × gradient.`, left, right: { label: "gradient", values: column(dy, j) } };
}

function dotProduct(road) {
  const parts = products(road.left, road.right);
  const divisor = road.divisor ?? 1;
  return { ...road, parts, divisor, result: parts.reduce((sum, { value }) => sum + value, 0) / divisor };
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
