/** Known answers: the widgets of the lessons begin with the numbers that the lessons work out by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { attend, exponential, randomWalks, typicalSize } from "../../scratchformer/explorer/web/widgets/scaling.js";
import { attentionRow } from "../../scratchformer/explorer/web/widgets/masks.js";
import { beamSteps } from "../../scratchformer/explorer/web/widgets/beam.js";
import { descend, loss } from "../../scratchformer/explorer/web/widgets/ravine.js";
import { KEYS, QUERIES, VALUES, gradientByHand, keyFor, lookup, lookupBackward } from "../../scratchformer/explorer/web/widgets/soft_lookup.js";
import { countPairs, encode, merge, pairsAfter } from "../../scratchformer/explorer/web/widgets/merges.js";
import { layerNorm } from "../../scratchformer/explorer/web/widgets/norm.js";
import { positionVector, similarity } from "../../scratchformer/explorer/web/widgets/positions.js";
import { products, turned } from "../../scratchformer/explorer/web/widgets/rope.js";

function close(found, expected, tolerance = 1e-6) {
  assert.equal(found.length, expected.length);
  for (const [i, x] of expected.entries())
    assert.ok(Math.abs(found[i] - x) <= tolerance, `${found} is not ${expected}`);
}

const [, QUERY] = QUERIES[0];

test("lesson 04: weights 1/8, 2/8, 5/8 and the answer (1.375, 1.5)", () => {
  const { scores, weights, answer } = lookup(QUERY, KEYS, VALUES);
  close(scores, [0, Math.LN2, Math.log(5)]);
  close(weights, [1 / 8, 2 / 8, 5 / 8]);
  close(answer, [1.375, 1.5]);
});

test("lesson 04: the gradients that the page writes, and finite differences", () => {
  const { weights } = lookup(QUERY, KEYS, VALUES);
  const back = lookupBackward([1, 0], QUERY, KEYS, VALUES, weights);
  close(back.offers, [1, 0, 2]);
  close([back.average], [1.375]);
  close(back.dscores, [-3 / 64, -22 / 64, 25 / 64]);
  close(back.dquery, [0.276, 0.243], 5e-4);
  close(back.dkeys.flat(), [-0.047, 0, -0.344, 0, 0.391, 0], 5e-4);
  close(back.dvalues.flat(), [0.125, 0, 0.25, 0, 0.625, 0]);
  const first = (keys) => lookup(QUERY, keys, VALUES).answer[0];
  const moved = (step) => KEYS.map((key, i) => (i === 2 ? [key[0] + step, key[1]] : key));
  close([(first(moved(0.01)) - first(moved(-0.01))) / 0.02], [back.dkeys[2][0]], 1e-4);
});

test("lesson 04: by hand, a calculator agrees with the digits shown", () => {
  assert.equal(gradientByHand(5 / 8, 2, 1.375, "5/8"), "5/8 · (2 − 1.375) = +0.391");
  assert.equal(gradientByHand(0.94787, 2, 1.91319, "0.948"), "0.9479 · (2 − 1.9132) = +0.082");
});

test("lesson 04: a key with the score that was asked for, and nothing else changed", () => {
  close(keyFor(1, QUERY, [0.3, 7]), [1, 7]);
});

test("lesson 05: the weights and the pushes of figures 2 and 3", () => {
  const dots = [1, 2, 5].map((e) => 8 * Math.log(e));
  const [plain, divided] = [attend(dots, 1), attend(dots, 8)];
  close(plain.weights, [1 / 390882, 256 / 390882, 390625 / 390882]);
  close(divided.weights, [1 / 8, 2 / 8, 5 / 8]);
  close([plain.slopes[1], divided.slopes[1]], [0.00065, 0.1875 / 8], 5e-6);
  close(divided.slopes, [-1 / 256, 6 / 256, -5 / 256]);
});

test("lesson 05: random dot products grow as the root of d_k, and the same seed gives the same ones", () => {
  const walks = randomWalks(4000, 256, 1);
  for (const d_k of [1, 4, 16, 64, 256]) {
    const size = typicalSize(walks.map((walk) => walk[d_k]));
    assert.ok(Math.abs(size / Math.sqrt(d_k) - 1) < 0.05, `${size} for ${d_k}`);
  }
  assert.deepEqual(randomWalks(3, 20, 7), randomWalks(3, 20, 7));
  assert.notDeepEqual(randomWalks(3, 20, 7), randomWalks(3, 20, 8));
});

test("lesson 05: exponentials as a reader knows them", () => {
  const shown = [5 ** 8, 5 ** 16, 2e7, Math.exp(60), Math.exp(-4), 7e-4, 7e-13, 5].map(exponential);
  assert.deepEqual(shown, ["390,625", "153 billion", "20.0 million", "1.1·10^{26}", "0.018", "0.00070", "< 0.000001", "5"]);
});

test("lesson 06: with the mask the results are 0, 3, 6, 8, and future weights exactly 0", () => {
  const rows = [0, 1, 2, 3].map((t) => attentionRow(t, true));
  close(
    rows.map(({ result }) => result),
    [0, 3, 6, 8],
  );
  assert.deepEqual(
    rows.map(({ total }) => total),
    [1, 4, 8, 8],
  );
  for (const [t, { weights }] of rows.entries()) assert.ok(weights.slice(t + 1).every((weight) => weight === 0));
});

test("lesson 06: without the mask, row animal gives 12/20 to the word that it has to write", () => {
  const { weights, total, result } = attentionRow(2, false);
  close([...weights, total, result], [1 / 20, 2 / 20, 5 / 20, 12 / 20, 20, 14.4]);
});

test("lesson 09: position 1, its dot product with 4, and the same 3 apart anywhere", () => {
  close(positionVector(1), [1, 0, Math.SQRT1_2, Math.SQRT1_2]);
  for (const first of [0, 1, 2, 5, 8]) close([similarity(first, first + 3)], [-Math.SQRT1_2]);
});

test("lesson 09: in the table, each hand is half as fast as the one before", () => {
  const row = positionVector(4, 8);
  assert.equal(row.length, 16);
  close(row.slice(0, 6), [0, 1, 0, -1, 1, 0]);
});

test("lesson 12: (1, 1, 5, 5), stretched or shifted, and (1, 3, 5, 7)", () => {
  const { mean, s, n } = layerNorm([1, 1, 5, 5]);
  close([mean, s, ...n], [3, 2, -1, -1, 1, 1]);
  for (const z of [[10, 10, 50, 50], [101, 101, 105, 105]]) close(layerNorm(z).n, [-1, -1, 1, 1]);
  close(layerNorm([1, 3, 5, 7]).n, [-1.34, -0.45, 0.45, 1.34], 5e-3);
  close(layerNorm([1, 1, 5, 5], [1, 1, 2, 1], [0, 0, 0.5, 0]).y, [-1, -1, 2.5, 1]);
});

test("lesson 12: an outlier stays below the root of 3, and equal numbers become 0", () => {
  const [large, larger] = [100, 1e6].map((z) => layerNorm([1, 1, 5, z]).n[3]);
  assert.ok(1.7 < large && large < larger && larger < Math.sqrt(3));
  close(layerNorm([2, 2, 2, 2]).n, [0, 0, 0, 0]);
});

test("lesson 15: where 40 steps lead, and 100", () => {
  const [plain, momentum, adam] = [
    ["gradient descent", 0.0185],
    ["momentum", 0.05],
    ["Adam", 0.05],
  ].map(([way, rate]) => descend(way, rate, [1, 1]));
  close([plain, momentum, adam].map((walk) => loss(walk.at(-1))), [0.011941, 0.000424, 0.000943]);
  close(plain[40], [0.85 ** 40, 0.9815 ** 40]);
  close(momentum[40], [0.01188088, 0.06057732]);
  close(adam[40], [-0.11955326, -0.11955326]);
  close([Math.min(...adam.slice(0, 41).map(([a]) => a))], [-0.14272636]);
  close(descend("gradient descent", 0.021, [1, 1], 60).at(-1), [304.48, 0.28], 5e-3);
  close([loss([1, 1])], [50.5]);
  close([23, 25, 40].map((t) => loss(adam[t])), [0.004493, 0.080215, 0.721796]);
});

test("lesson 17: the five merges of the page, and how they cut its words", () => {
  const merges = [];
  while (pairsAfter(merges).length) merges.push(pairsAfter(merges)[0].pair);
  assert.deepEqual(merges.slice(0, 5), [["n", "d"], ["u", "nd"], ["▁", "und"], ["▁", "H"], ["▁H", "und"]]);
  const cut = (n) => ["▁Hund", "▁hundert", "▁und", "▁rund"].map((word) => encode(word, merges.slice(0, n)).join(" "));
  assert.deepEqual(cut(2), ["▁ H und", "▁ h und e r t", "▁ und", "▁ r und"]);
  assert.deepEqual(cut(5), ["▁Hund", "▁ h und e r t", "▁und", "▁ r und"]);
  assert.deepEqual(cut(merges.length), ["▁Hund", "▁hundert", "▁und", "▁rund"]);
  assert.deepEqual(encode("▁Hunde", merges.slice(0, 5)), ["▁Hund", "e"]);
});

test("lesson 17: two pairs occur 16 times, a a a becomes aa a, and the order of merges counts", () => {
  const words = ["▁Hund", "▁hundert", "▁und", "▁rund"].map((word) => [...word]);
  const [first, second] = countPairs(words, [5, 3, 6, 2]);
  assert.deepEqual([first, second], [{ pair: ["n", "d"], count: 16 }, { pair: ["u", "n"], count: 16 }]);
  assert.deepEqual(merge(["a", "a", "a"], ["a", "a"]), ["aa", "a"]);
  assert.deepEqual(encode("abc", [["b", "c"], ["a", "b"]]), ["a", "bc"]);
});

test("lesson 23: 53°, the table of turned x, and a score of 15 that stays", () => {
  const angle = Math.atan2(4, 3);
  close([...turned([5, 0], angle), ...turned([3, 4], angle)], [3, 4, -1.4, 4.8]);
  close([1, 2].flatMap((t) => [...turned([0, 1], t), ...turned([1, 0], t / 100)]), [-0.84, 0.54, 1, 0.01, -0.91, -0.42, 1, 0.02], 5e-3);
  for (const position of [0, 1, 7, 100]) close(products(position, position), [15, 15]);
  close(products(3, 0), products(45, 42));
  close(products(3, 0), [25 * Math.cos(3 - angle), 25 * Math.cos(0.03 - angle)]);
});

test("lesson 20: the products of the tree, and who is kept", () => {
  const shown = (beam) =>
    beamSteps(beam).map(({ candidates, finished, alive }) =>
      [candidates, finished, alive].map((list) => list.map(({ probability }) => Number(probability.toFixed(6)))),
    );
  assert.deepEqual(shown(1), [
    [[0.6, 0.4], [], [0.6]],
    [[0.3, 0.24], [], [0.3]],
    [[0.18, 0.12], [0.18], [0.12]],
  ]);
  assert.deepEqual(shown(2), [
    [[0.6, 0.4], [], [0.6, 0.4]],
    [[0.36, 0.3, 0.24, 0.06], [], [0.36, 0.3]],
    [
      [0.288, 0.18, 0.12, 0.072],
      [0.288, 0.18],
      [0.12, 0.072],
    ],
  ]);
  const [best] = beamSteps(2)[2].finished;
  assert.deepEqual(best.pieces, ["schlafen", "die Kühe", "</s>"]);
  assert.deepEqual(
    beamSteps(3)[2].alive.map(({ probability }) => Number(probability.toFixed(6))),
    [0.168, 0.12, 0.072],
  );
});
