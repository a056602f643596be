/**
 * Training, as in lessons/transformer.py: random weights, the loss of a pair of sentences, and Adam (paper §5.3). One pair
 * at a time; a batch is a sum of gradients.
 */

import { Model } from "./model.js";
import { logSumExp, matrix, row, softmax } from "./tensor.js";
import { BOS } from "./tokenizer.js";

/**
 * A model with random weights: standard deviation 1 / √(inputs of the layer), of an embedding 1 / √d_model.
 *
 * @param {{ words: string[], N: number, d_model: number, d_ff: number, h: number, without?: string[] }} options
 *   words: the vocabulary, the first four <pad>, </s>, <s> and <unk>; without: see Model
 * @param {() => number} random  numbers from 0 to 1, 1 excluded
 */
export function newModel({ words, N, d_model, d_ff, h, without = [] }, random) {
  const sizes = { vocab_size: words.length, N, d_model, d_ff, h, d_k: d_model / h, d_v: d_model / h, max_positions: 512 };
  const choices = { norm: "post", tied: "all", positions: "sinusoidal", attention_bias: false, ln_eps: 1e-6 };
  const description = { config: { ...sizes, ...choices }, tokenizer: { pieces: words } };
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const make = (name, rows, cols) => {
    if (cols === undefined) return new Float32Array(rows).fill(name.endsWith("gamma") ? 1 : 0);
    const deviation = (name.endsWith("embedding.weight") ? cols : rows) ** -0.5;
    return Float32Array.from({ length: rows * cols }, () => deviation * normal());
  };
  return new Model(description, make, without);
}

/**
 * The loss of a translation, the mean over its tokens of -log p, each token predicted from the right ones before it.
 *
 * @param {number[]} sourceIds, targetIds  with EOS
 * @returns {{ loss: number, dlogits: import("./tensor.js").Matrix, pass: import("./model.js").Pass }}  loss in nats
 */
export function lossOfPair(model, sourceIds, targetIds) {
  const pass = model.forward(sourceIds, [BOS, ...targetIds.slice(0, -1)]);
  const { rows, cols } = pass.logits;
  const dlogits = matrix(rows, cols);
  let loss = 0;
  targetIds.forEach((token, t) => {
    const logits = row(pass.logits, t);
    loss += (logSumExp(logits) - logits[token]) / rows;
    row(dlogits, t).set(softmax(logits).map((p, word) => (p - (word === token ? 1 : 0)) / rows));
  });
  return { loss, dlogits, pass };
}

/** A step against the gradients, with a size of its own for each weight. */
export class Adam {
  constructor(model, { beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9 } = {}) {
    Object.assign(this, { model, beta1, beta2, epsilon, steps: 0 });
    /** The data of a weight -> the running means of its gradient and of its square. */
    this.moments = new Map();
  }

  /** @param {Map<Float32Array, Float32Array>} gradients  what model.weightGradients returns */
  step(gradients, learningRate) {
    const { beta1, beta2, epsilon } = this;
    this.steps++;
    const size = (learningRate * Math.sqrt(1 - beta2 ** this.steps)) / (1 - beta1 ** this.steps); // m and v began at 0
    for (const [data, gradient] of gradients) {
      if (!this.moments.has(data)) this.moments.set(data, { m: new Float32Array(data.length), v: new Float32Array(data.length) });
      const { m, v } = this.moments.get(data);
      for (let i = 0; i < data.length; i++) {
        m[i] += (1 - beta1) * (gradient[i] - m[i]);
        v[i] += (1 - beta2) * (gradient[i] ** 2 - v[i]);
        data[i] -= (size * m[i]) / (Math.sqrt(v[i]) + epsilon);
      }
    }
    this.model.refresh();
  }
}
