/**
 * The search for a translation, as in scratchformer/decoding: with a beam (paper §6.1), or greedily if `beam` is 1.
 *
 * @typedef {object} Step  what happened at one position
 * @property {number} position  from 1
 * @property {{ parent: number, token: number, logProbability: number, ended: boolean, kept: boolean }[]} candidates
 *   the most likely continuations, best first. parent: index into `alive` of the step before (0 in the first step);
 *   ended: it became a finished hypothesis; kept: it is among `alive` now
 * @property {{ ids: number[], logProbability: number }[]} alive  best first
 * @property {Hypothesis[]} finished  best first; those that were cut off at the maximum length come last
 *
 * @typedef {{ ids: number[], logProbability: number, score: number }} Hypothesis  ids without BOS and EOS; nats
 */

import { Pass, headsOf } from "./model.js";
import { add, attention, layerNorm, linear, logSumExp, matrix, relu, row } from "./tensor.js";
import { BOS, EOS, PAD } from "./tokenizer.js";

const FRAME_MS = 16;

/** ((5 + n) / 6)^alpha, for n tokens with EOS. The score of a hypothesis is its log probability divided by this. */
export function lengthPenalty(n, alpha) {
  return ((5 + n) / 6) ** alpha;
}

/**
 * Each step finds the 2 beam most likely continuations of the hypotheses that are alive. Those that end in EOS are
 * finished and compete by score; the best `beam` of the others stay alive. The search ends at the maximum length, or
 * when no hypothesis alive can beat the best finished one: its log probability can only fall, and the penalty is
 * largest at the maximum length.
 *
 * @param {import("./model.js").Model} model
 * @param {number[]} sourceIds  with EOS
 * @param {object} options  beam, alpha, extraLength (pieces more than the source has); removed, memory: see CachedDecoder
 * @returns {AsyncGenerator<Step, Hypothesis[]>}
 */
export async function* beamSearch(model, sourceIds, options = {}) {
  const { beam = 4, alpha = 0.6, extraLength = 50 } = options;
  if (!(Number.isInteger(beam) && beam > 0 && alpha >= 0)) {
    throw new Error(`The beam must be 1 or more and alpha 0 or more, not ${beam} and ${alpha}.`);
  }
  const decoder = new CachedDecoder(model, sourceIds, options);
  const longest = Math.min(sourceIds.length + extraLength, model.mostTokens); // EOS included
  const greedy = beam === 1;
  const hypothesis = (ids, logProbability, n) => ({ ids, logProbability, score: logProbability / lengthPenalty(n, alpha) });
  let alive = [{ ids: [], logProbability: 0 }];
  let parents = [0];
  let finished = [];
  let shown = performance.now();
  for (let position = 1; ; position++) {
    const logits = decoder.step(alive.map(({ ids }) => ids.at(-1) ?? BOS), parents);
    const candidates = mostLikely(logits, alive, 2 * beam);
    const competing = greedy ? candidates.slice(0, 1) : candidates; // greedy search looks at the first alone
    const survivors = competing.filter(({ token }) => token !== EOS).slice(0, beam);
    for (const candidate of candidates) {
      candidate.ended = candidate.token === EOS && competing.includes(candidate);
      candidate.kept = survivors.includes(candidate);
    }
    const ended = candidates.filter((candidate) => candidate.ended);
    const arrived = ended.map(({ parent, logProbability }) => hypothesis(alive[parent].ids, logProbability, position));
    finished = [...finished, ...arrived].sort((a, b) => b.score - a.score).slice(0, beam);
    parents = survivors.map(({ parent }) => parent);
    alive = survivors.map(({ parent, token, logProbability }) => ({ ids: [...alive[parent].ids, token], logProbability }));

    const bound = alive.length ? alive[0].logProbability / lengthPenalty(longest, alpha) : -Infinity;
    const decided = finished.length > 0 && finished[0].score >= bound;
    const atEnd = position >= longest;
    if (atEnd) finished = [...finished, ...alive.map((cut) => hypothesis(cut.ids, cut.logProbability, position))];
    yield { position, candidates, alive, finished };
    if (decided || atEnd) return finished;
    if (performance.now() - shown > FRAME_MS) {
      await new Promise((resolve) => setTimeout(resolve, 0)); // lets a page draw and hear clicks
      shown = performance.now();
    }
  }
}

/**
 * Translate one sentence. A blank one is translated as an empty one, without a search.
 *
 * @param {import("./model.js").Model} model
 * @param {import("./tokenizer.js").Tokenizer} tokenizer
 * @param {string} text
 * @param {object} [options]  see beamSearch
 * @returns {Promise<{ text: string } & Hypothesis & { steps: Step[] }>}
 */
export async function translate(model, tokenizer, text, options = {}) {
  if (!text.trim()) return { text: "", ids: [], score: 0, logProbability: 0, steps: [] };
  const steps = [];
  for await (const step of beamSearch(model, [...tokenizer.encode(text), EOS], options)) steps.push(step);
  const [best] = steps.at(-1).finished;
  return { ...best, text: tokenizer.decode(best.ids).replace(/[\x00-\x1f\x7f]/g, " "), steps };
}

/** The n most likely continuations of the hypotheses: best first, without PAD and BOS, which are never written. */
function mostLikely(logits, alive, n) {
  const best = [];
  alive.forEach(({ logProbability }, parent) => {
    const scores = row(logits, parent);
    const before = logProbability - logSumExp(scores);
    if (!Number.isFinite(before)) throw new Error("The model's probabilities are not finite: its weights are too large.");
    scores.forEach((score, token) => {
      const total = before + score;
      if (token === PAD || token === BOS || (best.length === n && total <= best[n - 1].logProbability)) return;
      const place = best.findIndex((other) => other.logProbability < total);
      best.splice(place < 0 ? best.length : place, 0, { parent, token, logProbability: total });
      best.length = Math.min(best.length, n);
    });
  });
  return best;
}

/**
 * The decoder, one position at a time. Keys and values of earlier positions do not change when another position is
 * written, so each layer keeps them for every hypothesis, and a step computes the new position only. This repeats the
 * decoder of model.js for one position of W hypotheses.
 */
export class CachedDecoder {
  /** `removed`: ids of heads whose output is zeros. `memory`: (S, D), in the place of the encoder's output. */
  constructor(model, sourceIds, { removed = [], memory } = {}) {
    memory ??= model.encode(new Pass(model, sourceIds, [], { removed })).value;
    this.model = model;
    this.position = 0;
    this.layers = model.decoder.map((layer, n) => ({
      ...layer,
      memory: { k: linear(memory, layer.cross.k), v: linear(memory, layer.cross.v) },
      cache: [{ k: matrix(0, layer.self.k.W.cols), v: matrix(0, layer.self.v.W.cols) }], // of each hypothesis
      removed: { self: headsOf(removed, `decoder.${n}`), cross: headsOf(removed, `cross.${n}`) },
    }));
  }

  /**
   * @param {number[]} tokens  the last token of each of the W hypotheses
   * @param {number[]} parents  which hypothesis of the step before each of them continues
   * @returns {import("./tensor.js").Matrix} logits W × V for the next token
   */
  step(tokens, parents) {
    const { config, embeddings, finalNorms, unembedding } = this.model;
    const scale = Math.sqrt(config.d_model);
    const place = this.model.position("target", this.position++);
    let x = matrix(tokens.length, config.d_model);
    tokens.forEach((token, w) => {
      row(x, w).set(row(embeddings.target, token).map((value, j) => value * scale + place[j]));
    });
    for (const layer of this.layers) {
      x = this.residual(x, layer.self.norm, (h) => linear(this.selfAttention(layer, h, parents), layer.self.output));
      x = this.residual(x, layer.cross.norm, (h) => {
        const q = linear(h, layer.cross.q);
        const options = { removed: layer.removed.cross, divisor: this.model.divisor };
        const { heads } = attention(q, layer.memory.k, layer.memory.v, config.h, options);
        return linear(heads, layer.cross.output);
      });
      x = this.residual(x, layer.ff.norm, (h) => linear(relu(linear(h, layer.ff.inner)), layer.ff.outer));
    }
    return linear(finalNorms.decoder ? layerNorm(x, finalNorms.decoder).y : x, unembedding);
  }

  /** One query for each hypothesis, to the keys of its own positions so far. -> (W, h d_v) */
  selfAttention(layer, x, parents) {
    const [q, k, v] = [layer.self.q, layer.self.k, layer.self.v].map((part) => linear(x, part));
    layer.cache = parents.map((parent, w) => {
      const { k: keys, v: values } = layer.cache[parent];
      return { k: withRow(keys, row(k, w)), v: withRow(values, row(v, w)) };
    });
    const heads = matrix(v.rows, v.cols);
    layer.cache.forEach((cache, w) => {
      const query = matrix(1, q.cols, row(q, w));
      const options = { removed: layer.removed.self, divisor: this.model.divisor };
      const own = attention(query, cache.k, cache.v, this.model.config.h, options);
      row(heads, w).set(own.heads.data);
    });
    return heads;
  }

  residual(x, norm, sublayer) {
    if (this.model.config.norm === "pre") return add(x, sublayer(layerNorm(x, norm).y));
    return layerNorm(add(x, sublayer(x)), norm).y;
  }
}

/** A matrix with one more row. */
function withRow(m, values) {
  const longer = matrix(m.rows + 1, m.cols);
  longer.data.set(m.data);
  longer.data.set(values, m.data.length);
  return longer;
}
