/** Trains a small model on the sentences of world.js, and answers the messages of a page that shows it. */

import { CachedDecoder } from "./beam.js";
import { row } from "./tensor.js";
import { BOS, EOS, PAD } from "./tokenizer.js";
import { Adam, lossOfPair, newModel } from "./training.js";
import { pairOf, randomNumbers, shuffled, splitPairs, vocabulary } from "./world.js";

export const RATE = 0.008;
export const LAST_STEP = 500;
export const WARMUP = 50; // steps
const SIZES = { N: 1, d_model: 32, d_ff: 64, h: 8 };
const [BATCH, LONGEST, EVERY] = [12, 20, 25]; // pairs a step; words; steps from one test to the next
const [SLICE_MS, SLOW_STEPS, SLOW_MS] = [50, 100, 80]; // the first steps take longer, to be watched
export const KEPT = 5; // every 5th step the weights are kept

export class Trainer {
  /** `without`: any of "mask", "scale" (√d_k), "positions" and "warmup". `rate`: the highest learning rate. */
  constructor({ seed = 1, rate = RATE, without = [] } = {}) {
    this.words = vocabulary();
    this.ids = new Map(this.words.map((word, id) => [word, id]));
    this.random = randomNumbers(seed);
    this.model = newModel({ words: this.words, ...SIZES, without: without.filter((part) => part !== "warmup") }, this.random);
    this.adam = new Adam(this.model);
    this.waiting = []; // pairs of this epoch
    const stages = [...this.model.forward([EOS], [BOS]).stages.values()];
    this.weights = [...new Set(stages.flatMap(({ weights }) => weights.map(({ data }) => data)))];
    this.kept = [this.weights.map((data) => data.slice())]; // the weights at step 0, KEPT, 2 KEPT, …
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
    if (this.step % KEPT === 0) this.kept.push(this.weights.map((data) => data.slice()));
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

  /** Read a sentence with the weights of a step before this one, which were kept. */
  readAt(source, step) {
    const put = (copies) => (this.weights.forEach((data, i) => data.set(copies[i])), this.model.refresh());
    const now = this.weights.map((data) => data.slice());
    put(this.kept[step / KEPT]);
    const reading = { ...this.read(source), step };
    put(now);
    return reading;
  }

  /**
   * What becomes of a sentence: `written`; and, where the pronoun follows "weil" in the right translation, or without one
   * in what is written, the `chances` of er, sie and es.
   */
  read(source) {
    const written = this.write(source);
    const target = pairOf(source)?.target ?? written;
    const place = target.indexOf("weil") + 1;
    const reading = { source, written, step: this.step };
    if (!place) return reading;
    const pass = this.model.forward(this.idsOf(source), [BOS, ...this.idsOf(target.slice(0, place)).slice(0, -1)]);
    const p = pass.probabilities(place);
    return Number.isFinite(p[EOS]) ? { ...reading, chances: ["er", "sie", "es"].map((word) => p[this.ids.get(word)]) } : reading;
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
    return this.model.without.has("mask") ? { ...score, places: this.testPlaces() } : score;
  }

  /** How often the likeliest word is right at each place of the held-out pairs: [it sees the whole translation, only the words before]. */
  testPlaces() {
    const places = Array.from(this.heldOut[0].target, () => [0, 0]);
    for (const { source, target } of this.heldOut) {
      const ids = this.idsOf(target).slice(0, -1);
      const decoder = new CachedDecoder(this.model, this.idsOf(source));
      const whole = this.model.forward(this.idsOf(source), [BOS, ...ids]).logits;
      ids.forEach((id, place) => {
        const before = decoder.step([place ? ids[place - 1] : BOS], [0]).data;
        [row(whole, place), before].forEach((logits, i) => (places[place][i] += logits.every((logit) => logit <= logits[id])));
      });
    }
    return places;
  }
}

/**
 * Answer a page's messages: { start: settings, sentence: words } first, { sentence }, { rate }, { run: true or false },
 * { step: true }, { look: a kept step to read at, or null for the last one }. Each report says what changed: { step, rate, losses: [[step, loss]…], reading, score }.
 *
 * @param scope  has postMessage and onmessage: a worker's global object, or a stand-in for it on the page
 */
export function serveTraining(scope) {
  let trainer = null;
  let sentence = null;
  let running = false;
  let losses = [];
  let tested = -1;
  let look = null;
  let timer = 0;

  const report = () => {
    const { step, learningRate: rate } = trainer;
    const isDue = tested < 0 || step - tested >= EVERY;
    if (isDue) tested = step;
    const reading = look === null || look >= step ? trainer.read(sentence) : trainer.readAt(sentence, look);
    scope.postMessage({ step, rate, losses, reading, score: isDue ? trainer.test() : null, running });
    losses = [];
  };
  const step = () => {
    trainer.train();
    losses.push([trainer.step, trainer.loss]);
    if (trainer.step >= LAST_STEP || !Number.isFinite(trainer.loss)) running = false;
  };
  const run = () => {
    const begun = performance.now();
    const isSlow = trainer.step < SLOW_STEPS;
    while (running && performance.now() < begun + SLICE_MS && (!losses.length || (!isSlow && trainer.step % EVERY))) step();
    if (!losses.length) return;
    report();
    if (running) timer = setTimeout(run, isSlow ? begun + SLOW_MS - performance.now() : 0);
  };
  scope.onmessage = ({ data }) => {
    if (data.start) trainer = new Trainer(data.start);
    if (data.sentence) sentence = data.sentence;
    if ("look" in data) look = data.look;
    if (data.rate) trainer.rate = data.rate;
    if (data.step && trainer.step < LAST_STEP) step();
    const wasRunning = running;
    if ("run" in data) running = data.run && trainer.step < LAST_STEP;
    if (!running || data.start) report();
    if (!running || wasRunning) return;
    clearTimeout(timer);
    run();
  };
}
