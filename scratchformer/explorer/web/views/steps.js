/** The steps of the view Inside, forward and backward: what each is called, which lesson and which code are about it. */

import { number } from "../dom.js";
import { boxOf, foldOf } from "./figure.js";

const STACKS = { encoder: "Encoder", decoder: "Decoder" };
const SUBLAYERS = {
  "encoder.self": "self-attention",
  "decoder.self": "masked self-attention",
  "decoder.cross": "cross-attention",
  "encoder.ff": "feed-forward",
  "decoder.ff": "feed-forward",
};

/**
 * The steps of the walk in the order of computation: [{ id, part, box, side, kind, title, stages, attention, lesson, about,
 * fold, isFold }]. Queries, keys and values are one step; the weights, the words and the softmax are steps without a
 * stage of their own. `fold` is the layer whose steps are skipped until the reader opens it ("decoder.1"), or null; such
 * a layer's last step, with `isFold`, stands for all of them.
 *
 * ids       the ids of all stages of a pass, in order
 * config    the model's configuration
 */
export function stepsOf(ids, config) {
  return ids.flatMap((id) => {
    const [stack, layer, sublayer, last] = id.split(".");
    const side = stack === "source" || stack === "encoder" ? "source" : "target";
    const fold = foldOf(id);
    const isFold = fold !== null && id.endsWith("ff.out");
    const parts = PARTS[last ?? (layer === "out" ? "norm" : (layer ?? id))] ?? [last];
    return parts.map((name) => {
      const part = name === "update" && sublayer === "ff" ? "ff update" : name;
      const { kind = "stage", lesson, title, about } = WALK[part];
      const context = { config, side, stack, sublayer };
      const [theTitle, theAbout] = [title, about].map((text) => (typeof text === "function" ? text(context) : text));
      const nameOfLayer = `${STACKS[stack]} layer ${Number(layer) + 1}`;
      const within = last ? `${nameOfLayer}, ${SUBLAYERS[`${stack}.${sublayer}`]}: ` : layer === "out" ? `${STACKS[stack]}: ` : "";
      return {
        id: ["text", "qkv", "weights"].includes(part) ? id.replace(/[^.]+$/, part) : part === "softmax" ? part : id,
        part,
        box: part === "text" ? `${side}.text` : part === "softmax" ? part : boxOf(id),
        side,
        kind,
        stages: part === "qkv" ? ["q", "k", "v"].map((one) => id.replace(/q$/, one)) : kind === "stage" ? [id] : [],
        attention: part !== "weights" ? null : sublayer === "cross" ? `cross.${layer}` : `${stack}.${layer}`,
        title: isFold ? `${nameOfLayer}: the same steps with weights of its own` : within + theTitle,
        lesson: part === "weights" && SUBLAYERS[`${stack}.${sublayer}`].startsWith("masked") ? "06_masks" : lesson,
        about: isFold ? `This is what comes out of it; its steps are in the list. ${theAbout}` : theAbout,
        fold,
        isFold,
      };
    });
  });
}

/** The end of a stage's id -> the steps that it begins, where they are not one of the same name. */
const PARTS = { embedding: ["text", "embedding"], positions: ["positions"], q: ["qkv", "weights"], k: [], v: [], norm: ["norm"], logits: ["logits", "softmax"] };
const WORDS = { source: "Source words", target: "Words written so far" };
const NORMALISED = "its mean becomes 0, its variance 1; then each number is scaled by γ and shifted by β, both learned.";

/** What the forward walk says about each part: texts, or functions that make one from { config, side, stack, sublayer }. */
const WALK = {
  text: {
    kind: "text",
    lesson: "17_byte_pairs",
    title: ({ side }) => `${WORDS[side]}: pieces and their numbers`,
    about: ({ side }) =>
      side === "source"
        ? "The sentence is cut into pieces that the vocabulary knows, and each piece is replaced by its number. ⟨end⟩ closes " +
          "the sentence."
        : "The decoder reads what has been written so far. Everything is shifted by one: at each position it has read the " +
          "words before, and must write the next one.",
  },
  embedding: {
    lesson: "08_embeddings",
    title: ({ side }) => `${WORDS[side]}: embedding`,
    about: ({ config: { d_model } }) =>
      `Each piece picks its row of the embedding table, and the row is multiplied by √d_model, here ${number(Math.sqrt(d_model))}.`,
  },
  positions: {
    lesson: "09_positions",
    title: "Plus position",
    about: ({ side }) =>
      "A vector that depends only on the position is added" +
      (side === "source" ? ", because attention alone doesn't know the order of the words." : ", the same one as in the encoder."),
  },
  qkv: {
    lesson: "04_soft_lookup",
    title: "queries, keys, values",
    about: ({ sublayer }) =>
      sublayer === "self"
        ? "Three learned matrices turn each vector into a query (what the word looks for), a key (what it can be found under) " +
          "and a value (what it contributes)."
        : "The query comes from a row of the decoder. Keys and values come from the encoder's output, one for each source word.",
  },
  weights: {
    kind: "weights",
    lesson: "05_scaling",
    title: "weights",
    about: ({ stack, sublayer }) =>
      "The score of two words is query · key / √d_k. Softmax turns the scores of one word into weights that add up to 1." +
      (SUBLAYERS[`${stack}.${sublayer}`].startsWith("masked") ? " A word may not look at later words: their weight is 0." : ""),
  },
  heads: {
    lesson: "07_many_heads",
    title: "heads",
    about: ({ config: { h } }) =>
      `Each of the ${h} heads adds up the values, each value times its weight. The heads then stand side by side.`,
  },
  update: {
    lesson: "07_many_heads",
    title: "update",
    about: "W_O mixes the heads into one vector: what this sublayer wants to change.",
  },
  hidden: {
    lesson: "11_feed_forward",
    title: "hidden layer",
    about: ({ config: { d_model, d_ff } }) =>
      `W_1 makes ${d_ff} numbers out of ${d_model}; relu puts 0 in the place of each negative one.`,
  },
  "ff update": {
    lesson: "11_feed_forward",
    title: "update",
    about: ({ config: { d_model } }) => `W_2 makes ${d_model} numbers again: what this sublayer wants to change in the vector.`,
  },
  out: {
    lesson: "12_residual_norm_dropout",
    title: ({ config: { norm } }) => (norm === "pre" ? "add" : "add & norm"),
    about: ({ config: { norm } }) =>
      `The update is added to the vector that went in${norm === "pre" ? "." : `, and the sum is normalised: ${NORMALISED}`}`,
  },
  norm: { lesson: "12_residual_norm_dropout", title: "norm", about: `The vector is normalised: ${NORMALISED}` },
  logits: {
    lesson: "13_whole_model",
    title: "Logits",
    about: ({ config: { vocab_size } }) =>
      `Every one of the ${vocab_size} pieces gets a score, its logit: the dot product of the decoder's last vector with the piece's row ` +
      "of the output table.",
  },
  softmax: {
    kind: "softmax",
    lesson: "20_beam_search",
    title: "Softmax: the next word",
    about: "Softmax turns the scores into probabilities. Beam search chooses among the likeliest.",
  },
};

// Backward ------------------------------------------------------------------------------------------------------------

/**
 * The steps from the loss back to the words, and Adam's step. `memoryId` is the stage that the decoder looks at; `norm` is
 * the configuration's.
 */
export function backwardStepsOf(steps, memoryId, norm) {
  const back = steps
    .filter(({ kind }) => kind !== "text" && kind !== "softmax")
    .reverse()
    .map((step, i) => {
      const part = step.id === memoryId ? "memory" : i === 1 ? "top" : step.part;
      const normed = /update/.test(part) && norm === "post" ? " LayerNorm's backward takes out what can't change its output." : "";
      const about = (step.isFold ? "Only the gradient of its result is here; its steps are in the list. " : "") + BACK[part] + normed;
      const lesson = BACK_LESSONS[part] ?? step.lesson;
      return { ...step, part, about, lesson, ...(step.id === "logits" && { title: "Loss and logits", kind: "loss" }) };
    });
  const adam = { id: "adam", box: null, side: "source", kind: "adam", stages: [], fold: null, part: "adam" };
  return [...back, { ...adam, title: "Adam: one step of training", lesson: "15_adam_and_warmup", about: BACK.adam }];
}

/** The steps that the walk visits from one of them: those of a folded layer only from inside it. */
export function visited(steps, current) {
  const inside = current.isFold ? null : current.fold;
  return steps.filter(({ fold, isFold }) => fold === null || isFold || fold === inside);
}

const READERS = "Whatever reads this vector sends a gradient back, and these gradients are added: ";
const UPDATE = "The update and the vector that it was added to get the same gradient, that of their sum.";
const BACK = {
  logits:
    "The loss is −ln p of the right word. Its gradient at the scores is p − y: the probability of each word, and 1 less " +
    "at the right one.",
  top: "The score of each word was a dot product with this vector, so the table of embeddings leads its gradient back.",
  out: `${READERS}those of the next sublayer, and that of the residual connection, which leads past it.`,
  positions: `${READERS}those of queries, keys and values, and that of the residual connection, which leads past them.`,
  memory: `${READERS}each layer of the decoder has made keys and values of it.`,
  norm: `${READERS}those of the sublayer.`,
  update: UPDATE,
  "ff update": UPDATE,
  heads: "W_O leads the gradient of the update back to the heads.",
  weights:
    "The gradient of a weight is the gradient of the head's output · the value. Softmax then leads it to the scores: " +
    "within a row their gradients add up to 0.",
  qkv:
    "Each score was query · key / √d_k, so the keys make the gradient of the queries, and the queries that of the keys. " +
    "A value gets the gradients of the outputs, times its weights.",
  hidden: "W_2 leads the gradient of the update back to the hidden numbers. relu then lets it on only where they are above 0.",
  embedding:
    "The gradient passes the addition of the position unchanged. Times √d_model it is added to the word's row of the " +
    "table, which is what training changes.",
  adam:
    "Every weight takes a step against its gradient; Adam divides the gradient by the root of its mean square. This is " +
    "done as if a training began from these weights, so both means are those of one gradient.",
};
const BACK_LESSONS = { logits: "14_label_smoothing", top: "13_whole_model", out: "12_residual_norm_dropout", memory: "13_whole_model" };

// Code ----------------------------------------------------------------------------------------------------------------

const LAYER_NORM = ["layer_norm", "dn = dy *", "return (dn - mean(dn)"];

/** A step's part -> the function of lessons/transformer.py that computes it, and pieces of the lines that do. */
export const CODE = {
  forward: {
    embedding: ["embed", "x = E.data[ids] * d_model**0.5"],
    positions: ["embed", "x += positional_encoding(t, d_model)"],
    qkv: ["multi_head_attention", "Q, Q_backward =", "K, K_backward =", "V, V_backward ="],
    weights: ["attention", "weights, softmax_backward ="],
    heads: ["attention", "dheads = yield"],
    update: ["multi_head_attention", "y, y_backward ="],
    hidden: ["feed_forward", "hidden, hidden_backward =", "active = np.maximum"],
    "ff update": ["feed_forward", "y, y_backward =", "dy = yield y + b_2.data"],
    out: ["add_and_norm", "y, norm_backward ="],
    norm: ["layer_norm", "dy = yield"],
    logits: ["loss_of", "logits, logits_backward ="],
    softmax: ["log_softmax", "return x - np.log"],
  },
  backward: {
    logits: ["cross_entropy", "return (np.exp(log_p) - q)"],
    top: ["loss_of", "dx[is_word] = logits_backward("],
    out: ["add_and_norm", "return dsum + dx"],
    positions: ["add_and_norm", "return dsum + dx"],
    memory: ["decode", "dx, dshare = cross_backward(", "dmemory + dshare"],
    update: LAYER_NORM,
    "ff update": LAYER_NORM,
    heads: ["multi_head_attention", "dQ, dK, dV ="],
    weights: ["attention", "dscores = softmax_backward("],
    qkv: ["attention", "dV = einsum", "return einsum"],
    hidden: ["feed_forward", "dhidden = y_backward(dy)"],
    embedding: ["embed", "np.add.at(E.grad"],
    adam: ["adam", "w.m +=", "w.v +=", "w.data -="],
  },
  weight: {
    W: ["linear", "W.grad += einsum"],
    b_1: ["feed_forward", "b_1.grad +="],
    b_2: ["feed_forward", "b_2.grad +="],
    γ: ["layer_norm", "gamma.grad +="],
    β: ["layer_norm", "beta.grad +="],
  },
};
const POST_NORM_ONLY = { forward: ["out"], backward: ["out", "positions", "update", "ff update", "memory"] };

/** The code of a step, or of the gradient of a weight by its name; null where lessons/transformer.py has none. */
export function codeOf(step, way, weight, config) {
  if (weight === "E") return step.id === "logits" ? CODE.weight.W : CODE[way][step.part];
  if (weight) return CODE.weight[weight.startsWith("W") ? "W" : weight] ?? null;
  if (config.norm === "pre" && POST_NORM_ONLY[way].includes(step.part)) return null;
  return CODE[way][step.part] ?? null;
}

/**
 * The lines of a function: [{ text, isLit, isHalf }]. `fragments` light the line that contains one; `isHalf` are the
 * lines that the direction runs: those up to yield, or those from yield on. Unless `all` are wanted, only the
 * lit ones and their neighbours; of several lit ones, these only.
 */
export function linesOf(text, fragments, way, all = true) {
  const lines = text.split("\n");
  const middle = lines.findIndex((line) => /\byield\b/.test(line));
  const found = lines.map((line, i) => ({
    text: line,
    isLit: fragments.some((fragment) => line.includes(fragment)),
    isHalf: middle < 0 || (way === "forward" ? i <= middle : i >= middle || i < lines.findIndex((one) => one.startsWith("def ")) + 1),
  }));
  const beside = fragments.length > 1 ? 0 : 1;
  return all ? found : found.filter((_, i) => found.slice(Math.max(0, i - beside), i + beside + 1).some(({ isLit }) => isLit));
}
