/**
 * The Transformer, forward and backward, for one sentence. A forward pass is a list of stages in the order in which
 * they are computed. Each stage keeps its value, can explain every number in it, and knows its own backward: from the
 * gradient of its value to the gradients of its inputs. So backward is a walk through the same list from its end.
 *
 * Shapes: S source tokens, T target tokens, D d_model, h heads, V vocabulary.
 *
 * @typedef {import("./tensor.js").Matrix} Matrix
 *
 * @typedef {object} Stage
 * @property {string} id
 * @property {string} title
 * @property {"source" | "target"} side  whose positions the rows are
 * @property {Matrix} value  positions × width
 * @property {string[]} inputs  ids of the stages that it reads
 * @property {(dy: Matrix) => Matrix[]} backward  gradient of the value -> its share for each input
 * @property {Weight[]} weights  what was learned in it: W and b, γ and β, or a table
 * @property {(dy: Matrix) => Matrix[]} weightGradients  gradient of the value -> its share for each of the weights
 * @property {(row: number, col: number) => import("./explain.js").Calculation} explain
 * @property {{ kind: "lookup" | "sum" | "linear" | "norm" | "heads" }} op  what its backward needs, for explainGradient
 *
 * @typedef {{ name: string, rows: number, cols: number, data: Float32Array }} Weight  the numbers that the model computes with
 *
 * @typedef {object} Attention
 * @property {string} id  "encoder.0", "decoder.0", "cross.0"; a head: "cross.0.2"
 * @property {"encoder" | "decoder" | "cross"} kind
 * @property {number} layer
 * @property {Matrix[]} heads  the weights of each head, queries × keys; rows sum to 1
 * @property {Matrix[]} scores  q · k / √d_k, -Infinity where the mask forbids to look
 * @property {(head: number, query: number, key: number) => import("./explain.js").Calculation} explain  of a score
 */

import { explainLinear, explainLookup, explainMix, explainNorm, explainScore, explainSum, titleOf } from "./explain.js";
import { Tmatmul, add, addInPlace, attention, attentionBackward, layerNorm, layerNormBackward, layerNormWeightsBackward, linear, linearBackward, linearWeightsBackward, logSumExp, matrix, relu, reluBackward, row, sinusoids, softmax, transpose } from "./tensor.js";
import { PAD } from "./tokenizer.js";
import { layersOf } from "./weights.js";

/** Attention needs memory for each pair of positions. The models are trained on sentences of 256 tokens at most. */
const MOST_TOKENS = 512;

export class Model {
  /**
   * @param {object} description  config, parameters and tokenizer.pieces
   * @param weights  see layersOf
   * @param {("mask" | "scale" | "positions")[]} without  what is left out: the mask, √d_k, or the positions
   */
  constructor(description, weights, without = []) {
    this.config = description.config;
    this.pieces = description.tokenizer.pieces;
    this.without = new Set(without);
    /** embeddings, positions, encoder, decoder, finalNorms, unembedding */
    Object.assign(this, layersOf(description, weights));
  }

  /** The ids of all attention heads. */
  get headIds() {
    const numbers = (n) => [...Array(n).keys()];
    const { N, h } = this.config;
    return ["encoder", "decoder", "cross"].flatMap((kind) =>
      numbers(N).flatMap((n) => numbers(h).map((head) => `${kind}.${n}.${head}`)),
    );
  }

  /** The id of the stage that the decoder looks at: the encoder's last. */
  get memoryId() {
    return this.finalNorms.encoder ? "encoder.out" : `encoder.${this.config.N - 1}.ff.out`;
  }

  /** What the product of a query and a key is divided by: √d_k (§3.2.1). */
  get divisor() {
    return this.without.has("scale") ? 1 : Math.sqrt(this.config.d_k);
  }

  /** The length of the longest sequence, EOS or BOS included. */
  get mostTokens() {
    const { positions, max_positions } = this.config;
    return positions === "learned" ? Math.min(max_positions, MOST_TOKENS) : MOST_TOKENS;
  }

  // Forward -----------------------------------------------------------------------------------------------------------

  /**
   * @param {number[]} sourceIds  S ids, EOS at the end
   * @param {number[]} targetInIds  T ids, BOS at the beginning: position t of the logits predicts token t of the target
   * @param {object} options  see Pass
   */
  forward(sourceIds, targetInIds, options) {
    return this.run(new Pass(this, sourceIds, targetInIds, options));
  }

  /** Compute all stages of a new pass. */
  run(pass) {
    const memory = this.encode(pass);
    let y = this.embed(pass, "target");
    this.decoder.forEach((layer, n) => {
      y = this.attend(pass, "decoder", n, layer.self, y);
      y = this.attend(pass, "cross", n, layer.cross, y, memory);
      y = this.feedForward(pass, `decoder.${n}.ff`, layer.ff, y);
    });
    pass.linear("logits", this.finish(pass, "decoder", y), this.unembedding); // (T, V)
    return pass;
  }

  /** The encoder's output, which the decoder looks at. -> Stage (S, D) */
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
    return pass.addPositions(`${side}.positions`, pass.lookup(`${side}.embedding`, side));
  }

  /** Self-attention; with a `memory`, attention to it. */
  attend(pass, kind, n, layer, x, memory = null) {
    const id = kind === "cross" ? `decoder.${n}.cross` : `${kind}.${n}.self`;
    return this.residual(pass, id, layer.norm, x, (h) => {
      const q = pass.linear(`${id}.q`, h, layer.q); // (T, h d_k)
      const k = pass.linear(`${id}.k`, memory ?? h, layer.k); // (S, h d_k)
      const v = pass.linear(`${id}.v`, memory ?? h, layer.v); // (S, h d_v)
      return pass.linear(`${id}.update`, pass.heads(`${id}.heads`, kind, n, q, k, v), layer.output);
    });
  }

  /** max(0, x W_1 + b_1) W_2 + b_2 */
  feedForward(pass, id, layer, x) {
    return this.residual(pass, id, layer.norm, x, (h) =>
      pass.linear(`${id}.update`, pass.linear(`${id}.hidden`, h, layer.inner, { activated: true }), layer.outer),
    );
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

  /** What is added to the embedding at a position. -> (D) */
  position(side, t) {
    if (this.without.has("positions")) return new Float32Array(this.config.d_model);
    const table = this.positions[side];
    return table ? row(table, t) : sinusoids(t, this.config.d_model);
  }

  checkIds(side, ids) {
    const V = this.config.vocab_size;
    if (!ids.length) throw new Error(`The ${side} is empty: it needs at least one token.`);
    if (ids.length > this.mostTokens) {
      throw new Error(`The ${side} has ${ids.length} tokens; at most ${this.mostTokens} are possible.`);
    }
    const wrong = ids.find((id) => !(Number.isInteger(id) && id > PAD && id < V));
    if (wrong !== undefined) {
      throw new Error(`The ${side} holds the id ${wrong}; ids are whole numbers from 1 to ${V - 1}.`);
    }
  }

  // Loss and backward -------------------------------------------------------------------------------------------------

  /**
   * The loss of a token at a position, -log p(token), without label smoothing: dloss / dlogits = p - 1 at the token, p
   * elsewhere, and 0 at all other positions.
   *
   * @param {Pass} pass
   * @returns {{ loss: number, probability: number, dlogits: Matrix }}  loss in nats
   */
  lossOf(pass, position, token) {
    const { rows: T, cols: V } = pass.logits;
    for (const [name, value, n] of [["position", position, T], ["token", token, V]]) {
      if (!(Number.isInteger(value) && value >= 0 && value < n)) {
        throw new Error(`There is no ${name} ${value}; they are 0 to ${n - 1}.`);
      }
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
   * @param {(reader: string, input: string, share: Matrix) => void} onshare  hears what each stage sends to its inputs
   * @returns {Map<string, Matrix>}
   */
  backward(pass, dlogits, onshare = () => {}) {
    const gradients = new Map();
    for (const { id, value } of pass.stages.values()) gradients.set(id, matrix(value.rows, value.cols));
    addInPlace(gradients.get("logits"), dlogits);
    for (const stage of [...pass.stages.values()].reverse()) {
      const shares = stage.backward(gradients.get(stage.id));
      stage.inputs.forEach((id, i) => {
        addInPlace(gradients.get(id), shares[i]); // a value read twice has two shares
        onshare(stage.id, id, shares[i]);
      });
    }
    return gradients;
  }

  /**
   * The gradients of the weights, added to `total`: the data of a weight -> its gradient. A table that is used three
   * times gets three shares (§3.4).
   *
   * @param {Pass} pass
   * @param {Map<string, Matrix>} gradients  what `backward` returned
   * @returns {Map<Float32Array, Float32Array>}
   */
  weightGradients(pass, gradients, total = new Map()) {
    for (const { id, weights, weightGradients } of pass.stages.values()) {
      const shares = weightGradients(gradients.get(id));
      weights.forEach(({ data }, i) => {
        if (total.has(data)) addInPlace({ data: total.get(data) }, shares[i]);
        else total.set(data, shares[i].data);
      });
    }
    return total;
  }

  /** To be called after weights were changed: the output table is kept transposed. */
  refresh() {
    const { W, table } = this.unembedding;
    W.data.set(transpose(table).data);
  }

  /** What `compute` returns while the number at `index` of a weight is larger by `step`. */
  withChanged(weight, index, step, compute) {
    const before = weight.data[index];
    try {
      weight.data[index] = before + step;
      this.refresh();
      return compute();
    } finally {
      weight.data[index] = before;
      this.refresh();
    }
  }
}

/** One forward pass: its stages so far, and the operations that add one. */
export class Pass {
  /**
   * @param {object} options  removed: ids of heads whose output becomes zeros; changes: the id of a stage -> what changes
   *   its value in place, before other stages read it
   */
  constructor(model, sourceIds, targetInIds, { removed = [], changes = {} } = {}) {
    const heads = model.headIds;
    const unknown = removed.find((id) => !heads.includes(id));
    if (unknown !== undefined) {
      throw new Error(`There is no head ${unknown}; the heads are ${heads[0]} to ${heads.at(-1)}.`);
    }
    this.model = model;
    this.ids = { source: [...sourceIds], target: [...targetInIds] };
    this.removed = removed;
    this.changes = changes;
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

  /** (T, V) */
  get logits() {
    return this.stages.get("logits").value;
  }

  /** The distribution of the token that follows position t. -> (V) */
  probabilities(t) {
    return softmax(row(this.logits, t));
  }

  /**
   * Add a stage. `operation` is its backward and explain, its weights and weightGradients if it has some, and `op`: what
   * explains its backward, with a `kind` (see explain.js).
   */
  record(id, inputs, value, operation, side = inputs[0].side) {
    const title = titleOf(id, this.model.config.norm);
    this.changes[id]?.(value);
    const nothing = { weights: [], weightGradients: () => [] };
    const stage = { id, title, side, value, inputs: inputs.map((input) => input.id), ...nothing, ...operation };
    this.stages.set(id, stage);
    return stage;
  }

  /** y = √d_model E[ids].   -> (positions, D) */
  lookup(id, side) {
    const E = this.model.embeddings[side];
    const ids = this.ids[side];
    const scale = Math.sqrt(E.cols);
    const y = matrix(ids.length, E.cols);
    ids.forEach((token, i) => row(E, token).forEach((x, j) => (y.data[i * E.cols + j] = x * scale)));
    const explain = (i, j) => explainLookup(row(E, ids[i])[j], scale, j, row(y, i)[j]);
    const weights = [{ name: "E", ...E }];
    const weightGradients = (dy) => {
      const dE = matrix(E.rows, E.cols);
      ids.forEach((token, i) => row(dE, token).forEach((sum, j, line) => (line[j] = sum + scale * row(dy, i)[j])));
      return [dE];
    };
    const op = { kind: "lookup", ids, scale };
    return this.record(id, [], y, { backward: () => [], explain, weights, weightGradients, op }, side);
  }

  /** y = x + PE, or x + a learned vector for each position. */
  addPositions(id, x) {
    const added = matrix(x.value.rows, x.value.cols);
    for (let t = 0; t < added.rows; t++) row(added, t).set(this.model.position(x.side, t));
    const y = add(x.value, added);
    const explain = (t, j) => {
      const addends = [["embedding", row(x.value, t)[j]], [`position ${t}`, row(added, t)[j]]];
      return explainSum(addends, row(y, t)[j]);
    };
    const table = this.model.positions[x.side];
    const weights = table ? [{ name: "positions", ...table }] : [];
    const weightGradients = (dy) => {
      const dtable = matrix(table?.rows ?? 0, added.cols);
      if (table) dtable.data.set(dy.data);
      return [dtable];
    };
    return this.record(id, [x], y, { backward: (dy) => [dy], explain, weights, weightGradients, op: { kind: "sum" } });
  }

  /** y = x + update */
  sum(id, x, update) {
    const y = add(x.value, update.value);
    const explain = (i, j) => explainSum(addends([x, update], i, j), row(y, i)[j]);
    return this.record(id, [x, update], y, { backward: (dy) => [dy, dy], explain, op: { kind: "sum" } });
  }

  /** y = LayerNorm(x), or LayerNorm(x + update) */
  norm(id, inputs, layer) {
    const saved = layerNorm(inputs.map(({ value }) => value).reduce(add), layer);
    const backward = (dy) => {
      const dx = layerNormBackward(dy, saved, layer);
      return inputs.map(() => dx);
    };
    const explain = (i, j) => {
      const { mean, deviation, y } = saved;
      return explainNorm(addends(inputs, i, j), mean[i], deviation[i], layer.gamma[j], layer.beta[j], row(y, i)[j]);
    };
    const weights = [vector("γ", layer.gamma), vector("β", layer.beta)];
    const weightGradients = (dy) => layerNormWeightsBackward(dy, saved);
    const op = { kind: "norm", saved, layer };
    return this.record(id, inputs, saved.y, { backward, explain, weights, weightGradients, op });
  }

  /** y = x W + b, or max(x W + b, 0) if `activated` */
  linear(id, x, layer, { activated = false } = {}) {
    const sums = linear(x.value, layer);
    const y = activated ? relu(sums) : sums;
    const dsums = (dy) => (activated ? reluBackward(dy, y) : dy);
    const backward = (dy) => [linearBackward(dsums(dy), layer)];
    const explain = (i, j) => explainLinear(row(x.value, i), layer, j, row(y, i)[j], activated);
    const { W, b, table, name } = layer;
    const weights = table ? [{ name: "E", ...table }] : [{ name, ...W }, ...(b ? [vector(name.replace("W", "b"), b)] : [])];
    const weightGradients = (dy) => (table ? [Tmatmul(dy, x.value)] : linearWeightsBackward(dsums(dy), x.value, layer));
    const op = { kind: "linear", x: x.value, layer, dsums, activated };
    return this.record(id, [x], y, { backward, explain, weights, weightGradients, op });
  }

  /** The outputs of all heads of an attention, side by side. -> (T, h d_v) */
  heads(id, kind, layer, q, k, v) {
    const { h, d_k, d_v } = this.model.config;
    const removed = headsOf(this.removed, `${kind}.${layer}`);
    const { divisor, without } = this.model;
    const options = { causal: kind === "decoder" && !without.has("mask"), removed, divisor };
    const { heads: y, scores, weights } = attention(q.value, k.value, v.value, h, options);
    const backward = (dy) => attentionBackward(dy, q.value, k.value, v.value, weights, options);
    const explain = (i, j) => {
      const head = Math.floor(j / d_v);
      return removed.has(head) ? { steps: [], result: 0 } : explainMix(v, weights, i, j, row(y, i)[j]);
    };
    const ofScore = (head, i, s) => explainScore(q, k, head, i, s, row(scores[head], i)[s], d_k);
    this.attentions.push({ id: `${kind}.${layer}`, kind, layer, heads: weights, scores, explain: ofScore });
    const op = { kind: "heads", inputs: [q, k, v], weights, removed, divisor };
    return this.record(id, [q, k, v], y, { backward, explain, op });
  }
}

/** The numbers of the heads of one attention among ids like "cross.0.2". */
export function headsOf(ids, attentionId) {
  return new Set(ids.filter((id) => id.startsWith(`${attentionId}.`)).map((id) => Number(id.split(".")[2])));
}

function vector(name, data) {
  return { name, rows: 1, cols: data.length, data };
}

function addends([x, update], i, j) {
  return [["x", row(x.value, i)[j]], ...(update ? [["update", row(update.value, i)[j]]] : [])];
}
