/** Trains a small model on the sentences of world.js, and answers the messages of a page that shows it. */

import { CachedDecoder } from "./beam.js";
import { BOS, EOS, PAD } from "./tokenizer.js";
import { Adam, lossOfPair, newModel } from "./training.js";
import { pairOf, randomNumbers, shuffled, splitPairs, vocabulary } from "./world.js";

export const RATE = 0.008;
export const LAST_STEP = 500;
export const WARMUP = 50; // steps
const SIZES = { N: 1, d_model: 32, d_ff: 64, h: 8 };
const [BATCH, LONGEST, EVERY] = [12, 20, 25]; // pairs a step; words; steps from one test to the next
const SLICE_MS = 50;

export class Trainer {
  /** `without`: any of "mask", "scale" (√d_k), "positions" and "warmup". `rate`: the highest learning rate. */
  constructor({ seed = 1, rate = RATE, without = [] } = {}) {
    this.words = vocabulary();
    this.ids = new Map(this.words.map((word, id) => [word, id]));
    this.random = randomNumbers(seed);
    this.model = newModel({ words: this.words, ...SIZES, without: without.filter((part) => part !== "warmup") }, this.random);
    this.adam = new Adam(this.model);
    this.waiting = []; // pairs of this epoch
    Object.assign(this, splitPairs(), { rate, warmup: without.includes("warmup") ? 1 : WARMUP, step: 0, loss: null });
  }

  /** As in the paper (§5.3), it grows in proportion to the step, then falls as 1 / √step. Without warm-up it begins highest. */
  get learningRate() {
    const step = this.step + 1;
    return this.warmup === 1 ? this.rate : this.rate * Math.min(step / this.warmup, Math.sqrt(this.warmup / step));
  }

  idsOf(words) {
    return [...words.map((word) => this.ids.get(word)), EOS];
  }

  /** One step: a batch of pairs, and Adam. `loss`: the mean over the words of the batch, in nats. */
  train() {
    const total = new Map();
    this.loss = 0;
    for (let i = 0; i < BATCH; i++) {
      if (!this.waiting.length) this.waiting = shuffled(this.training, this.random);
      const { source, target } = this.waiting.pop();
      const { loss, dlogits, pass } = lossOfPair(this.model, this.idsOf(source), this.idsOf(target));
      this.model.weightGradients(pass, this.model.backward(pass, dlogits), total);
      this.loss += loss / BATCH;
    }
    this.adam.step(total, this.learningRate);
    this.step++;
  }

  /** What the model writes, the likeliest word each time. */
  write(source) {
    const decoder = new CachedDecoder(this.model, this.idsOf(source));
    const written = [];
    for (let last = BOS; written.length < LONGEST; written.push(this.words[last])) {
      const { data } = decoder.step([last], [0]);
      last = EOS;
      data.forEach((logit, id) => (last = id !== PAD && id !== BOS && logit > data[last] ? id : last));
      if (last === EOS) break;
    }
    return written;
  }

  /**
   * What becomes of a sentence: `written`; and, where the pronoun follows "weil" in the right translation, or without one
   * in what is written, the `chances` of er, sie and es.
   */
  read(source) {
    const written = this.write(source);
    const target = pairOf(source)?.target ?? written;
    const place = target.indexOf("weil") + 1;
    if (!place || !Number.isFinite(this.loss ?? 0)) return { source, written };
    const pass = this.model.forward(this.idsOf(source), [BOS, ...this.idsOf(target.slice(0, place)).slice(0, -1)]);
    const p = pass.probabilities(place);
    return { source, written, chances: ["er", "sie", "es"].map((word) => p[this.ids.get(word)]) };
  }

  /** Write the held-out sentences -> how many are right, how many but for the pronoun, how many pronouns; wrong ones with two animals. */
  test() {
    const score = { sentences: 0, others: 0, pronouns: 0, wrongAnimals: 0 };
    for (const { source, target, pronoun, isThing } of this.heldOut) {
      const written = this.write(source);
      const place = written.indexOf("weil") + 1;
      const isRight = place > 0 && written[place] === pronoun;
      const others = written.length === target.length && target.every((word, i) => word === written[i] || word === pronoun && i === place);
      score.pronouns += isRight;
      score.others += others;
      score.sentences += isRight && others;
      score.wrongAnimals += !isThing && !(isRight && others);
    }
    return score;
  }
}

/**
 * Answer a page's messages: { start: settings, sentence: words } first, { sentence }, { rate }, { run: true or false },
 * { step: true }. Each report says what changed: { step, rate, losses: [[step, loss]…], reading, score }.
 *
 * @param scope  has postMessage and onmessage: a worker's global object, or a stand-in for it on the page
 */
export function serveTraining(scope) {
  let trainer = null;
  let sentence = null;
  let running = false;
  let losses = [];
  let tested = -1;

  const report = () => {
    const { step, learningRate: rate } = trainer;
    const isDue = tested < 0 || step - tested >= EVERY;
    if (isDue) tested = step;
    scope.postMessage({ step, rate, losses, reading: trainer.read(sentence), score: isDue ? trainer.test() : null, running });
    losses = [];
  };
  const step = () => {
    trainer.train();
    losses.push([trainer.step, trainer.loss]);
    if (trainer.step >= LAST_STEP || !Number.isFinite(trainer.loss)) running = false;
  };
  const run = () => {
    const end = performance.now() + SLICE_MS;
    while (running && performance.now() < end && (losses.length === 0 || trainer.step % EVERY)) step();
    if (!losses.length) return;
    report();
    if (running) setTimeout(run);
  };
  scope.onmessage = ({ data }) => {
    if (data.start) trainer = new Trainer(data.start);
    if (data.sentence) sentence = data.sentence;
    if (data.rate) trainer.rate = data.rate;
    if (data.step && trainer.step < LAST_STEP) step();
    const wasRunning = running;
    if ("run" in data) running = data.run && trainer.step < LAST_STEP;
    if (!running) report();
    else if (!wasRunning) run();
  };
}
