/**
 * Known answers for what Attention, Inside and Backward compute from a pass, on the models that test_engine.py writes.
 */

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { Model } from "../../scratchformer/explorer/web/engine/model.js";
import { matrix, row } from "../../scratchformer/explorer/web/engine/tensor.js";
import { averageOf, chanceOf, chancesWithout, entropyInBits, meanEntropy, rankedBy, tokenChances, verdictOf } from "../../scratchformer/explorer/web/views/attention.js";
import { backwardOrder, needsOf, nudgedLoss, rowLengths, stepAgainst } from "../../scratchformer/explorer/web/views/backward.js";
import { boxesOf, placeBoxes } from "../../scratchformer/explorer/web/views/figure.js";
import { productsOf, softmaxByHand } from "../../scratchformer/explorer/web/views/inside.js";
import { decimal, likeliest, partnerOf, pronounIn, wordOf } from "../../scratchformer/explorer/web/views/sentence.js";
import { stepsOf } from "../../scratchformer/explorer/web/views/steps.js";

const FOLDER = process.env.SCRATCHFORMER_FIXTURES;
if (!FOLDER) throw new Error("run `pytest tests/explorer/test_engine.py`, which writes the models");

const close = (a, b, tolerance, what = "") => assert.ok(Math.abs(a - b) <= tolerance, `${what} ${a} is not ${b}`);
const read = (file) => JSON.parse(fs.readFileSync(path.join(FOLDER, file)));

/** One pass of each model, no head removed. */
const LOADED = fs
  .readdirSync(FOLDER)
  .filter((file) => file.endsWith(".pass.json"))
  .map(read)
  .filter(({ removed }) => !removed.length);
const PASSES = [...new Map(LOADED.map((data) => [data.model, data])).values()].map((data) => {
  const bytes = Uint8Array.from(fs.readFileSync(path.join(FOLDER, `${data.model}.model.bin`))).buffer;
  const model = new Model(read(`${data.model}.model.json`).description, bytes);
  return { name: data.model, model, pass: model.forward(data.sourceIds, data.targetInIds) };
});

test("there are models of both arrangements", () => {
  assert.deepEqual([...new Set(PASSES.map(({ model }) => model.config.norm))].sort(), ["post", "pre"]);
});

test("words as they are shown", () => {
  assert.deepEqual(["▁The", "ing", ".", "</s>", "▁"].map(wordOf), ["The", "·ing", ".", "⟨end⟩", "⟨space⟩"]);
  assert.equal(pronounIn(["Das", "Tier", "weil", "es"]), 3);
  assert.equal(pronounIn(["Hallo"]), 0);
});

test("entropy: four equal weights are 2 bits, one weight is 0 bits", () => {
  assert.equal(entropyInBits([0.25, 0.25, 0.25, 0.25]), 2);
  assert.equal(entropyInBits([0, 1, 0]), 0);
  assert.equal(meanEntropy(matrix(2, 2, Float32Array.of(0.5, 0.5, 0, 1))), 0.5);
  assert.deepEqual(
    [...averageOf([matrix(1, 2, Float32Array.of(1, 0)), matrix(1, 2, Float32Array.of(0.5, 0.5))]).data],
    [0.75, 0.25],
  );
});

test("a head that looks at one word need not be the cause", () => {
  assert.equal(verdictOf(0.911, 0.899, 0.965), "the strongest thread need not be the cause");
  assert.equal(verdictOf(0.911, 0.382, 0.994), "this head matters");
});

test("products: the largest terms, the rest and the sum", () => {
  assert.deepEqual(productsOf([-4, 1, 3], [4, 5, 2], 2), {
    terms: [
      [0, -4, 4, -16],
      [2, 3, 2, 6],
    ],
    others: 1,
    rest: 5,
    sum: -5,
  });
});

test("softmax by hand: scores 0, ln 2, ln 5 and a masked one give eighths", () => {
  const { weights, total } = softmaxByHand([0, Math.log(2), Math.log(5), -Infinity]);
  [1 / 8, 2 / 8, 5 / 8, 0].forEach((weight, i) => close(weights[i], weight, 1e-12));
  close(total, 8 / 5, 1e-12);
});

test("the likeliest come first", () => {
  assert.deepEqual(likeliest([0.25, 0.5, 0.125], 2), [
    { id: 1, probability: 0.5 },
    { id: 0, probability: 0.25 },
  ]);
});

test("a small number without a power of ten", () => {
  assert.deepEqual([-0.00005, 4.2e-7, 0.0031, 0].map((x) => decimal(x, 2)), ["−0.00005", "0.0000004", "0.0031", "0"]);
  assert.equal(decimal(512 ** -0.5 * 4000 ** -0.5, 3, 3), "0.000699"); // the largest learning rate of the paper
});

test("a sentence is compared with one that differs in one word, never with itself", () => {
  const examples = ["It is too hot.", "It is too cold.", "He sleeps."];
  assert.deepEqual(
    [...examples, "He ran."].map((text) => partnerOf(examples, text)),
    [examples[1], examples[0], examples[0], examples[2]],
  );
});

test("the word that a loss needs most is no punctuation", () => {
  const words = ["it", "is", "hot", ".", "⟨end⟩"];
  assert.deepEqual(needsOf(words, [0.05, -0.2, 1, 2, 3]), { most: 2, hardly: 1, words: 3 });
  assert.deepEqual(needsOf(words, [0.05, -0.2, 0, 2, 3]), { most: -1, hardly: 2, words: 3 });
});

test("lengths of gradients, and a step against one", () => {
  assert.deepEqual(rowLengths(matrix(2, 2, Float32Array.of(3, 4, 0, 0))), [5, 0]);
  const { step, promised } = stepAgainst([0, 10], [3, 4], 0.1); // one step of length 1 down a slope of 5
  [-0.6, -0.8].forEach((x, i) => close(step[i], x, 1e-6));
  close(promised, -5, 1e-6);
});

for (const { name, model, pass } of PASSES) {
  const { config } = model;
  const ids = [...pass.stages.keys()];

  test(`${name}: the walk and the picture have every stage once, in order`, () => {
    const steps = stepsOf(ids, config);
    assert.deepEqual(
      steps.flatMap(({ stages }) => stages),
      ids,
    );
    assert.deepEqual(
      steps.map(({ title }) => title).filter((title) => !title || title.includes("undefined")),
      [],
    );
    const boxes = boxesOf(ids);
    assert.deepEqual(
      boxes.flatMap(({ stages }) => stages),
      ids,
    );
    assert.deepEqual(
      boxes.filter(({ title }) => !title),
      [],
    );
    assert.deepEqual(
      steps.filter(({ box }) => !boxes.some(({ id }) => id === box)),
      [],
    );
    assert.equal(steps.filter(({ kind }) => kind === "weights").length, pass.attentions.length);
    assert.deepEqual(
      steps.filter(({ attention }) => attention && !pass.attentions.some(({ id }) => id === attention)),
      [],
    );
    const { places, height } = placeBoxes(boxes, 300, 30);
    for (const place of places.values())
      assert.ok(place.x >= 0 && place.x + place.width <= 300 && place.y >= 0 && place.y + place.height <= height);
    assert.deepEqual(backwardOrder(boxes).at(0).id, "logits");
    assert.deepEqual(backwardOrder(boxes).at(-1).id, "source.embedding");
  });

  test(`${name}: the products add up to the number, and the scores become the weights`, () => {
    for (const stage of pass.stages.values()) {
      const { left, right, bias = 0, relu, result } = stage.explain(1, stage.value.cols - 1);
      if (!left) continue;
      const sum = productsOf(left.values, right.values, 8).sum + bias;
      close(relu ? Math.max(sum, 0) : sum, result, 1e-4, stage.id);
    }
    for (const { scores, heads } of pass.attentions)
      softmaxByHand(row(scores[0], 1)).weights.forEach((weight, j) => close(weight, row(heads[0], 1)[j], 1e-6));
  });

  test(`${name}: a small step against the gradient lowers the loss as promised`, () => {
    const [t, token] = [1, 5];
    const { loss, dlogits } = model.lossOf(pass, t, token);
    const gradient = model.backward(pass, dlogits).get("source.embedding");
    const x = row(pass.stages.get("source.embedding").value, 0);
    assert.equal(nudgedLoss(model, pass, 0, new Float32Array(x.length), t, token), loss);
    const { step, promised } = stepAgainst(x, row(gradient, 0), 0.002);
    close(nudgedLoss(model, pass, 0, step, t, token) - loss, promised, 0.05 * Math.abs(promised) + 1e-5);
    assert.ok(promised < 0);
  });

  test(`${name}: without a head, and the head that a token needs most`, () => {
    const reading = { pass, targetIds: [...pass.targetInIds.slice(1), 1] };
    const [id] = model.headIds;
    const chances = chancesWithout(model, reading, [id]);
    const without = model.forward(pass.sourceIds, pass.targetInIds, { removed: [id] });
    assert.deepEqual(chances, tokenChances(without, reading.targetIds));
    const loss = reading.targetIds.reduce((sum, token, t) => sum + model.lossOf(without, t, token).loss, 0);
    close(-Math.log(chanceOf(chances)), loss, 1e-4);
    const effects = new Map(model.headIds.map((one) => [one, chancesWithout(model, reading, [one])]));
    const ranked = rankedBy(effects, 1).map(([, those]) => those[1]);
    assert.deepEqual(ranked, [...ranked].sort((a, b) => a - b));
    assert.equal(ranked.length, model.headIds.length);
  });
}
