/** Known answers for what the page's parts compute; the engine has its own tests. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { fixed, number, percent, ticks } from "../../scratchformer/explorer/web/dom.js";
import { matrix } from "../../scratchformer/explorer/web/engine/tensor.js";
import { EOS, UNK } from "../../scratchformer/explorer/web/engine/tokenizer.js";
import { editDistance, markChanges, neighboursOf, sourceIdsOf, unknownWords } from "../../scratchformer/explorer/web/views/sentence.js";
import { placeIn, placeOfBars, withMoves } from "../../scratchformer/explorer/web/views/transplant.js";
import { layOut, markBest } from "../../scratchformer/explorer/web/views/tree.js";
import { readHash, readWeights, writeHash } from "../../scratchformer/explorer/web/main.js";

const close = (a, b, tolerance) => assert.ok(Math.abs(a - b) <= tolerance, `${a} is not ${b}`);

test("numbers have a true minus sign and three digits that count", () => {
  const shown = [-1.234, 0, 2.13e-5, 0.62, 4, 999.6, -12345.6, 1e7, NaN].map((x) => number(x));
  assert.deepEqual(shown, ["−1.23", "0", "2.1e−5", "0.620", "4", "1000", "−12346", "1.0e7", "not a number"]);
});

test("no zero has a sign", () => {
  assert.deepEqual([-0, -0.0000123, -0.00005, -1.25].map((x) => fixed(x)), ["0.0000", "0.0000", "−0.0001", "−1.2500"]);
  assert.equal(number(-0), "0");
});

test("only an exact 0 or 1 looks like one in percent", () => {
  const shown = [0, 1e-5, 0.003, 0.62, 0.995, 0.9999, 1].map((x) => percent(x).replace("\u00a0", " "));
  assert.deepEqual(shown, ["0 %", "< 0.1 %", "0.3 %", "62 %", "99.5 %", "> 99.9 %", "100 %"]);
});

test("ticks are round and inside", () => {
  assert.deepEqual(ticks(0, 2000, 4), [0, 500, 1000, 1500, 2000]);
  assert.deepEqual(ticks(0.00013, 0.00061, 3), [0.0002, 0.0004, 0.0006]);
});

test("changed words: those outside the longest common subsequence", () => {
  const changed = (a, b) =>
    markChanges(a, b)
      .filter(([, isNew]) => isNew)
      .map(([word]) => word);
  assert.deepEqual(changed("weil es zu müde war.", "weil sie zu breit war."), ["es", "müde"]);
  assert.deepEqual(changed("weil sie zu breit war.", "weil es zu müde war."), ["sie", "breit"]);
  assert.deepEqual(changed("a b c", "a b c"), []);
  assert.deepEqual(changed("b a", "a b c").length, 1);
});

test("words that the training text has not, and their neighbours", () => {
  const page = { data: { words: ["The", "dog", "dig", "sleeps", "sixty-two"] }, shared: {} };
  assert.deepEqual(unknownWords(page, "The dg, sixty-two!"), [{ word: "dg", start: 4, end: 6 }]);
  const tokenizer = { encode: (text) => [...text].map((letter) => (letter === "Ж" ? UNK : 10)) };
  const found = unknownWords({ data: { words: null }, shared: {}, tokenizer }, "Ж zebra");
  assert.deepEqual(found.map(({ word }) => word), ["Ж"]);
  assert.deepEqual([["dog", "dog"], ["dg", "dog"], ["tired", "tried"], ["", "abc"]].map(([a, b]) => editDistance(a, b)), [0, 1, 2, 3]);
  assert.deepEqual(neighboursOf("dg", ["cat", "dog", "The", "dig"]), ["dog", "dig"]);
  assert.deepEqual(neighboursOf("na", ["nap", "narrow", "an"]), ["nap", "narrow"]); // while she types
});

test("a sentence without pieces or with too many is refused", () => {
  const page = { tokenizer: { encode: (text) => text.split(" ").filter(Boolean).map(Number) } };
  assert.deepEqual(sourceIdsOf(page, "7 8"), [7, 8, EOS]);
  assert.throws(() => sourceIdsOf(page, " "), /Type a sentence first/);
  assert.throws(() => sourceIdsOf(page, "7 ".repeat(41)), /has 41 pieces, and this page shows at most 40/);
});

test("places of two sentences that fit together: the same beginning, the same end", () => {
  const [a, b] = ["It is too very big .", "It is small ."].map((text) => text.split(" "));
  assert.deepEqual([...a.keys()].map((i) => placeIn(a, b, i)), [0, 1, 2, 2, 2, 3]);
  assert.deepEqual([...b.keys()].map((i) => placeIn(b, a, i)), [0, 1, 2, 5]);
  assert.deepEqual([0, 1].map((i) => placeIn(["a", "b"], ["a", "b"], i)), [0, 1]);
  assert.equal(placeIn(["a", "b"], ["b"], 0), 0);
  const [cat, dog] = ["Die Katze ging , weil sie müde ist", "Der Hund ging nicht fort , weil er müde ist"].map((text) => text.split(" "));
  assert.deepEqual([0, 1, 5, 6].map((i) => dog[placeIn(cat, dog, i)]), ["Der", "Hund", "er", "müde"]);
});

test("the place of the bars: where translations first differ, else that of the last word", () => {
  assert.equal(placeOfBars([7, 8, 9, EOS], [7, 5, EOS], () => true), 1);
  assert.equal(placeOfBars([7, EOS], [7, 5, EOS], () => true), 1);
  assert.equal(placeOfBars([7, 8, 9, EOS], [7, 8, 9, EOS], (id) => id === 8), 1);
  assert.equal(placeOfBars([EOS], [EOS], () => false), 0);
});

test("a memory with vectors of another one", () => {
  const [a, b] = [matrix(2, 2, Float32Array.of(1, 2, 3, 4)), matrix(3, 2, Float32Array.of(5, 6, 7, 8, 9, 10))];
  assert.deepEqual([...withMoves(a, b, [{ place: 1, from: 2 }]).data], [1, 2, 9, 10]);
  assert.deepEqual([...a.data], [1, 2, 3, 4]);
});

test("a beam search of two steps as columns", () => {
  const candidate = (parent, token, probability, kept, ended = false) => ({
    parent,
    token,
    logProbability: Math.log(probability),
    kept,
    ended,
  });
  const steps = [
    { candidates: [candidate(0, 7, 0.5, true), candidate(0, 8, 0.4, true), candidate(0, 9, 0.1, false)] },
    { candidates: [candidate(1, 1, 0.36, false, true), candidate(0, 5, 0.3, true), candidate(0, 6, 0.2, false)] },
  ];
  const columns = layOut(steps);
  const second = columns[1].map(({ parent, fate, probability, ids }) => [parent, fate, Number(probability.toFixed(3)), ids]);
  assert.deepEqual(second, [
    [1, "finished", 0.9, [8, 1]],
    [0, "kept", 0.6, [7, 5]],
    [0, "dropped", 0.4, [7, 6]],
  ]);
  markBest(columns, [8, 1]);
  assert.deepEqual(
    columns.flat().map(({ best }) => best),
    [false, true, false, true, false, false],
  );
});

test("addresses come back as they were written", () => {
  const hash = writeHash("attention", { s: "<b> & ä?", layer: 2, head: null });
  const { id, parameters } = readHash(hash);
  assert.equal(id, "attention");
  assert.deepEqual(
    [...parameters],
    [
      ["s", "<b> & ä?"],
      ["layer", "2"],
    ],
  );
  assert.deepEqual(readHash("").id, "");
});

test("damaged weights are refused", () => {
  const base64 = (...numbers) => Buffer.from(Float32Array.from(numbers).buffer).toString("base64");
  assert.deepEqual([...new Float32Array(readWeights(base64(1, 2, 3)))], [1, 2, 3]);
  assert.throws(() => readWeights(base64(1, NaN, 3)), /not a number/);
  assert.throws(() => readWeights("AAAA"), /cut off/);
  assert.throws(() => readWeights("%%%"), /not readable/);
});
