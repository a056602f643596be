/**
 * Where one number of a stage comes from, and where its gradient does: a calculation.
 *
 * @typedef {object} Calculation
 * @property {{ label: string, values: number[] }} [left]  two vectors whose products are added first,
 * @property {{ label: string, values: number[] }} [right]
 * @property {"source" | "target"} [over]  whose positions the products are, where they are those of positions
 * @property {[sign: string, label: string, value: number][]} steps  and what follows one after the other, as on a
 *   calculator that begins with their sum, or with 0: "+", "−", "×", "÷", or "max" of the number and 0
 * @property {number} result
 * @property {string} [text]  of a gradient: why
 */

import { column, columns, matmulT, matrix, row, softmaxBackward } from "./tensor.js";

export const STEPS = {
  "+": (x, a) => x + a,
  "−": (x, a) => x - a,
  "×": (x, a) => x * a,
  "÷": (x, a) => x / a,
  max: (x) => Math.max(x, 0),
};

/** What a calculation finds. */
export function calculated({ left, right, steps }) {
  const sum = left ? Array.from(left.values, (a, i) => a * right.values[i]).reduce((total, x) => total + x, 0) : 0;
  return steps.reduce((x, [sign, , a]) => STEPS[sign](x, a), sum);
}

const sumOf = (addends) => addends.map(([label, value]) => ["+", label, value]);

/** √d_model E[id] */
export function explainLookup(entry, scale, j, result) {
  return { steps: [["+", `number ${j} of its row of E`, entry], ["×", "√d_model", scale]], result };
}

/** A sum of two numbers: [label, value] each. */
export function explainSum(addends, result) {
  return { steps: sumOf(addends), result };
}

/** LayerNorm of a sum: `addends`, [label, value] each. */
export function explainNorm(addends, mean, deviation, gamma, beta, result) {
  const norm = [["−", "mean of the row", mean], ["÷", "standard deviation σ", deviation], ["×", "γ, learned", gamma], ["+", "β, learned", beta]];
  return { steps: [...sumOf(addends), ...norm], result };
}

/** Column j of x W + b, or of max(x W + b, 0) if `relu`. x is a row of a stage. */
export function explainLinear(x, { W, b, table, name }, j, result, relu) {
  const right = { label: table ? "its row of E" : `column ${j} of ${name}`, values: column(W, j) };
  const steps = [...(b ? [["+", "bias", b[j]]] : []), ...(relu ? [["max", "ReLU: 0 in the place of a negative number"]] : [])];
  return { left: { label: "x", values: x }, right, steps, result };
}

/** Column j of the heads' outputs for query i: the mean of a column of the values, with the weights of its head. */
export function explainMix(v, weights, i, j, result) {
  const head = Math.floor(j / (v.value.cols / weights.length));
  const left = { label: `weight in head ${head + 1}`, values: row(weights[head], i) };
  return { left, right: { label: `number ${j} of the value`, values: column(v.value, j) }, over: v.side, steps: [], result };
}

/** The score of a query and a key, before softmax. */
export function explainScore(q, k, head, i, s, result, d_k) {
  const part = ({ value }, at) => row(columns(value, head * d_k, d_k), at);
  const [left, right] = [{ label: "query", values: part(q, i) }, { label: "key", values: part(k, s) }];
  return { left, right, steps: [["÷", "√d_k", Math.sqrt(d_k)]], result };
}

// Backward ------------------------------------------------------------------------------------------------------------

/**
 * The gradient of one number of a stage: a share from each stage that reads it, and their sum.
 *
 * @param {Map<string, import("./tensor.js").Matrix>} gradients  what model.backward returned
 * @returns {{ roads: Calculation[], result: number }}  a road has the id of its `reader`, too
 */
export function explainGradient(pass, gradients, id, i, j) {
  const roads = [];
  for (const reader of pass.stages.values()) {
    reader.inputs.forEach((input, n) => {
      if (input !== id) return;
      const road = THROUGH[reader.op.kind](reader, gradients.get(reader.id), n, i, j);
      roads.push({ reader: reader.id, ...withResult(road) });
    });
  }
  return { roads, result: row(gradients.get(id), i)[j] };
}

/** The share of a stage in the gradient of number [i, j] of its weight `n`, whose value has the gradient dy: a calculation. */
export function explainWeight(stage, dy, n, i, j) {
  return { over: stage.side, ...withResult(OF_WEIGHTS[stage.op.kind](stage, dy, n, i, j)) };
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

const WHERE_OFF = "; where the number was negative, ReLU made it 0, and its gradient is 0";

/** How the gradient of a reader's value becomes that of number [i, j] of its input `n`, for each kind of operation. */
const THROUGH = {
  sum: (reader, dy, n, i, j) => ({
    text: "It is added to another number, so the gradient of the sum arrives unchanged.",
    steps: [["+", "gradient of the sum", row(dy, i)[j]]],
  }),
  linear: ({ op }, dy, n, i, j) => ({
    text: op.layer.table
      ? `The gradients of all scores · column ${j} of E, the table of embeddings.`
      : `The gradient of the output · row ${j} of ${op.layer.name}${op.activated ? WHERE_OFF : ""}.`,
    left: { label: "gradient of the output", values: row(op.dsums(dy), i) },
    right: { label: op.layer.table ? `column ${j} of E` : `row ${j} of ${op.layer.name}`, values: row(op.layer.W, j) },
  }),
  norm: ({ op: { saved, layer } }, dy, n, i, j) => {
    const x = row(saved.normalized, i);
    return {
      text:
        "Each number of the output depends on this one, also through mean and deviation: dx_j = sum over i of " +
        "dn_i ((1 if i = j else 0) − 1/d − n_i n_j / d) / σ. " +
        `Here j is ${j}, i runs over all d = ${x.length} numbers of the row, n is the row after mean and σ, and dn = γ × its gradient.`,
      index: "i",
      left: { label: "dn_i", values: row(dy, i).map((g, k) => g * layer.gamma[k]) },
      right: {
        label: "(1 if i = j else 0) − 1/d − n_i n_j / d",
        values: Array.from(x, (value, k) => (k === j ? 1 : 0) - (1 + value * x[j]) / x.length),
      },
      steps: [["÷", "σ", saved.deviation[i]]],
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
      steps: [["÷", "√d_k", divisor]],
    };
  },
};

/** The gradient of a weight is a sum over positions, for each kind of operation that has weights. */
const OF_WEIGHTS = {
  linear: ({ op }, dy, n, i, j) => {
    if (op.layer.table) return overPositions(op.x, j, "last vector", column(dy, i), "", "gradient of the score");
    const dsums = column(op.dsums(dy), j);
    const off = op.activated && dsums.includes(0) ? WHERE_OFF : "";
    return n === 0 ? overPositions(op.x, i, "x", dsums, off) : overPositions(null, j, "1", dsums, off);
  },
  norm: ({ op }, dy, n, i, j) => overPositions(n === 0 ? op.saved.normalized : null, j, n === 0 ? "x, normalised" : "1", column(dy, j)),
  lookup: ({ op }, dy, n, i, j) => onlyRow(op.ids, i, op.scale, "√d_model, where this word is read", dy, j),
  sum: (stage, dy, n, i, j) => onlyRow([...Array(dy.rows).keys()], i, 1, "1 at this position", dy, j),
};

/** The sum over positions of column j of x, or of 1, times the gradients of one number of the output. */
function overPositions(x, j, label, values, off = "", of = "gradient of the output") {
  const left = { label: x ? `${label}, number ${j}` : label, values: x ? column(x, j) : values.map(() => 1) };
  return { text: `The sum over all positions of ${left.label} × ${of}${off}.`, left, right: { label: of, values } };
}

/** The same for row i of a table, which only some positions read. */
function onlyRow(ids, i, factor, label, dy, j) {
  const left = { label, values: ids.map((id) => (id === i ? factor : 0)) };
  return { text: `The sum over all positions of ${label}, × gradient.`, left, right: { label: "gradient", values: column(dy, j) } };
}

function withResult(road) {
  const found = { steps: [], ...road };
  return { ...found, result: calculated(found) };
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
