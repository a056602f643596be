/**
 * From a run's description and its flat weights to the layers of the model.
 *
 * Names and shapes are those of scratchformer/nn: W (in, out), tables (rows, d_model).
 */

import { columns, matrix, transpose } from "./tensor.js";

const SIZES = ["vocab_size", "N", "d_model", "d_ff", "h", "d_k", "d_v", "max_positions"];
const CHOICES = {
  norm: ["post", "pre"],
  tied: ["all", "target", "none"],
  positions: ["sinusoidal", "learned"],
  attention_bias: [true, false],
};

/**
 * @param {object} description  config, parameters (names, shapes, offsets in floats) and tokenizer.pieces
 * @param {ArrayBuffer | ((name: string, ...shape: number[]) => Float32Array)} weights  float32, little-endian; or what
 *   makes the weights of each parameter, for a description without parameters
 * @returns the layers, where a sublayer has its `norm`, an affine layer { W, b, name }, and a table without
 *   parameters is null
 */
export function layersOf(description, weights) {
  const { config, tokenizer } = description;
  check(config, tokenizer.pieces.length);
  const { vocab_size, N, d_model: D, d_ff, h, d_k, d_v, attention_bias: bias, ln_eps: eps } = config;
  const { take, takeNoMore } =
    typeof weights === "function" ? { take: weights, takeNoMore() {} } : reader(description.parameters, weights);

  const table = (name, rows) => matrix(rows, D, take(`${name}.weight`, rows, D));
  const norm = (name) => ({ gamma: take(`${name}.gamma`, D), beta: take(`${name}.beta`, D), eps });
  /** Affine layers of one input, which stand side by side in one parameter. `parts`: a label and a width for each. */
  const affine = (name, d_in, parts, hasBias = true) => {
    const d_out = parts.reduce((sum, [, width]) => sum + width, 0);
    const W = matrix(d_in, d_out, take(`${name}.weight`, d_in, d_out));
    const b = hasBias ? take(`${name}.bias`, d_out) : null;
    let start = 0;
    return parts.map(([label, width]) => {
      const part = { W: columns(W, start, width), b: b && b.subarray(start, start + width) };
      start += width;
      return { ...part, name: label };
    });
  };
  const selfAttention = (name) => {
    const [q, k, v] = affine(`${name}.qkv`, D, [["W_Q", h * d_k], ["W_K", h * d_k], ["W_V", h * d_v]], bias);
    const [output] = affine(`${name}.output`, h * d_v, [["W_O", D]], bias);
    return { q, k, v, output, norm: norm(`${name}.norm`) };
  };
  const crossAttention = (name) => {
    const [q] = affine(`${name}.q`, D, [["W_Q", h * d_k]], bias);
    const [k, v] = affine(`${name}.kv`, D, [["W_K", h * d_k], ["W_V", h * d_v]], bias);
    const [output] = affine(`${name}.output`, h * d_v, [["W_O", D]], bias);
    return { q, k, v, output, norm: norm(`${name}.norm`) };
  };
  const feedForward = (name) => {
    const [inner] = affine(`${name}.inner`, D, [["W_1", d_ff]]);
    const [outer] = affine(`${name}.outer`, d_ff, [["W_2", D]]);
    return { inner, outer, norm: norm(`${name}.norm`) };
  };
  const encoderLayer = (name) => {
    return { self: selfAttention(`${name}.self_attention`), ff: feedForward(`${name}.feed_forward`) };
  };
  const decoderLayer = (name) => {
    return { ...encoderLayer(name), cross: crossAttention(`${name}.cross_attention`) };
  };
  const stack = (name, layer) => Array.from({ length: N }, (_, n) => layer(`${name}.layers.${n}`));
  const positions = (side) => {
    return config.positions === "learned" ? table(`${side}_positions`, config.max_positions) : null;
  };
  const finalNorm = (name) => (config.norm === "pre" ? norm(`${name}.final_norm`) : null);

  const source = table("source_embedding", vocab_size);
  const target = config.tied === "all" ? source : table("target_embedding", vocab_size);
  const output = config.tied === "none" ? table("unembedding", vocab_size) : target;
  const layers = {
    embeddings: { source, target },
    positions: { source: positions("source"), target: positions("target") },
    encoder: stack("encoder", encoderLayer),
    decoder: stack("decoder", decoderLayer),
    finalNorms: { encoder: finalNorm("encoder"), decoder: finalNorm("decoder") },
    unembedding: {
      W: transpose(output), // (D, V)
      b: null,
      table: output,
    },
  };
  takeNoMore();
  return layers;
}

function check(config, n_pieces) {
  for (const name of SIZES) {
    if (!(Number.isInteger(config[name]) && config[name] > 0)) {
      throw new Error(`The model's ${name} must be a whole number above 0, not ${config[name]}.`);
    }
  }
  for (const [name, values] of Object.entries(CHOICES)) {
    if (!values.includes(config[name])) {
      throw new Error(`The model's ${name} must be ${values.join(" or ")}, not ${config[name]}.`);
    }
  }
  if (n_pieces !== config.vocab_size) {
    throw new Error(`The tokenizer has ${n_pieces} pieces, and the model's vocab_size is ${config.vocab_size}.`);
  }
}

/** `take(name, ...shape)` finds a parameter among the weights; `takeNoMore()` checks that none is left. */
function reader(parameters, weights) {
  const floats = new Float32Array(weights);
  const left = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  const take = (name, ...shape) => {
    if (!left.has(name)) throw new Error(`The description has no parameter ${name}.`);
    const { shape: described, offset } = left.get(name);
    left.delete(name);
    if (String(described) !== String(shape)) {
      const [is, must] = [described, shape].map((sizes) => sizes.join(" × "));
      throw new Error(`${name} has the shape ${is}; with these sizes it must be ${must}.`);
    }
    const end = offset + shape.reduce((a, b) => a * b);
    if (!(Number.isInteger(offset) && offset >= 0 && end <= floats.length)) {
      throw new Error(`${name} stands at ${offset} to ${end} of the weights, and there are ${floats.length}.`);
    }
    return floats.subarray(offset, end);
  };
  const takeNoMore = () => {
    const [name] = left.keys();
    if (name !== undefined) {
      throw new Error(`The description has a parameter ${name}, which a model of these sizes does not have.`);
    }
  };
  return { take, takeNoMore };
}
