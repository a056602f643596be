/** What the view Train computes: its world, the trainer that a worker runs, and what the view says of a run. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Trainer, serveTraining } from "../../scratchformer/explorer/web/engine/trainer.js";
import { BOS, EOS, PAD, UNK } from "../../scratchformer/explorer/web/engine/tokenizer.js";
import { allPairs, englishOf, nounsOf, pairOf, randomNumbers, rightWithoutVerb, shuffled, splitPairs, vocabulary } from "../../scratchformer/explorer/web/engine/world.js";
import { asSentence, plain, readWords, saidOf, trainView } from "../../scratchformer/explorer/web/views/train.js";

const textOf = ({ source, target }) => `${source.join(" ")} | ${target.join(" ")}`;

test("the world: 60 words, and the special ones in the places that the tokenizer gives them", () => {
  const words = vocabulary();
  assert.equal(words.length, 4 + 60);
  assert.deepEqual([PAD, EOS, BOS, UNK].map((id) => words[id]), ["<pad>", "</s>", "<s>", "<unk>"]);
});

test("case, gender and the noun that is meant", () => {
  const texts = new Set(allPairs().map(textOf));
  for (const text of [
    "the dog did not push the boat because it was too old | der Hund schob das Boot nicht weil er zu alt war",
    "the dog did not enter the boat because it was too old | der Hund betrat das Boot nicht weil es zu alt war",
    "the goat did not like the wagon because it was too small | die Ziege mochte den Wagen nicht weil er zu klein war",
    "the horse did not pull the wagon because it was too tired | das Pferd zog den Wagen nicht weil es zu müde war",
    "the dog did not push the cat because it was too old | der Hund schob die Katze nicht weil er zu alt war",
    "the cat did not push the dog because it was too old | die Katze schob den Hund nicht weil sie zu alt war",
    "the cat did not like the dog because it was too old | die Katze mochte den Hund nicht weil er zu alt war",
  ])
    assert.ok(texts.has(text), text);
  assert.equal(texts.size, 1080);
  assert.ok(allPairs().every(({ source, isThing }) => isThing || source[4] !== "enter"));
});

test("every German word has its English, and a pronoun the nouns that it can stand for", () => {
  const german = new Set(allPairs().flatMap(({ target }) => target));
  assert.ok([...german].every((word) => englishOf(word)));
  assert.deepEqual(["mochte", "schob", "Kutsche", "müde", "den", "boat"].map(englishOf), ["liked", "pushed", "carriage", "tired", "the", undefined]);
  assert.deepEqual(["er", "sie", "es"].map((word) => nounsOf("the cat did not push the boat".split(" "), word)), [[], ["cat"], ["boat"]]);
});

test("adjective and nouns alone don't decide the pronoun; held-out pairs are not trained on", () => {
  const pairs = allPairs();
  const meant = (adjective) => [...new Set(pairs.filter((pair) => pair.adjective === adjective).map(({ of }) => of))].sort();
  for (const adjective of ["small", "old", "light"]) assert.deepEqual(meant(adjective), [0, 1]);
  assert.deepEqual([meant("tired"), meant("heavy")], [[0], [1]]);
  const { heldOut, training } = splitPairs();
  const trained = new Set(training.map(textOf));
  assert.deepEqual([heldOut.length, trained.size], [30, 1050]);
  assert.ok(heldOut.every((pair) => !trained.has(textOf(pair))));
  assert.equal(rightWithoutVerb(), 20);
  for (const { source, isThing, pronoun } of heldOut.filter(({ isThing }) => !isThing)) {
    const turned = pairOf(source.map((_, i) => source[{ 1: 6, 6: 1 }[i] ?? i])); // the same words, another meaning
    assert.ok(!isThing && turned.pronoun !== pronoun);
  }
});

test("random numbers are even, and the same for the same seed", () => {
  const numbers = Array.from({ length: 4000 }, randomNumbers(3));
  assert.ok(numbers.every((x) => x >= 0 && x < 1));
  const tenths = Array.from({ length: 10 }, (_, i) => numbers.filter((x) => Math.floor(10 * x) === i).length);
  assert.ok(tenths.every((count) => count > 320 && count < 480), String(tenths));
  assert.deepEqual(Array.from({ length: 9 }, randomNumbers(3)), numbers.slice(0, 9));
  assert.deepEqual([...shuffled([1, 2, 3, 4, 5], randomNumbers(1))].sort(), [1, 2, 3, 4, 5]);
});

function trained(settings, steps) {
  const trainer = new Trainer(settings);
  const losses = [];
  for (let i = 0; i < steps; i++) {
    trainer.train();
    losses.push(trainer.loss);
  }
  return { trainer, losses };
}

test("a few dozen steps lower the loss, and the same seed gives the same run", () => {
  const { losses } = trained({ seed: 5 }, 60);
  assert.ok(losses[0] > 4 && losses.at(-1) < 1.2, `${losses[0]} to ${losses.at(-1)}`);
  assert.deepEqual(trained({ seed: 5 }, 3).losses, losses.slice(0, 3));
  assert.notEqual(trained({ seed: 6 }, 1).losses[0], losses[0]);
});

test("the number of weights is the one that the view names", () => {
  const { model } = new Trainer();
  const stages = [...model.forward([4, EOS], [BOS]).stages.values()];
  const weights = new Set(stages.flatMap(({ weights }) => weights.map(({ data }) => data)));
  const count = [...weights].reduce((sum, { length }) => sum + length, 0);
  assert.ok(trainView.lead.includes(` ${count.toLocaleString("en")} weights`), String(count));
});

test("without a mask the loss falls, and nothing that it writes is right", () => {
  const { trainer, losses } = trained({ without: ["mask"] }, 150);
  assert.ok(losses.at(-1) < 0.2);
  const { sentences, places } = trainer.test();
  assert.equal(sentences, 0);
  assert.equal(places.length, 11);
  assert.ok(places.every(([whole]) => whole === 30), "it sees the next word");
  assert.ok(places[6][1] < 10, "weil, from the words before it");
});

test("a past step's reading is the one of that step, and the model stays as it is", () => {
  const { trainer } = trained({}, 25);
  const [{ source }] = trainer.heldOut;
  const then = trainer.read(source);
  for (let i = 0; i < 7; i++) trainer.train();
  const now = trainer.read(source);
  assert.deepEqual(trainer.read(source, 25), then);
  assert.deepEqual([trainer.read(source), now.step], [now, 32]);
  assert.notDeepEqual(now.chances, then.chances);
});

test("without positions it cannot know which of two animals acts", () => {
  const same = (settings) => {
    const { trainer } = trained(settings, 90);
    return ["dog did not push the cat", "cat did not push the dog"].map((clause) => trainer.write(`the ${clause} because it was too old`.split(" ")).join(" "));
  };
  assert.equal(new Set(same({ without: ["positions"] })).size, 1);
  assert.equal(new Set(same({})).size, 2);
});

test("the learning rate warms up, then falls as one over the root of the step", () => {
  const trainer = new Trainer({ rate: 0.01 });
  const rates = [1, 25, 50, 200].map((step) => Object.assign(trainer, { step: step - 1 }).learningRate);
  assert.deepEqual(rates.map(plain), ["0.0002", "0.005", "0.01", "0.005"]);
  const cold = new Trainer({ rate: 0.01, without: ["warmup"] });
  assert.deepEqual([1, 50, 200].map((step) => plain(Object.assign(cold, { step: step - 1 }).learningRate)), ["0.01", "0.01", "0.005"]);
});

test("a page's messages: sentence, one step, run and pause, another rate", async () => {
  const reports = [];
  const scope = { postMessage: (report) => reports.push(report) };
  serveTraining(scope);
  const ask = (data) => scope.onmessage({ data });
  const [{ source }] = splitPairs().training;
  ask({ start: { seed: 1, rate: 0.006, without: [] }, sentence: source });
  assert.deepEqual([reports[0].step, reports[0].reading.source, reports[0].hasEnded], [0, source, false]);
  assert.deepEqual(reports[0].score, { sentences: 0, others: 0, pronouns: 0, exchanged: 0 });
  ask({ step: true });
  assert.deepEqual([reports[1].step, reports[1].losses.length, reports[1].score], [1, 1, null]);
  ask({ rate: 0.05 });
  assert.ok(Math.abs(reports[2].rate - 0.05 * (2 / 50)) < 1e-9);
  ask({ run: true });
  while (reports.at(-1).step < 30) await new Promise((resolve) => setTimeout(resolve, 5));
  ask({ run: false });
  const count = reports.length;
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(reports.length, count, "it pauses");
  assert.deepEqual(reports.filter(({ score }) => score).map(({ step }) => step), [0, 25], "tested every 25 steps");
  assert.equal(reports.flatMap(({ losses }) => losses).length, reports.at(-1).step, "every loss is reported once");
  assert.ok(reports.at(-1).reading.chances.every((p) => p > 0 && p < 1));
  ask({ look: 20 });
  assert.deepEqual([reports.at(-1).reading.step, reports.at(-1).step], [20, reports.at(-2).step]);
  ask({ look: null, sentence: ["tired", "dog"] });
  assert.equal(reports.at(-1).reading.step, reports.at(-1).step);
  assert.deepEqual(reports.at(-1).reading.source, ["tired", "dog"]);
});

test("what the view says of a run comes from its numbers", () => {
  const scores = [0, 0, 0].map((sentences, i) => ({ step: 25 * i, sentences, others: 0, exchanged: 0 }));
  assert.match(saidOf({ step: 0, loss: NaN, scores: scores.slice(0, 1) }), /writes 0 of 30 held-out sentences right\.$/);
  const early = [...scores, { step: 75, sentences: 9, others: 25, exchanged: 2 }];
  assert.match(saidOf({ step: 80, loss: 0.1234, scores: early }), /At step 80 the loss is 0\.12 .*; at step 75, 9 of 30 .* In 16 of the 21 wrong ones, the pronoun was the only mistake\.$/);
  const late = [...early, { step: 100, sentences: 24, others: 30, exchanged: 0 }, { step: 125, sentences: 30, others: 30, exchanged: 0 }];
  assert.match(saidOf({ step: 125, loss: 0.01, scores: late }), /, and 30 of 30 .* are right\. The pronouns came last, at step 125; all else was right at step 100\.$/);
  const worse = [...late, { step: 150, sentences: 28, others: 28, exchanged: 0 }];
  assert.match(saidOf({ step: 150, loss: 0.01, scores: worse }), /, and 28 of 30 .* are right\. In all 2 wrong ones, a word other than the pronoun is wrong\.$/);
  const nearly = [...late, { step: 150, sentences: 29, others: 30, exchanged: 0 }];
  assert.match(saidOf({ step: 150, loss: 0.01, scores: nearly }), /In the wrong one, the pronoun is the only mistake\.$/);
  const together = [...scores, { step: 75, sentences: 30, others: 30, exchanged: 0 }];
  assert.doesNotMatch(saidOf({ step: 75, loss: 0.01, scores: together }), /last/);
  assert.match(saidOf({ step: 75, loss: 0.05, scores, without: ["mask"] }), /sees the word/);
  const turned = [...scores, { step: 75, sentences: 18, others: 21, exchanged: 9 }];
  assert.match(saidOf({ step: 75, loss: 0.00042, scores: turned, without: ["positions"] }), /is 0\.00042 nats.* In 9 of the 12 wrong ones, the two nouns are exchanged\.$/);
  assert.match(saidOf({ step: 60, loss: NaN, scores }), /not a number any more/);
});

test("typed words, and words as a sentence", () => {
  assert.deepEqual(readWords("The Dog, zebra hund!"), { list: ["the", "dog", "zebra", "hund"], unknown: ["zebra", "hund"] });
  assert.deepEqual(readWords(" ").list, []);
  assert.equal(asSentence(["das", "Boot", "weil", "es"]), "Das Boot, weil es.");
  assert.deepEqual([0.00012, 123.4, 0.0561].map(plain), ["0.00012", "123", "0.056"]);
});
