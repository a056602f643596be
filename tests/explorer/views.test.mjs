/**
 * Known answers for what Attention and Inside compute from a pass, on the models that test_engine.py writes.
 */

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { Model, Pass } from "../../scratchformer/explorer/web/engine/model.js";
import { matrix, row, softmax } from "../../scratchformer/explorer/web/engine/tensor.js";
import { averageOf, chanceOf, chancesWithout, entropyInBits, meanEntropy, ordinal, rankedBy, tokenChances, verdictOf } from "../../scratchformer/explorer/web/views/attention.js";
import { boxesOf, placeBoxes } from "../../scratchformer/explorer/web/views/figure.js";
import { STEPS, explainGradient, explainWeight, scoreGradients } from "../../scratchformer/explorer/web/engine/explain.js";
import { adamStep, adamWorked, checkOf, digitsOfAgreement, lossTexts, mostAlike, numberOf, productsOf, softmaxBackWorked, softmaxWorked, spreadOf, worked } from "../../scratchformer/explorer/web/views/hand.js";
import { argmax, decimal, likeliest, partnerOf, pronounIn, wordOf } from "../../scratchformer/explorer/web/views/sentence.js";
import { chancesAfter, chancesThrough, withMoves } from "../../scratchformer/explorer/web/views/transplant.js";
import { CODE, backwardStepsOf, codeOf, linesOf, stepsOf, visited } from "../../scratchformer/explorer/web/views/steps.js";

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

const ROADS = fs.readdirSync(FOLDER).filter((file) => file.endsWith(".roads.json"));

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

test("what is said about removed heads", () => {
  assert.equal(verdictOf(0.911, 0.899, 0.965), "the strongest thread need not decide the word");
  assert.equal(verdictOf(0.911, 0.382, 0.994), "this head matters");
  assert.deepEqual([1, 2, 3, 4, 11, 22, 113].map(ordinal), ["1st", "2nd", "3rd", "4th", "11th", "22nd", "113th"]);
});

test("products: the largest terms, the rest and the sum", () => {
  assert.deepEqual(productsOf([-4, 1, 3], [4, 5, 2], 2), {
    terms: [
      [0, -4, 4, -16],
      [2, 3, 2, 6],
    ],
    others: 1,
    rest: 5,
  });
});

test("a single product is right to the digits of the shares: √512 × the gradient of an embedding", () => {
  const [factor, gradient] = [Math.sqrt(512), -0.00413419];
  const one = { left: { values: [0, factor] }, right: { values: [0.1, gradient] }, steps: [], result: factor * gradient };
  assert.equal(worked(one).rows[0][3], "−0.093546");
});

test("softmax by hand: scores 0, ln 2, ln 5 and a masked one give eighths", () => {
  const { rows, sum } = softmaxWorked([0, Math.log(2), Math.log(5), -Infinity]);
  assert.deepEqual(rows.map(([, , weight]) => weight), ["0.1250", "0.2500", "0.6250", "0.0000"]);
  assert.equal(sum, "1.6000");
});

test("the vector that is most alike, and its cosine", () => {
  assert.deepEqual(mostAlike(matrix(3, 2, Float32Array.of(1, 0, 3, 4, -6, 0)), Float32Array.of(2, 0), 0), { i: 1, cosine: 0.6 });
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

test("a calculator finds the loss that is shown from the probability that is shown", () => {
  assert.deepEqual(lossTexts(-Math.log(0.9108)), { probability: "0.9108", loss: "0.09343" });
  for (const loss of [0.0934301, 1e-5, 0.5, 3.217, 9.4]) {
    const texts = lossTexts(loss);
    close(-Math.log(Number(texts.probability)), Number(texts.loss.replace("−", "-")), 1e-3 * loss);
  }
  assert.deepEqual([[1, 1.0000001], [2, 2], [0, 0], [1, -1]].map(([a, b]) => digitsOfAgreement(a, b)), [7, 16, 16, 0]);
});

test("each piece of code stands in one line of its function, in the half that the direction runs", () => {
  const file = fs.readFileSync(new URL("../../lessons/transformer.py", import.meta.url), "utf8");
  for (const [way, parts] of Object.entries(CODE))
    for (const [part, [name, ...fragments]] of Object.entries(parts)) {
      const [text] = file.split(/\n\n\n/).filter((one) => new RegExp(`^def ${name}\\(`, "m").test(one));
      for (const fragment of fragments) {
        assert.equal(text.split(fragment).length, 2, `${way}, ${part}: ${fragment} in ${name}`);
        const lit = linesOf(text, [fragment], way).filter(({ isLit }) => isLit);
        assert.deepEqual(lit.map(({ isHalf }) => isHalf), [true], `${way}, ${part}: ${fragment}`);
      }
    }
});

test("another memory that only some rows of the decoder read: NumPy's distributions; all rows are the full exchange", () => {
  assert.ok(ROADS.length > 1);
  for (const file of ROADS) {
    const { model: name, sourceIds, otherIds, place, before, arrays } = read(file);
    const { model } = PASSES.find((one) => one.name === name);
    const numbers = new Float32Array(Uint8Array.from(fs.readFileSync(path.join(FOLDER, file.replace(/json$/, "bin")))).buffer);
    const expected = arrays.map(({ offset, shape }) => numbers.subarray(offset, offset + shape[0]));
    const [memory, other] = [sourceIds, otherIds].map((ids) => model.encode(new Pass(model, ids, [])).value);
    const changed = withMoves(memory, other, [{ place, from: place }]);
    const last = before.length - 1;
    const roads = [() => false, (t) => t < last, (t) => t === last, () => true];
    const found = roads.map((reads) => chancesThrough(model, sourceIds, before, changed, reads));
    found.forEach((chances, i) => chances.forEach((p, id) => close(p, expected[i][id], 1e-4, `${name}, ${arrays[i].name}`)));
    const whole = [memory, changed].map((one) => chancesAfter(model, sourceIds, before, one));
    [0, 3].forEach((i, n) => found[i].forEach((p, id) => close(p, whole[n][id], 1e-6)));
    assert.ok(found[1].some((p, id) => Math.abs(p - found[2][id]) > 1e-3));
  }
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
    const back = backwardStepsOf(steps, model.memoryId, config.norm);
    assert.deepEqual(
      boxes.flatMap(({ stages }) => stages),
      ids,
    );
    assert.deepEqual(
      boxes.filter(({ title }) => !title),
      [],
    );
    assert.deepEqual(
      steps.filter(({ box, fold }) => !boxes.some(({ id }) => id === box || id === fold)),
      [],
    );
    for (let n = 1; n < config.N; n++) {
      const opened = boxesOf(ids, `decoder.${n}`);
      assert.ok(steps.filter(({ fold }) => fold === `decoder.${n}`).every(({ box }) => opened.some(({ id }) => id === box)));
    }
    assert.deepEqual(back.flatMap(({ stages }) => stages).sort(), [...ids].sort());
    assert.deepEqual([back[0].id, back.at(-2).id, back.at(-1).id], ["logits", "source.embedding", "adam"]);
    for (const step of back) assert.doesNotMatch(step.title + step.about, /undefined/, step.id);
    for (const way of [steps, back]) {
      assert.deepEqual(visited(way, way[0]).filter(({ fold, isFold }) => fold && !isFold), []);
      for (const one of way) assert.ok(visited(way, one).includes(one), one.id);
    }
    if (config.norm === "post")
      for (const [way, list] of [["forward", steps.filter(({ kind }) => kind !== "text")], ["backward", back]])
        assert.deepEqual(list.filter((step) => !codeOf(step, way, null, config)).map(({ id }) => id), []);
    assert.equal(steps.filter(({ kind }) => kind === "weights").length, pass.attentions.length);
    assert.deepEqual(
      steps.filter(({ attention }) => attention && !pass.attentions.some(({ id }) => id === attention)),
      [],
    );
    const { places, height } = placeBoxes(boxes, 300);
    for (const place of places.values())
      assert.ok(place.x >= 0 && place.x + place.width <= 300 && place.y >= 0 && place.y + place.height <= height);
  });

  test(`${name}: a calculator finds each number that is shown from those beside it, and it is right`, () => {
    let seed = 1;
    const random = (count) => (seed = (seed * 48271) % 2147483647) % count;
    const sumOf = (numbers) => numbers.reduce((sum, x) => sum + x, 0);
    /** Whether a text is what a number is when it is rounded as the text is. */
    const isShown = (text, x, what) => {
      assert.doesNotMatch(text, /e|NaN|^−0\.?0*$/, what);
      const unit = 10 ** -(text.split(".")[1]?.length ?? 0);
      assert.ok(Math.abs(numberOf(text) - x) <= 0.5001 * unit + 1e-13, `${what}: ${text} is not ${x}`);
    };
    const isWorked = (one, what) => {
      const { rows, rest, sum, steps, result } = worked(one);
      rows.forEach(([, a, b, product]) => isShown(product, numberOf(a) * numberOf(b), what));
      if (one.left) isShown(sum, sumOf(rows.map((texts) => numberOf(texts[3]))) + numberOf(rest), what);
      isShown(result, steps.reduce((x, [sign, , text]) => STEPS[sign](x, numberOf(text)), one.left ? numberOf(sum) : 0), what);
      isShown(result, one.result, `${what}, the number itself`);
      return steps;
    };
    const gradients = model.backward(pass, model.lossOf(pass, 1, 5).dlogits);
    for (const { id, value, inputs, explain, weights, op } of [...pass.stages.values()].flatMap((one) => [one, one, one])) {
      const [i, j] = [random(value.rows), random(value.cols)];
      const steps = isWorked(explain(i, j), id);
      const { roads, result } = explainGradient(pass, gradients, id, i, j);
      roads.forEach((road) => isWorked(road, `gradient of ${id}`));
      if (roads.length > 1) isWorked({ steps: roads.map((road) => ["+", "", road.result]), result }, `gradients of ${id}`);
      weights.forEach(({ rows, cols }, n) => isWorked(explainWeight(pass.stages.get(id), gradients.get(id), n, random(rows), random(cols)), id));
      if (op.kind !== "norm") continue;
      const numbers = row(pass.stages.get(inputs[0]).value, i).map((x, k) => x + (inputs[1] ? row(pass.stages.get(inputs[1]).value, i)[k] : 0));
      const [mean, deviation] = ["−", "÷"].map((sign) => steps.find(([one]) => one === sign)[2]);
      const { rows, sums, means } = spreadOf(Array.from(numbers), config.ln_eps, mean, deviation);
      rows.forEach(([x, square]) => isShown(square, (numberOf(x) - numberOf(mean)) ** 2, id));
      sums.forEach((text, k) => isShown(text, sumOf(rows.map((texts) => numberOf(texts[k]))), id));
      means.forEach((text, k) => isShown(text, numberOf(sums[k]) / numbers.length, id));
      isShown(deviation, Math.sqrt(numberOf(means[1]) + config.ln_eps), id);
    }
    const softmaxes = [[row(pass.logits, 1), likeliest(row(pass.logits, 1), 5).map((one) => one.id)]];
    for (const { id, scores, heads, explain } of pass.attentions) {
      const [head, i] = [random(scores.length), random(scores[0].rows)];
      const line = row(scores[head], i);
      softmaxes.push([line]);
      const s = argmax(line);
      isWorked(explain(head, i, s), id);
      const stage = [...pass.stages.values()].find(({ op }) => op.weights === heads);
      const { dweights, dscores } = scoreGradients(stage, gradients.get(stage.id), head);
      const { rows, sum } = softmaxBackWorked(row(heads[head], i), row(dweights, i), row(dscores, i));
      rows.forEach(([w, dw, product, ds]) => {
        isShown(product, numberOf(w) * numberOf(dw), id);
        isShown(ds, numberOf(w) * (numberOf(dw) - numberOf(sum)), id);
      });
      isShown(sum, sumOf(rows.map((texts) => numberOf(texts[2]))), id);
    }
    for (const [scores, shown] of softmaxes) {
      const { rows, rest, sum } = softmaxWorked(scores, shown);
      const largest = Math.max(...rows.map(([score]) => (score === "masked" ? -Infinity : numberOf(score))));
      rows.forEach(([score, power, weight], k) => {
        isShown(power, score === "masked" ? 0 : Math.exp(numberOf(score) - largest), "softmax");
        isShown(weight, numberOf(power) / numberOf(sum), "softmax");
        close(numberOf(weight), softmax(scores)[shown?.[k] ?? k], 6e-5, "softmax");
      });
      isShown(sum, sumOf(rows.map((texts) => numberOf(texts[1]))) + numberOf(rest[0]), "softmax");
    }
    for (const gradient of [0.018745065, -3.2e-7, 0.5]) {
      const texts = adamWorked({ gradient, old: 0.123456789, rate: 1.1048543e-5 });
      const { m, v, mean, root, rate, old, now } = Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, numberOf(text)]));
      isShown(texts.m, 0.1 * numberOf(texts.gradient), "m");
      isShown(texts.v, 0.02 * numberOf(texts.gradient) ** 2, "v");
      isShown(texts.mean, m / 0.1, "mean");
      isShown(texts.root, Math.sqrt(v / 0.02), "root");
      isShown(texts.now, old - (rate * mean) / (root + 1e-9), "now");
      assert.notEqual(now, old);
    }
  });

  test(`${name}: a nudge of a number finds its gradient; Adam's step lowers the loss and is taken back`, () => {
    const loss = { at: 1, token: 5 };
    for (const [id, n] of [["source.embedding", 0], ["encoder.0.ff.hidden", 0], [model.memoryId, 0], ["logits", 0]]) {
      const { weights, value } = pass.stages.get(id);
      const [i, j] = [value.rows > 5 ? 5 : 1, 1];
      const found = checkOf(model, pass, loss, { stage: id, i, j });
      close(found.slope, found.gradient, 1e-6 * Math.abs(found.gradient) + 1e-10, id);
      if (!weights.length) continue;
      const ofWeight = checkOf(model, pass, loss, { stage: id, i: id === "logits" ? 5 : 0, j, weight: n });
      close(ofWeight.slope, ofWeight.gradient, 1e-5 * Math.abs(ofWeight.gradient) + 1e-9, `${id}, a weight`);
    }
    const { data } = pass.stages.get("logits").weights[0];
    const before = [...model.forward(pass.sourceIds, pass.targetInIds).logits.data];
    const { after, before: first, old, now, gradient, rate } = adamStep(model, pass, loss, data, data.length - 1, { warmup: 4000, lr_factor: 1 });
    assert.ok(after < first);
    close(now - old, -Math.sign(gradient) * rate, 1e-7 * Math.max(1, Math.abs(old)));
    assert.deepEqual([...model.forward(pass.sourceIds, pass.targetInIds).logits.data], before);
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
