/**
 * The Transformer, forward and backward, for one sentence. A forward pass is a list of stages in the order in which they
 * are computed. Each stage keeps its value, can explain every number in it, and knows its own backward: from the gradient
 * of its value to the gradients of its inputs. So backward is a walk through the same list from its end.
 *
 * @typedef {import("./tensor.js").Matrix} Matrix
 *
 * @typedef {object} Stage
 * @property {string} id
 * @property {string} title
 * @property {"source" | "target"} side  whose positions the rows are
 * @property {Matrix} value  positions × width
 * @property {string[]} inputs  ids of the stages that it reads
 * @property {(dy: Matrix) => Matrix[]} backward  the share of each input
 * @property {(row: number, col: number) => Explanation} explain
 *
 * @typedef {object} Explanation  where one number comes from
 * @property {"lookup" | "sum" | "dot" | "norm" | "mix"} kind  how `parts` make `result`: their product (lookup), their sum
 *   (sum, dot, mix), or (x - mean) / deviation · γ + β, where x is the sum of the parts before the last four (norm)
 * @property {string} text  one sentence
 * @property {{ label: string, value: number }[]} parts
 * @property {number} result
 * @property {{ label: string, values: Float32Array }} [left]  the two vectors of a dot product
 * @property {{ label: string, values: Float32Array }} [right]
 * @property {number} [bias]  the last part of a dot product
 * @property {boolean} [relu]  result = max(sum, 0)
 * @property {number} [divisor]  result = sum / divisor
 *
 * @typedef {object} Attention
 * @property {string} id  "encoder.0", "decoder.0", "cross.0"; a head: "cross.0.2"
 * @property {"encoder" | "decoder" | "cross"} kind
 * @property {number} layer
 * @property {Matrix[]} heads  the weights of each head, queries × keys; rows sum to 1
 * @property {Matrix[]} scores  q · k / √d_k, -Infinity where the mask forbids to look
 * @property {(head: number, query: number, key: number) => Explanation} explain  a score, and the weight that it becomes
 */

import { addInPlace, attention, attentionBackward, column, columns, layerNorm, layerNormBackward, linear, linearBackward, logSumExp, matrix, relu, reluBackward, row, sinusoids, softmax, transpose } from "./tensor.js";
import { PAD } from "./tokenizer.js";

/** Attention needs memory for each pair of positions. The models are trained on sentences of 256 tokens at most. */
const MOST_TOKENS = 512;

export class Model {
  /**
   * @param {object} description  config, parameters (names, shapes, offsets in floats) and tokenizer.pieces
   * @param {ArrayBuffer} weights  float32, little-endian
   */
  constructor(description, weights) {
    const config = checked(description);
    const { vocab_size, N, d_model: D, d_ff, h, d_k, d_v, attention_bias, tied, ln_eps } = config;
    const { take, finish } = reader(description.parameters, weights);
    const table = (name, rows) => matrix(rows, D, take(name, rows, D));
    const affine = (name, d_in, d_out, bias = true) => {
      return { W: matrix(d_in, d_out, take(`${name}.weight`, d_in, d_out)), b: bias ? take(`${name}.bias`, d_out) : null };
    };
    const norm = (name) => ({ gamma: take(`${name}.gamma`, D), beta: take(`${name}.beta`, D), eps: ln_eps });
    const attentionLayer = (name, cross) => {
      const together = cross ? [["q", [d_k]], ["kv", [d_k, d_v]]] : [["qkv", [d_k, d_k, d_v]]]; // one matrix in training
      const [q, k, v] = together.flatMap(([part, widths]) => {
        const sizes = widths.map((width) => h * width);
        return cut(affine(`${name}.${part}`, D, sizes.reduce((a, b) => a + b), attention_bias), sizes);
      });
      return { q, k, v, output: affine(`${name}.output`, h * d_v, D, attention_bias), norm: norm(`${name}.norm`) };
    };
    const feedForward = (name) => {
      return { inner: affine(`${name}.inner`, D, d_ff), outer: affine(`${name}.outer`, d_ff, D), norm: norm(`${name}.norm`) };
    };
    const layers = (stack, layer) => Array.from({ length: N }, (_, n) => layer(`${stack}.layers.${n}`));
    const positions = (side) => (config.positions === "learned" ? table(`${side}_positions.weight`, config.max_positions) : null);
    const finalNorm = (stack) => (config.norm === "pre" ? norm(`${stack}.final_norm`) : null);

    this.config = config;
    this.pieces = description.tokenizer.pieces.map((piece) => piece.trim());
    const source = table("source_embedding.weight", vocab_size);
    const target = tied === "all" ? source : table("target_embedding.weight", vocab_size);
    const output = tied === "none" ? table("unembedding.weight", vocab_size) : target;
    this.embeddings = { source, target };
    this.positions = { source: positions("source"), target: positions("target") };
    this.encoder = layers("encoder", (name) => {
      return { self: attentionLayer(`${name}.self_attention`, false), ff: feedForward(`${name}.feed_forward`) };
    });
    this.decoder = layers("decoder", (name) => {
      return { self: attentionLayer(`${name}.self_attention`, false), cross: attentionLayer(`${name}.cross_attention`, true), ff: feedForward(`${name}.feed_forward`) };
    });
    this.finalNorms = { encoder: finalNorm("encoder"), decoder: finalNorm("decoder") };
    this.unembedding = { W: transpose(output), b: null }; // (D, V)
    finish();
  }

  /** The ids of all attention heads. */
  get headIds() {
    const numbers = (n) => [...Array(n).keys()];
    return ["encoder", "decoder", "cross"].flatMap((kind) =>
      numbers(this.config.N).flatMap((n) => numbers(this.config.h).map((head) => `${kind}.${n}.${head}`)),
    );
  }

  // Forward -----------------------------------------------------------------------------------------------------------

  /**
   * @param {number[]} sourceIds  S ids, EOS at the end
   * @param {number[]} targetInIds  T ids, BOS at the beginning: position t of the logits predicts token t of the target
   * @param {{ removed?: string[] }} options  ids of heads whose output becomes zeros
   * @returns {Pass}
   */
  forward(sourceIds, targetInIds, { removed = [] } = {}) {
    return this.run(new Pass(this, sourceIds, targetInIds, removed));
  }

  /** Fill a new pass. */
  run(pass) {
    const memory = this.encode(pass);
    let y = this.embed(pass, "target");
    this.decoder.forEach((layer, n) => {
      y = this.attend(pass, "decoder", n, layer.self, y);
      y = this.attend(pass, "cross", n, layer.cross, y, memory);
      y = this.feedForward(pass, `decoder.${n}.ff`, layer.ff, y);
    });
    y = this.finish(pass, "decoder", y);
    pass.linear("logits", y, this.unembedding, { columnName: (token) => `the embedding of ${this.name(token)}` });
    return pass;
  }

  /** @returns {Stage} what the decoder looks at: S × d_model */
  encode(pass) {
    let x = this.embed(pass, "source");
    this.encoder.forEach((layer, n) => {
      x = this.attend(pass, "encoder", n, layer.self, x);
      x = this.feedForward(pass, `encoder.${n}.ff`, layer.ff, x);
    });
    return this.finish(pass, "encoder", x);
  }

  embed(pass, side) {
    this.checkIds(side, pass.ids[side]);
    return pass.positions(`${side}.positions`, pass.lookup(`${side}.embedding`, side));
  }

  attend(pass, kind, n, layer, x, memory = null) {
    const id = kind === "cross" ? `decoder.${n}.cross` : `${kind}.${n}.self`;
    return this.residual(pass, id, layer.norm, x, (h) => {
      const q = pass.linear(`${id}.q`, h, layer.q, { name: "W_Q" });
      const k = pass.linear(`${id}.k`, memory ?? h, layer.k, { name: "W_K" });
      const v = pass.linear(`${id}.v`, memory ?? h, layer.v, { name: "W_V" });
      return pass.linear(`${id}.update`, pass.heads(`${id}.heads`, kind, n, q, k, v), layer.output, { name: "W_O" });
    });
  }

  feedForward(pass, id, layer, x) {
    return this.residual(pass, id, layer.norm, x, (h) => {
      const hidden = pass.linear(`${id}.hidden`, h, layer.inner, { name: "W_1", activated: true });
      return pass.linear(`${id}.update`, hidden, layer.outer, { name: "W_2" });
    });
  }

  /** Post-norm: y = LayerNorm(x + sublayer(x)). Pre-norm: y = x + sublayer(LayerNorm(x)). */
  residual(pass, id, norm, x, sublayer) {
    if (this.config.norm === "pre") return pass.sum(`${id}.out`, x, sublayer(pass.norm(`${id}.norm`, [x], norm)));
    return pass.norm(`${id}.out`, [x, sublayer(x)], norm);
  }

  /** A pre-norm stack ends with one more LayerNorm, since the last layer's output is not normalised. */
  finish(pass, stack, x) {
    const norm = this.finalNorms[stack];
    return norm ? pass.norm(`${stack}.out`, [x], norm) : x;
  }

  /** What is added to the embedding at a position -> (D) */
  position(side, t) {
    const table = this.positions[side];
    return table ? row(table, t) : sinusoids(t, this.config.d_model);
  }

  checkIds(side, ids) {
    const { vocab_size: V, positions, max_positions } = this.config;
    const most = positions === "learned" ? Math.min(max_positions, MOST_TOKENS) : MOST_TOKENS;
    if (!ids.length) throw new Error(`The ${side} is empty: it needs at least one token.`);
    if (ids.length > most) throw new Error(`The ${side} has ${ids.length} tokens; at most ${most} are possible.`);
    const wrong = ids.find((id) => !(Number.isInteger(id) && id > PAD && id < V));
    if (wrong !== undefined) throw new Error(`The ${side} holds the id ${wrong}; ids are whole numbers from 1 to ${V - 1}.`);
  }

  /** The piece of an id, for a sentence. */
  name(id) {
    return `“${this.pieces[id]}”`;
  }

  // Loss and backward -------------------------------------------------------------------------------------------------

  /**
   * The loss of one position: -log p(token), without label smoothing; dloss / dlogits = p - 1 at the token, p elsewhere.
   *
   * @param {Pass} pass
   * @returns {{ loss: number, probability: number, dlogits: Matrix }}  loss in nats
   */
  lossOf(pass, position, token) {
    const { rows: T, cols: V } = pass.logits;
    for (const [name, value, limit] of [["position", position, T], ["token", token, V]]) {
      if (!(Number.isInteger(value) && value >= 0 && value < limit)) throw new Error(`There is no ${name} ${value}; they are 0 to ${limit - 1}.`);
    }
    const logits = row(pass.logits, position);
    const p = softmax(logits);
    const dlogits = matrix(T, V);
    row(dlogits, position).set(p);
    row(dlogits, position)[token] -= 1;
    return { loss: logSumExp(logits) - logits[token], probability: p[token], dlogits };
  }

  /**
   * The gradient of the loss with respect to the value of every stage.
   *
   * @param {Pass} pass
   * @param {Matrix} dlogits
   * @returns {Map<string, Matrix>}
   */
  backward(pass, dlogits) {
    const gradients = new Map();
    for (const { id, value } of pass.stages.values()) gradients.set(id, matrix(value.rows, value.cols));
    addInPlace(gradients.get("logits"), dlogits);
    for (const stage of [...pass.stages.values()].reverse()) {
      const shares = stage.backward(gradients.get(stage.id));
      stage.inputs.forEach((id, i) => addInPlace(gradients.get(id), shares[i])); // read several times: gradients add up
    }
    return gradients;
  }
}

/** One forward pass: its stages so far, and the operations that add one. */
export class Pass {
  constructor(model, sourceIds, targetInIds, removed = []) {
    const unknown = removed.find((id) => !model.headIds.includes(id));
    if (unknown !== undefined) throw new Error(`There is no head ${unknown}; the heads are ${model.headIds[0]} to ${model.headIds.at(-1)}.`);
    this.model = model;
    this.ids = { source: [...sourceIds], target: [...targetInIds] };
    this.removed = removed;
    /** @type {Map<string, Stage>} */
    this.stages = new Map();
    /** @type {Attention[]} */
    this.attentions = [];
  }

  get sourceIds() {
    return this.ids.source;
  }

  get targetInIds() {
    return this.ids.target;
  }

  /** T × V */
  get logits() {
    return this.stages.get("logits").value;
  }

  /** The distribution of the token that follows position t -> (V) */
  probabilities(t) {
    return softmax(row(this.logits, t));
  }

  /** Add a stage. */
  record(id, inputs, value, backward, explain, side = inputs[0].side) {
    const stage = { id, title: titleOf(id, this.model.config.norm), side, value, inputs: inputs.map((input) => input.id), backward, explain };
    this.stages.set(id, stage);
    return stage;
  }

  /** The piece at a position, for a sentence. */
  word(side, i) {
    return this.model.name(this.ids[side][i]);
  }

  /** x = √d_model E[ids].   -> (positions, D) */
  lookup(id, side) {
    const E = this.model.embeddings[side];
    const scale = Math.sqrt(E.cols);
    const value = matrix(this.ids[side].length, E.cols);
    this.ids[side].forEach((token, i) => row(value, i).set(row(E, token).map((x) => x * scale)));
    const explain = (i, j) => {
      const parts = [{ label: `column ${j} of the table's row for ${this.word(side, i)}`, value: row(E, this.ids[side][i])[j] }, { label: "√d_model", value: scale }];
      return { kind: "lookup", parts, result: row(value, i)[j], text: equation(parts, "×", row(value, i)[j]) };
    };
    return this.record(id, [], value, () => [], explain, side);
  }

  /** y = x + PE, or x + a learned row for each position. */
  positions(id, x) {
    const value = matrix(x.value.rows, x.value.cols, x.value.data.slice());
    const added = Array.from({ length: value.rows }, (_, t) => this.model.position(x.side, t));
    added.forEach((vector, t) => vector.forEach((number, j) => (row(value, t)[j] += number)));
    const explain = (t, j) => {
      const parts = [{ label: "embedding", value: row(x.value, t)[j] }, { label: `position ${t}`, value: added[t][j] }];
      return { kind: "sum", parts, result: row(value, t)[j], text: equation(parts, "+", row(value, t)[j]) };
    };
    return this.record(id, [x], value, (dy) => [dy], explain);
  }

  /** y = x + update. */
  sum(id, x, update) {
    const value = matrix(x.value.rows, x.value.cols, x.value.data.slice());
    addInPlace(value, update.value);
    const explain = (i, j) => {
      const parts = addends([x, update], i, j);
      return { kind: "sum", parts, result: row(value, i)[j], text: equation(parts, "+", row(value, i)[j]) };
    };
    return this.record(id, [x, update], value, (dy) => [dy, dy], explain);
  }

  /** y = LayerNorm(x), or LayerNorm(x + update). */
  norm(id, inputs, layer) {
    const x = matrix(inputs[0].value.rows, inputs[0].value.cols);
    inputs.forEach((input) => addInPlace(x, input.value));
    const saved = layerNorm(x, layer);
    const backward = (dy) => {
      const dx = layerNormBackward(dy, saved, layer);
      return inputs.map(() => dx);
    };
    const explain = (i, j) => {
      const constants = [["mean", saved.mean[i]], ["deviation", saved.deviation[i]], ["γ", layer.gamma[j]], ["β", layer.beta[j]]];
      const result = row(saved.y, i)[j];
      const [mean, deviation, gamma, beta] = constants.map(([, value]) => show(value));
      const text = `${show(row(x, i)[j])} minus the row's mean ${mean}, divided by its standard deviation ${deviation}, times γ = ${gamma}, plus β = ${beta}, is ${show(result)}.`;
      return { kind: "norm", parts: [...addends(inputs, i, j), ...constants.map(([label, value]) => ({ label, value }))], result, text };
    };
    return this.record(id, inputs, saved.y, backward, explain);
  }

  /** y = x W + b, or max(x W + b, 0) if `activated`. */
  linear(id, x, layer, { name, activated = false, columnName = (j) => `column ${j} of ${name}` }) {
    const sums = linear(x.value, layer);
    const value = activated ? relu(sums) : sums;
    const backward = (dy) => [linearBackward(activated ? reluBackward(dy, value) : dy, layer)];
    const explain = (i, j) => {
      const left = { label: `${this.word(x.side, i)}: ${x.title}`, values: row(x.value, i) };
      const right = { label: columnName(j), values: column(layer.W, j) };
      const parts = products(left.values, right.values);
      const bias = layer.b?.[j];
      if (layer.b) parts.push({ label: "bias", value: bias });
      const result = row(value, i)[j];
      const off = activated && result === 0 ? `, which is not positive, so ReLU makes it 0` : "";
      const text = `The vector of ${this.word(x.side, i)} · ${right.label}${layer.b ? ` + the bias ${show(bias)}` : ""} = ${show(row(sums, i)[j])}${off}.`;
      return { kind: "dot", text, parts, result, left, right, ...(layer.b && { bias }), ...(activated && { relu: true }) };
    };
    return this.record(id, [x], value, backward, explain);
  }

  /** The outputs of all heads of an attention, side by side. */
  heads(id, kind, layer, q, k, v) {
    const { h, d_k, d_v } = this.model.config;
    const causal = kind === "decoder";
    const removed = headsOf(this.removed, `${kind}.${layer}`);
    const { heads: value, scores, weights } = attention(q.value, k.value, v.value, h, { causal, removed });
    const backward = (dy) => attentionBackward(dy, q.value, k.value, v.value, weights, removed);
    const explain = (i, j) => {
      const head = Math.floor(j / d_v);
      const result = row(value, i)[j];
      if (removed.has(head)) return { kind: "mix", text: `Head ${head + 1} is removed, so its output is 0.`, parts: [], result };
      const left = { label: `weights of ${this.word(q.side, i)} in head ${head + 1}`, values: row(weights[head], i) };
      const right = { label: `column ${j} of the values`, values: column(v.value, j) };
      const parts = products(left.values, right.values).map(({ value: share }, s) => ({ label: this.word(v.side, s), value: share }));
      const most = left.values.indexOf(left.values.reduce((a, b) => Math.max(a, b)));
      const text = `${show(result)} is a mean of numbers from ${parts.length} pieces, weighted by head ${head + 1}. The largest weight is ${show(left.values[most])}, of ${parts[most].label}, whose number is ${show(right.values[most])}.`;
      return { kind: "mix", text, parts, result, left, right };
    };
    const explainScore = (head, i, s) => {
      const left = { label: `query of ${this.word(q.side, i)}`, values: row(columns(q.value, head * d_k, d_k), i) };
      const right = { label: `key of ${this.word(k.side, s)}`, values: row(columns(k.value, head * d_k, d_k), s) };
      const parts = products(left.values, right.values);
      const score = row(scores[head], i)[s];
      const text = score === -Infinity
          ? `${this.word(q.side, i)} must not look at ${this.word(k.side, s)}, which comes later: the weight is 0.`
          : `The ${left.label} · the ${right.label} is ${show(score * Math.sqrt(d_k))}; divided by √${d_k} it is ${show(score)}, and softmax turns this into the weight ${show(row(weights[head], i)[s])}.`;
      return { kind: "dot", text, parts, result: score, left, right, divisor: Math.sqrt(d_k) };
    };
    this.attentions.push({ id: `${kind}.${layer}`, kind, layer, heads: weights, scores, explain: explainScore });
    return this.record(id, [q, k, v], value, backward, explain);
  }
}

// Explanations --------------------------------------------------------------------------------------------------------

/** Three digits that count, and a true minus sign. */
function show(x) {
  return String(Number(x.toPrecision(3))).replaceAll("-", "−");
}

function equation(parts, sign, result) {
  return `${parts.map(({ label, value }) => `${show(value)} (${label})`).join(` ${sign} `)} = ${show(result)}.`;
}

function addends(inputs, i, j) {
  return inputs.map((input, n) => ({ label: n === 0 ? "x" : "update", value: row(input.value, i)[j] }));
}

function products(left, right) {
  return Array.from(left, (value, i) => ({ label: String(i), value: value * right[i] }));
}

const TITLES = {
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

function titleOf(id, arrangement) {
  const fixed = {
    "source.embedding": "Embedding of the source",
    "source.positions": "Source: embedding + position",
    "encoder.out": "Encoder: output, normalised",
    "target.embedding": "Embedding of the target",
    "target.positions": "Target: embedding + position",
    "decoder.out": "Decoder: output, normalised",
    logits: "Logits",
  };
  if (id in fixed) return fixed[id];
  const [stack, n, sublayer, part] = id.split(".");
  const name = { self: "self-attention", cross: "cross-attention", ff: "feed-forward" }[sublayer];
  return `${stack === "encoder" ? "Encoder" : "Decoder"} layer ${Number(n) + 1}, ${name}: ${TITLES[part === "out" ? arrangement : part]}`;
}

// The description -----------------------------------------------------------------------------------------------------

/** The numbers of the heads of one attention among ids like "cross.0.2". */
export function headsOf(ids, attentionId) {
  return new Set(ids.filter((id) => id.startsWith(`${attentionId}.`)).map((id) => Number(id.split(".")[2])));
}

/** The configuration, if the engine can run it. */
function checked({ config, tokenizer }) {
  for (const name of ["vocab_size", "N", "d_model", "d_ff", "h", "d_k", "d_v", "max_positions"]) {
    if (!(Number.isInteger(config[name]) && config[name] > 0)) throw new Error(`The model's ${name} must be a whole number above 0, not ${config[name]}.`);
  }
  const choices = { norm: ["post", "pre"], tied: ["all", "target", "none"], positions: ["sinusoidal", "learned"], attention_bias: [true, false] };
  for (const [name, values] of Object.entries(choices)) {
    if (!values.includes(config[name])) throw new Error(`The model's ${name} must be ${values.join(" or ")}, not ${config[name]}.`);
  }
  const n = tokenizer.pieces.length;
  if (n !== config.vocab_size) throw new Error(`The tokenizer has ${n} pieces, and the model's vocab_size is ${config.vocab_size}.`);
  return config;
}

/** Finds parameters by name among the weights. `finish` checks that all have been asked for. */
function reader(parameters, weights) {
  if (weights.byteLength % 4) throw new Error(`The weights have ${weights.byteLength} bytes, which are no whole number of floats.`);
  const floats = new Float32Array(weights);
  const left = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  const take = (name, ...shape) => {
    const found = left.get(name);
    if (!found) throw new Error(`The description has no parameter ${name}.`);
    left.delete(name);
    if (String(found.shape) !== String(shape)) throw new Error(`${name} has the shape ${found.shape.join(" × ")}; with these sizes it must be ${shape.join(" × ")}.`);
    const end = found.offset + shape.reduce((a, b) => a * b);
    if (!(Number.isInteger(found.offset) && found.offset >= 0 && end <= floats.length)) throw new Error(`${name} ends at number ${end} of the weights, and there are ${floats.length}.`);
    return floats.subarray(found.offset, end);
  };
  const finish = () => {
    const [extra] = left.keys();
    if (extra !== undefined) throw new Error(`The description has a parameter ${extra}, which a model of these sizes does not have.`);
  };
  return { take, finish };
}

/** Cut a layer that computes several things at once into one for each: it has `sizes` columns of each. */
function cut({ W, b }, sizes) {
  let start = 0;
  return sizes.map((size) => {
    const part = { W: columns(W, start, size), b: b && b.subarray(start, start + size) };
    start += size;
    return part;
  });
}
