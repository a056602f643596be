/**
 * Compares the engine with NumPy. test_engine.py writes what NumPy computed into a folder and runs this file. The folder
 * has, for several NAMEs, files NAME.model.json (a model), NAME.pass.json (a forward and a backward pass),
 * NAME.training.json (steps of Adam), NAME.searches.json, NAME.translations.json and NAME.tokenizer.json, and many
 * numbers in files that end in .bin.
 */

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { CachedDecoder, beamSearch, lengthPenalty, translate } from "../../scratchformer/explorer/web/engine/beam.js";
import { calculated, explainGradient, explainWeight } from "../../scratchformer/explorer/web/engine/explain.js";
import { Model, Pass } from "../../scratchformer/explorer/web/engine/model.js";
import { inDouble, row, sinusoids } from "../../scratchformer/explorer/web/engine/tensor.js";
import { EOS, Tokenizer } from "../../scratchformer/explorer/web/engine/tokenizer.js";
import { Adam, lossOfPair } from "../../scratchformer/explorer/web/engine/training.js";

const FOLDER = process.env.SCRATCHFORMER_FIXTURES;
if (!FOLDER) throw new Error("run `pytest tests/explorer/test_engine.py`, which writes what this file compares with");

const close = (a, b, tolerance, what) => assert.ok(Math.abs(a - b) <= tolerance, `${what}: ${a} is not ${b}`);
const largest = (data) => data.reduce((most, x) => Math.max(most, Math.abs(x)), 0);

function fixtures(kind) {
  const ending = `.${kind}.json`;
  return fs.readdirSync(FOLDER).filter((file) => file.endsWith(ending)).map((file) => {
    const data = JSON.parse(fs.readFileSync(path.join(FOLDER, file)));
    data.name = file.slice(0, -ending.length);
    const binary = path.join(FOLDER, file.replace(/json$/, "bin"));
    if (fs.existsSync(binary)) data.bytes = Uint8Array.from(fs.readFileSync(binary)).buffer;
    return data;
  });
}

const MODELS = new Map();
for (const { name, description, bytes } of fixtures("model")) {
  MODELS.set(name, { description, bytes, model: new Model(description, bytes) });
}
const TOKENIZERS = new Map();
for (const data of fixtures("tokenizer")) {
  TOKENIZERS.set(data.name, { ...data, tokenizer: new Tokenizer(data.description) });
}
const PASSES = fixtures("pass");
const modelOf = (name) => MODELS.get(name).model;
const passOf = (data) => modelOf(data.model).forward(data.sourceIds, data.targetInIds, { removed: data.removed });

/** name -> { shape, values } */
function arraysOf({ arrays, bytes }) {
  const floats = new Float32Array(bytes);
  const valuesOf = ({ shape, offset }) => floats.subarray(offset, offset + shape.reduce((a, b) => a * b));
  return new Map(arrays.map((array) => [array.name, { shape: array.shape, values: valuesOf(array) }]));
}

/** Every number equals NumPy's, relative to the largest. */
function same(actual, { shape, values }, what) {
  assert.deepEqual([actual.rows, actual.cols], shape, what);
  const allowed = 1e-4 * largest(values);
  const wrong = values.findIndex((value, i) => !(Math.abs(actual.data[i] - value) <= allowed));
  assert.equal(wrong, -1, `${what}, number ${wrong}: ${actual.data[wrong]} is not ${values[wrong]}`);
}

// One pass ------------------------------------------------------------------------------------------------------------

for (const data of PASSES) {
  const expected = arraysOf(data);

  test(`${data.name}: every stage and every attention map are NumPy's`, () => {
    const pass = passOf(data);
    if (!data.removed.length) {
      const names = [...expected.keys()].filter((name) => name.startsWith("value ")).map((name) => name.slice(6));
      assert.deepEqual([...pass.stages.keys()], names);
    }
    for (const { id, value, side, title } of pass.stages.values()) {
      if (expected.has(`value ${id}`)) same(value, expected.get(`value ${id}`), id);
      assert.equal(value.rows, pass.ids[side].length, id);
      assert.ok(!title.includes("undefined"), title);
    }
    for (const { id, heads } of pass.attentions) {
      const { shape, values } = expected.get(`attention ${id}`);
      assert.equal(heads.length, shape[0]);
      heads.forEach((weights, head) => {
        const size = shape[1] * shape[2];
        const map = { shape: shape.slice(1), values: values.subarray(head * size, (head + 1) * size) };
        same(weights, map, `${id}.${head}`);
      });
    }
  });

  test(`${data.name}: the loss and the gradient of every stage are NumPy's`, () => {
    const pass = passOf(data);
    const { loss, probability, dlogits } = modelOf(data.model).lossOf(pass, data.position, data.token);
    close(loss, data.loss, 1e-4, "loss");
    close(probability, Math.exp(-data.loss), 1e-4, "probability");
    const gradients = modelOf(data.model).backward(pass, dlogits);
    assert.deepEqual([...gradients.keys()], [...pass.stages.keys()]);
    for (const [id, gradient] of gradients) {
      if (expected.has(`gradient ${id}`)) same(gradient, expected.get(`gradient ${id}`), id);
    }
  });

  test(`${data.name}: what explains a number makes it`, () => {
    const pass = passOf(data);
    for (const stage of pass.stages.values()) {
      for (const [i, j] of sampled(stage.value)) {
        const explanation = stage.explain(i, j);
        const value = row(stage.value, i)[j];
        assert.equal(explanation.result, value);
        close(calculated(explanation), value, 1e-4 * Math.max(1, Math.abs(value)), stage.id);
        assert.doesNotMatch(JSON.stringify(explanation.steps), /undefined|NaN/);
        if (explanation.left) assert.equal(explanation.left.values.length, explanation.right.values.length);
      }
    }
    for (const { scores, heads, explain } of pass.attentions) {
      for (const [i, j] of sampled(scores[0])) {
        const explanation = explain(0, i, j);
        const score = row(scores[0], i)[j];
        assert.equal(explanation.result, score);
        if (score === -Infinity) assert.equal(row(heads[0], i)[j], 0);
        else close(calculated(explanation), score, 1e-4 * Math.max(1, Math.abs(score)), "score");
      }
    }
  });
}

for (const data of PASSES) {
  test(`${data.name}: a gradient is the sum of its roads, and that of a weight a sum over positions`, () => {
    const pass = passOf(data);
    const model = modelOf(data.model);
    const gradients = model.backward(pass, model.lossOf(pass, data.position, data.token).dlogits);
    const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
    const check = (road, what) => {
      if (road.left) assert.equal(road.left.values.length, road.right.values.length);
      if (road.over && road.left.values.length) assert.equal(road.left.values.length, pass.ids[road.over].length, what);
      assert.match(road.text, /^[^\n]+\.$/);
      assert.doesNotMatch(JSON.stringify(road), /undefined|NaN|null/);
    };
    for (const stage of pass.stages.values()) {
      const gradient = gradients.get(stage.id);
      if (stage.id !== "logits") {
        for (const [i, j] of sampled(gradient)) {
          const { roads, result } = explainGradient(pass, gradients, stage.id, i, j);
          assert.equal(result, row(gradient, i)[j]);
          roads.forEach((road) => check(road, `${stage.id} by ${road.reader}`));
          close(total(roads.map((road) => road.result)), result, 1e-4 * largest(gradient.data), stage.id);
        }
      }
      stage.weights.forEach(({ data: { length } }, n) => {
        const share = stage.weightGradients(gradient)[n];
        assert.equal(share.data.length, length);
        for (const [i, j] of sampled(share)) {
          const road = explainWeight(stage, gradient, n, i, j);
          check(road, `${stage.id}, weight ${n}`);
          close(road.result, row(share, i)[j], 1e-4 * largest(share.data) + 1e-7, `${stage.id}, weight ${n}`);
        }
      });
    }
  });
}

/** Some cells of a matrix, the corners among them. */
function sampled({ rows, cols }) {
  const cells = [[0, 0], [0, cols - 1], [rows - 1, 0], [rows - 1, cols - 1]];
  for (let n = 1; n < 12; n++) cells.push([(n * 7) % rows, (n * 31) % cols]);
  return cells;
}

const STEP = 1e-5;

test("a gradient is the slope of the loss", () => {
  for (const name of ["post-norm", "pre-norm", "untied, learned positions, no biases"]) {
    const data = PASSES.find((each) => each.name === name);
    const model = modelOf(data.model);
    const lossOf = (changes) => {
      const pass = model.forward(data.sourceIds, data.targetInIds, { changes });
      return { pass, ...model.lossOf(pass, data.position, data.token) };
    };
    inDouble(() => {
      const { pass, dlogits } = lossOf();
      const gradients = model.backward(pass, dlogits);
      const slope = (lossAfter) => (lossAfter(STEP) - lossAfter(-STEP)) / (2 * STEP);
      for (const { id, value } of pass.stages.values()) {
        for (const [i, j] of sampled(value)) {
          const changed = (step) => lossOf({ [id]: (matrix) => (row(matrix, i)[j] += step) }).loss;
          close(slope(changed), row(gradients.get(id), i)[j], 1e-7, `${name} ${id} [${i}, ${j}]`);
        }
      }
      for (const [weight, gradient] of model.weightGradients(pass, gradients)) {
        for (let i = 0; i < weight.length; i += 5) {
          const [before, step] = [weight[i], 2 ** -10]; // float32 numbers, which this step changes exactly enough
          const [higher, lower] = [step, -step].map((by) => [
            model.withChanged({ data: weight }, i, by, () => lossOf().loss),
            Math.fround(before + by),
          ]);
          assert.equal(weight[i], before);
          close((higher[0] - lower[0]) / (higher[1] - lower[1]), gradient[i], 2e-5, `${name}, a weight [${i}]`);
        }
      }
    });
  }
});

test("the decoder reads a memory that was put in the place of the encoder's output", () => {
  const data = PASSES.find(({ name }) => name === "pre-norm");
  const model = modelOf(data.model);
  const memory = model.encode(new Pass(model, [5, 6, EOS], [])).value;
  const changes = { [model.memoryId]: (value) => value.data.set(memory.data) };
  const pass = model.forward([7, 8, EOS], [2], { changes });
  const logits = new CachedDecoder(model, [7, 8, EOS], { memory }).step([2], [0]);
  const right = new CachedDecoder(model, [5, 6, EOS]).step([2], [0]);
  assert.deepEqual(logits.data, right.data);
  same(pass.logits, { shape: [1, right.cols], values: right.data }, "logits");
});

test("a removed head's output is zeros, and its queries get no gradient", () => {
  const data = PASSES.find(({ removed }) => removed[0]?.startsWith("cross.") && removed[0] !== "cross.0.0");
  const model = modelOf(data.model);
  const [, layer, head] = data.removed[0].split(".").map(Number);
  const pass = passOf(data);
  const gradients = model.backward(pass, model.lossOf(pass, 0, 4).dlogits);
  const { d_k, d_v } = model.config;
  const part = (m, width) => Array.from(row(m, 1).subarray(head * width, (head + 1) * width));
  assert.ok(part(pass.stages.get(`decoder.${layer}.cross.heads`).value, d_v).every((x) => x === 0));
  assert.ok(part(gradients.get(`decoder.${layer}.cross.q`), d_k).every((x) => x === 0));
});

test("sinusoids are the paper's", () => {
  close(sinusoids(3, 8)[4], Math.sin(3 / 10000 ** (4 / 8)), 1e-6, "sine");
  close(sinusoids(3, 8)[5], Math.cos(3 / 10000 ** (4 / 8)), 1e-6, "cosine");
});

// Training ------------------------------------------------------------------------------------------------------------

for (const { name, pairs, learningRate, losses, bytes } of fixtures("training")) {
  test(`${name}: losses, gradients of the weights, and steps of Adam are NumPy's`, () => {
    const { description, bytes: start } = MODELS.get(name);
    const [gradientBytes, lastBytes] = [bytes.slice(0, start.byteLength), bytes.slice(start.byteLength)];
    const weightsOf = (ofModel) => {
      const pass = new Model(description, ofModel).forward([4, EOS], [2]); // its stages name the weights
      return [...pass.stages.values()].flatMap(({ id, weights }) => weights.map((weight) => ({ ...weight, where: `${id} ${weight.name}` })));
    };
    const [expected, last] = [gradientBytes, lastBytes].map(weightsOf);
    const model = new Model(description, start.slice());
    const stages = [...model.forward([4, EOS], [2]).stages.values()];
    const actual = stages.flatMap(({ weights }) => weights.map(({ data }) => data));
    const adam = new Adam(model);
    inDouble(() =>
      pairs.forEach(([source, target], step) => {
        const { loss, dlogits, pass } = lossOfPair(model, source, target);
        close(loss, losses[step], 1e-6, `loss of step ${step}`);
        const gradients = model.weightGradients(pass, model.backward(pass, dlogits));
        if (step === 0) {
          assert.equal(new Set(actual).size, gradients.size);
          expected.forEach(({ where, data, rows, cols }, i) => {
            const gradient = gradients.get(actual[i]);
            if (where.endsWith("b_K")) assert.ok(largest(gradient) < 1e-12, where); // no weight of attention depends on it
            else same({ rows, cols, data: gradient }, { shape: [rows, cols], values: data }, `gradient of ${where}`);
          });
        }
        adam.step(gradients, learningRate);
      }),
    );
    last.forEach(({ where, data }, i) => {
      if (where.endsWith("b_K")) return; // Adam makes steps of the rounding of zeros
      data.forEach((value, j) => close(actual[i][j], value, 1e-5, `${where} [${j}] after ${pairs.length} steps`));
    });
    const [{ W, table }, pass] = [model.unembedding, model.forward([4, EOS], [2])];
    close(row(pass.logits, 0)[5], row(new Model(description, lastBytes).forward([4, EOS], [2]).logits, 0)[5], 1e-4, "a logit");
    assert.equal(W.data[1], table.data[table.cols], "the output table follows");
  });
}

// Search --------------------------------------------------------------------------------------------------------------

for (const { name, model, searches } of fixtures("searches")) {
  test(`${name}: the search finds NumPy's hypotheses`, async () => {
    for (const { sourceIds, options, best } of searches) {
      const [found] = await finished(beamSearch(modelOf(model), sourceIds, options));
      const what = `${sourceIds} ${JSON.stringify(options)}`;
      assert.deepEqual(found.ids, best.ids, what);
      close(found.logProbability, best.log_probability, 1e-4, what);
      close(found.score, best.score, 1e-4, what);
    }
  });
}

async function finished(steps) {
  for (;;) {
    const { value, done } = await steps.next();
    if (done) return value;
  }
}

for (const { name, model, translations } of fixtures("translations")) {
  test(`${name}: translations and scores are NumPy's`, async () => {
    for (const { text, options, best } of translations) {
      const found = await translate(modelOf(model), TOKENIZERS.get(model).tokenizer, text, options);
      assert.equal(found.text, best.text, `${text} ${JSON.stringify(options)}`);
      close(found.score, best.score, 1e-4, text);
    }
  });
}

test("the cached decoder computes the logits of a whole pass, also without a head", () => {
  for (const data of PASSES) {
    const decoder = new CachedDecoder(modelOf(data.model), data.sourceIds, { removed: data.removed });
    const pass = passOf(data);
    data.targetInIds.forEach((token, t) => {
      const logits = decoder.step([token], [0]);
      const values = row(pass.logits, t);
      same(logits, { shape: [1, values.length], values }, `${data.name}, position ${t}`);
    });
  }
});

test("a step of the search says what becomes of each candidate", async () => {
  const [{ model, searches }] = fixtures("searches");
  for (const { sourceIds, options } of searches) {
    const steps = [];
    for await (const step of beamSearch(modelOf(model), sourceIds, options)) steps.push(step);
    let before = [{ ids: [] }];
    for (const { position, candidates, alive, finished } of steps) {
      assert.ok(finished.every(({ ids }) => ids.length <= position), "a step has hypotheses of later steps");
      const falling = candidates.map(({ logProbability }) => logProbability);
      assert.deepEqual(falling, [...falling].sort((a, b) => b - a));
      const kept = candidates.filter((candidate) => candidate.kept);
      assert.deepEqual(alive.map(({ ids }) => ids), kept.map(({ parent, token }) => [...before[parent].ids, token]));
      for (const { ended, token, parent } of candidates) {
        if (!ended) continue;
        assert.equal(token, EOS);
        if (options.beam === 1) assert.deepEqual(finished[0].ids, before[parent].ids);
      }
      before = alive;
    }
  }
});

test("the length penalty is that of Wu et al.", () => {
  assert.equal(lengthPenalty(7, 0), 1);
  close(lengthPenalty(7, 1), 2, 1e-12, "penalty");
});

test("a search lets a page draw", async () => {
  const data = PASSES.find(({ name }) => name.startsWith("tiny"));
  let drawn = 0;
  const timer = setInterval(() => drawn++, 1);
  for await (const _ of beamSearch(modelOf(data.model), data.sourceIds, { beam: 8 }));
  clearInterval(timer);
  assert.ok(drawn > 0);
});

// Tokenizer -----------------------------------------------------------------------------------------------------------

for (const { name, encoded, decoded, pieces, tokenizer } of TOKENIZERS.values()) {
  test(`${name}: ids, texts and pieces are sentencepiece's`, () => {
    for (const [text, ids, back] of encoded) {
      assert.deepEqual(tokenizer.encode(text), ids, JSON.stringify(text));
      assert.equal(tokenizer.decode(ids), back);
    }
    for (const [ids, text] of decoded) assert.equal(tokenizer.decode(ids), text, String(ids));
    assert.deepEqual(tokenizer.pieces(pieces.map((_, id) => id)), pieces);
  });
}

// Bad input -----------------------------------------------------------------------------------------------------------

test("sizes that do not fit the weights are refused in one sentence", () => {
  const { description, bytes } = MODELS.get("post-norm");
  const changed = (changes) => () => new Model({ ...description, config: { ...description.config, ...changes } }, bytes);
  const [first] = description.parameters;
  const misplaced = { ...description, parameters: [{ ...first, offset: -1 }] };
  const [embedding, qkv] = ["source_embedding.weight", "self_attention.qkv.weight"];
  const extra = `The description has a parameter encoder.layers.1.${qkv}, which a model of these sizes does not have.`;
  const refused = [
    [changed({ d_model: 16 }), `${embedding} has the shape 11 × 8; with these sizes it must be 11 × 16.`],
    [changed({ N: 3 }), `The description has no parameter encoder.layers.2.${qkv}.`],
    [changed({ N: 1 }), extra],
    [changed({ h: 0 }), "The model's h must be a whole number above 0, not 0."],
    [changed({ norm: "sandwich" }), "The model's norm must be post or pre, not sandwich."],
    [changed({ vocab_size: 12 }), "The tokenizer has 11 pieces, and the model's vocab_size is 12."],
    [() => new Model(misplaced, bytes), `${embedding} stands at -1 to 87 of the weights, and there are 2472.`],
    [() => new Model(description, bytes.slice(0, 96)), `${embedding} stands at 0 to 88 of the weights, and there are 24.`],
  ];
  for (const [build, message] of refused) assert.throws(build, { message });
});

test("impossible ids, heads, losses and settings are refused in one sentence", async () => {
  const model = modelOf("post-norm");
  const learned = modelOf("one head, pre-norm, learned positions");
  const pass = model.forward([4, EOS], [2, 5]);
  const forward = (source, target, options) => () => model.forward(source, target, options);
  const noHead = "There is no head cross.0.2; the heads are encoder.0.0 to cross.1.1.";
  const refused = [
    [forward([], [2]), "The source is empty: it needs at least one token."],
    [forward([4, EOS], []), "The target is empty: it needs at least one token."],
    [forward([11, EOS], [2]), "The source holds the id 11; ids are whole numbers from 1 to 10."],
    [forward([4, EOS], [2, 0]), "The target holds the id 0; ids are whole numbers from 1 to 10."],
    [forward([4, EOS], [2, 4.5]), "The target holds the id 4.5; ids are whole numbers from 1 to 10."],
    [forward(Array(513).fill(4), [2]), "The source has 513 tokens; at most 512 are possible."],
    [() => learned.forward([4, EOS], Array(9).fill(4)), "The target has 9 tokens; at most 8 are possible."],
    [forward([4, EOS], [2], { removed: ["cross.0.2"] }), noHead],
    [() => model.lossOf(pass, 2, 4), "There is no position 2; they are 0 to 1."],
    [() => model.lossOf(pass, 0, 11), "There is no token 11; they are 0 to 10."],
    [() => TOKENIZERS.get("bytes").tokenizer.decode([600]), "There is no piece 600; ids are 0 to 599."],
    [() => new Tokenizer({ pieces: ["a"], scores: [], types: [1] }), "The tokenizer has 1 pieces, 0 scores and 1 types."],
  ];
  for (const [attempt, message] of refused) assert.throws(attempt, { message });
  const never = beamSearch(model, [4, EOS], { beam: 0 });
  await assert.rejects(finished(never), { message: "The beam must be 1 or more and alpha 0 or more, not 0 and 0.6." });
});

test("weights that are too large are refused by the search", async () => {
  const { description, bytes } = MODELS.get("post-norm");
  const large = new Model(description, new Float32Array(bytes).fill(1e30).buffer);
  const message = "The model's probabilities are not finite: its weights are too large.";
  await assert.rejects(finished(beamSearch(large, [4, EOS])), { message });
});
