/** The steps of the view Inside: what each is called, what it shows, and which lesson is about it. */

import { number } from "../dom.js";
import { boxOf } from "./figure.js";

const STACKS = { encoder: "Encoder", decoder: "Decoder" };
const SUBLAYERS = {
  "encoder.self": "self-attention",
  "decoder.self": "masked self-attention",
  "decoder.cross": "cross-attention",
  "encoder.ff": "feed-forward",
  "decoder.ff": "feed-forward",
};

/**
 * The steps of the walk in the order of computation: [{ id, box, side, kind, title, stages, attention, lesson, about }].
 * Queries, keys and values are one step; the weights, the words and the softmax are steps without a stage of their own.
 *
 * ids     the ids of all stages of a pass, in order
 * config  the model's configuration
 */
export function stepsOf(ids, config) {
  const steps = [];
  for (const id of ids) {
    const [stack, layer, sublayer, part] = id.split(".");
    const side = stack === "source" || stack === "encoder" ? "source" : "target";
    const add = (step) => steps.push({ box: boxOf(id), side, kind: "stage", stages: [id], ...step });
    const prefix = `${stack}.${layer}.${sublayer}`;
    const within = part && `${STACKS[stack]} layer ${Number(layer) + 1}, ${SUBLAYERS[`${stack}.${sublayer}`]}`;
    if (id.endsWith(".embedding")) {
      const what = side === "source" ? "Source words" : "Words written so far";
      add({
        id: `${side}.text`,
        box: `${side}.text`,
        kind: "text",
        stages: [],
        title: `${what}: pieces and their numbers`,
        lesson: "17_byte_pairs",
        about: TEXT[side],
      });
      add({
        id,
        title: `${what}: embedding`,
        lesson: "08_embeddings",
        about:
          `Each piece picks its row of the embedding table, and the row is multiplied by √d_model, here ` +
          `${number(Math.sqrt(config.d_model))}.`,
      });
    } else if (id.endsWith(".positions")) {
      add({
        id,
        title: "Plus position",
        lesson: "09_positions",
        about:
          "A vector that depends only on the position is added, because attention alone doesn't know the order of " +
          "the words.",
      });
    } else if (part === "q") {
      add({
        id: `${prefix}.qkv`,
        stages: ["q", "k", "v"].map((one) => `${prefix}.${one}`),
        title: `${within}: queries, keys, values`,
        lesson: "04_soft_lookup",
        about: QKV[sublayer],
      });
      add({
        id: `${prefix}.weights`,
        kind: "weights",
        stages: [],
        attention: sublayer === "cross" ? `cross.${layer}` : `${stack}.${layer}`,
        title: `${within}: weights`,
        lesson: stack === "decoder" && sublayer === "self" ? "06_masks" : "05_scaling",
        about:
          WEIGHTS +
          (stack === "decoder" && sublayer === "self" ? " A word may not look at later words: their weight is 0." : ""),
      });
    } else if (part === "heads") {
      add({
        id,
        title: `${within}: heads`,
        lesson: "07_many_heads",
        about:
          `Each of the ${config.h} heads adds up the values, each value times its weight. The heads then ` +
          `stand side by side.`,
      });
    } else if (part === "hidden") {
      add({
        id,
        title: `${within}: hidden layer`,
        lesson: "11_feed_forward",
        about:
          `W_1 makes ${config.d_ff} numbers out of ${config.d_model}; relu puts 0 in the place of each ` +
          `negative one.`,
      });
    } else if (part === "update") {
      const about =
        sublayer === "ff"
          ? `W_2 makes ${config.d_model} numbers again: what this sublayer wants to change in the vector.`
          : "W_O mixes the heads into one vector: what this sublayer wants to change.";
      add({ id, title: `${within}: update`, lesson: sublayer === "ff" ? "11_feed_forward" : "07_many_heads", about });
    } else if (part === "out") {
      const about =
        config.norm === "pre"
          ? "The update is added to the vector that went in."
          : "The update is added to the vector that went in, and the sum is normalised: its mean becomes 0, its " +
            "variance 1; then each number is scaled by γ and shifted by β.";
      add({
        id,
        title: `${within}: ${config.norm === "pre" ? "add" : "add & norm"}`,
        lesson: "12_residual_norm_dropout",
        about,
      });
    } else if (part === "norm" || layer === "out") {
      const title = part ? `${within}: norm` : `${STACKS[stack]}: norm`;
      add({
        id,
        title,
        lesson: "12_residual_norm_dropout",
        about:
          "The vector is normalised: its mean becomes 0, its variance 1; then each number is scaled by γ and " +
          "shifted by β.",
      });
    } else if (id === "logits") {
      add({
        id,
        title: "Logits",
        lesson: "13_whole_model",
        about:
          `Every one of the ${config.vocab_size} pieces gets a score: the dot product of the decoder's last ` +
          `vector with the piece's row of the output table.`,
      });
      add({
        id: "softmax",
        box: "softmax",
        kind: "softmax",
        stages: [],
        title: "Softmax: the next word",
        lesson: "20_beam_search",
        about: "Softmax turns the scores into probabilities. Beam search chooses among the likeliest.",
      });
    }
  }
  return steps;
}

const TEXT = {
  source:
    "The sentence is cut into pieces that the vocabulary knows, and each piece is replaced by its number. ⟨end⟩ " +
    "closes the sentence.",
  target:
    "The decoder reads what has been written so far. Everything is shifted by one: at each position it has read " +
    "the words before, and must write the next one.",
};
const QKV = {
  self:
    "Three learned matrices turn each vector into a query (what the word looks for), a key (what it can be found " +
    "under) and a value (what it contributes).",
  cross:
    "The query comes from a row of the decoder. Keys and values come from the encoder's output, one for each source " +
    "word.",
};
const WEIGHTS =
  "The score of two words is query · key / √d_k. Softmax turns the scores of one word into weights that add up to 1.";
