/** "By hand": how a number of the forward pass, a gradient or a weight's gradient is made, as tables; and their check. */

import { button, fixed, h, number, percent, table } from "../dom.js";
import { explainGradient, explainWeight, scoreGradients } from "../engine/explain.js";
import { inDouble, row } from "../engine/tensor.js";
import { Adam } from "../engine/training.js";
import { argmax, likeliest, quoted, wordOf } from "./sentence.js";

export const SHOWN = 8; // numbers of a vector, and terms of a dot product
const WARMUP = 4000; // the paper's
const STEP = 1e-4; // of a number that is checked

// Arithmetic ----------------------------------------------------------------------------------------------------------

/**
 * The `count` largest products of a dot product by their size, and the sum of the others: { terms: [[i, a, b, product]],
 * others, rest, sum }.
 */
export function productsOf(left, right, count) {
  const terms = Array.from(left, (a, i) => [i, a, right[i], a * right[i]]);
  terms.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3]));
  const total = (list) => list.reduce((sum, term) => sum + term[3], 0);
  return {
    terms: terms.slice(0, count),
    others: Math.max(0, terms.length - count),
    rest: total(terms.slice(count)),
    sum: total(terms),
  };
}

/** Softmax by hand: e to each score less the largest, their sum, and the weights. A score of −∞ gets the weight 0. */
export function softmaxByHand(scores) {
  const largest = Math.max(...scores);
  const powers = Array.from(scores, (score) => Math.exp(score - largest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return { powers, total, weights: powers.map((power) => power / total) };
}

/** A loss and its probability as text, with so many digits that −ln of the one, on a calculator, is the other. */
export function lossTexts(loss) {
  const shown = number(loss, 4);
  const p = Math.exp(-loss);
  const digits = [3, 4, 5, 6, 7, 8].find((count) => number(-Math.log(Number(p.toPrecision(count))), 4) === shown) ?? 9;
  return { probability: p.toPrecision(digits).replace("e-", "e−"), loss: shown };
}

/**
 * The gradient of a number of a stage or of a weight, and the slope of the loss by two passes in which only this number
 * is larger, and smaller: { gradient, slope, higher, lower }, in double precision.
 *
 * loss  of which token at which position: { at, token }
 * one   { stage, i, j }, and `weight` for number [i, j] of that weight of the stage
 */
export function checkOf(model, { sourceIds, targetInIds }, { at, token }, { stage, i, j, weight = null }) {
  const run = (changes) => {
    const pass = model.forward(sourceIds, targetInIds, { changes });
    return { pass, ...model.lossOf(pass, at, token) };
  };
  return inDouble(() => {
    const here = run();
    const gradients = model.backward(here.pass, here.dlogits);
    if (weight === null) {
      const [higher, lower] = [STEP, -STEP].map((step) => run({ [stage]: (value) => (row(value, i)[j] += step) }).loss);
      return { gradient: row(gradients.get(stage), i)[j], slope: (higher - lower) / (2 * STEP), higher, lower };
    }
    const one = here.pass.stages.get(stage).weights[weight];
    const index = i * one.cols + j;
    const before = one.data[index];
    const [higher, lower] = [STEP, -STEP].map((step) => model.withChanged(one, index, step, () => run().loss));
    const width = Math.fround(before + STEP) - Math.fround(before - STEP); // weights are float32 numbers
    const gradient = model.weightGradients(here.pass, gradients).get(one.data)[index];
    return { gradient, slope: (higher - lower) / width, higher, lower };
  });
}

/** In how many digits two numbers agree. */
export function digitsOfAgreement(a, b) {
  return Math.min(16, Math.max(0, Math.floor(-Math.log10(Math.abs(a - b) / Math.max(Math.abs(a), Math.abs(b)) || 1e-16))));
}

/**
 * Adam's first step for all weights: the loss before and after it, and what became of the number at `index` of a weight
 * (its `data`). The weights are then put back.
 */
export function adamStep(model, { sourceIds, targetInIds }, { at, token }, data, index) {
  const rate = model.config.d_model ** -0.5 * WARMUP ** -1.5;
  const run = () => {
    const pass = model.forward(sourceIds, targetInIds);
    return { pass, ...model.lossOf(pass, at, token) };
  };
  const here = inDouble(run);
  const gradients = inDouble(() => model.weightGradients(here.pass, model.backward(here.pass, here.dlogits)));
  const saved = new Map(Array.from(gradients.keys(), (weight) => [weight, weight.slice()]));
  const adam = new Adam(model);
  try {
    adam.step(gradients, rate);
    const { m, v } = adam.moments.get(data);
    const found = { gradient: gradients.get(data)[index], m: m[index], v: v[index], old: saved.get(data)[index], now: data[index] };
    const count = [...saved.keys()].reduce((sum, { length }) => sum + length, 0);
    return { ...found, rate, count, before: here.loss, after: inDouble(run).loss };
  } finally {
    saved.forEach((values, weight) => weight.set(values));
    model.refresh();
  }
}

// Text ----------------------------------------------------------------------------------------------------------------

const digits = (x) => number(x, 4);

/**
 * The engine's sentences with the names that the page has for pieces, and without a full stop after a number, where it
 * looks like a decimal point.
 */
function plain(text) {
  return text
    .replaceAll("▁", "")
    .replace(/<\/?s>|<unk>/g, (piece) => wordOf(piece))
    .replace(/(\d)\.$/, "$1");
}

export function strong(cells) {
  return Object.assign(cells, { strong: true });
}

// Tables --------------------------------------------------------------------------------------------------------------

/**
 * What stands under "By hand" for a step of the view, as elements. `view` is the view's own: page, model, reading, loss,
 * state, steps, change, rowsOf, positions, weightAt.
 */
export function byHand(view, step) {
  const { way, picked } = view.state;
  const titled = (title, children) => [h("h2", {}, title), ...children];
  if (step.kind === "adam") return titled("Adam by hand", handOfAdam(view));
  if (way === "forward") {
    return titled("By hand", { stage: handOfStage, weights: handOfWeight, softmax: handOfSoftmax }[step.kind](view, step));
  }
  if (picked?.weight !== undefined) return titled(`By hand: gradient of ${view.weightAt().name}`, handOfWeightGradient(view, picked));
  if (step.kind === "weights") return titled("By hand", handOfScoreGradient(view, step));
  const { column } = view.opened(step);
  const what = step.kind === "loss" ? `the score of ${view.reading.nameOf(column)}` : `number ${column}`;
  return titled(`By hand: gradient of ${what}`, (step.kind === "loss" ? handOfLoss : handOfGradient)(view, step));
}

/**
 * A dot product, product by product. `names` are those of its terms, their numbers when left out; `after` follows the
 * sum.
 */
function dotTable({ state, change }, { left, right }, after, names = null, show = fixed) {
  const { terms, others, rest, sum } = productsOf(left.values, right.values, state.all ? left.values.length : SHOWN);
  const rows = terms.map(([i, a, b, product]) => [names?.[i] ?? String(i), show(a), show(b), show(product)]);
  if (others) rows.push([`the other ${others} together`, "", "", show(rest)]);
  rows.push(strong(["sum", "", "", show(sum)]), ...after.map(([name, value]) => strong([name, "", "", show(value)])));
  const heads = ["number", ...[left, right].map(({ label }) => plain(label).split(":")[0]), "product"];
  const found = [table("The products, the largest first", heads, rows)];
  if (left.values.length > SHOWN) {
    const text = state.all ? `Show the ${SHOWN} largest products only` : `Show all ${left.values.length} products`;
    found.push(button(text, () => change({ all: !state.all }), { "data-key": "all" }));
  }
  return found;
}

/** Buttons that lead to the steps of these stages. */
function ways({ steps, change }, label, ids) {
  const found = new Set(ids.map((id) => steps.find((step) => step.stages.includes(id))).filter(Boolean));
  if (!found.size) return "";
  return h(
    "p",
    { class: "origins" },
    h("span", { class: "label" }, label),
    Array.from(found, ({ id, title }) => button(title, () => change({ step: id }))),
  );
}

// Forward -------------------------------------------------------------------------------------------------------------

function handOfStage(view, step) {
  const { stage: id, column } = view.opened(step);
  const stage = view.reading.pass.stages.get(id);
  const explanation = renamed(view, stage.explain(view.rowsOf(id).at, column), view.rowsOf(id));
  const { kind, text, parts, result, bias, relu } = explanation;
  const children = [h("p", {}, plain(text))];
  if (explanation.left) {
    const after = bias === undefined ? [] : [["+ bias", bias]];
    if (bias !== undefined || relu) after.push([relu ? "relu(sum + bias)" : "result", result]);
    children.push(...dotTable(view, explanation, after, kind === "mix" ? parts.map(({ label }) => plain(label)) : null));
  } else {
    const rows = parts.map(({ label, value }) => [plain(label), fixed(value)]);
    children.push(table("What it is made of", ["part", "value"], [...rows, strong(["result", fixed(result)])]));
  }
  return [...children, ways(view, "made from ", stage.inputs)];
}

/** The engine calls a row of the decoder by the word that it has read: here it has its whole name, like “weil → es”. */
function renamed({ page, reading }, explanation, { side, at, names }) {
  if (side === "source") return explanation;
  const [piece] = page.tokenizer.pieces([reading.pass.targetInIds[at]]);
  const rename = (text) => text.replace(`“${piece}”`, `“${names[at]}”`);
  const { kind, text, left } = explanation;
  return {
    ...explanation,
    text: kind === "mix" ? text : rename(text), // that of a mix names the word with the largest weight
    ...(left && { left: { ...left, label: rename(left.label) } }),
  };
}

function handOfWeight(view, step) {
  const { state } = view;
  const { attention, prefix, at, keys } = view.attentionOf(step);
  const column = state.picked?.column ?? argmax(row(attention.heads[state.head], at));
  const explanation = renamed(view, attention.explain(state.head, at, column), view.rowsOf(`${prefix}.q`));
  const score = explanation.result;
  const scores = row(attention.scores[state.head], at);
  const { powers, total, weights } = softmaxByHand(scores);
  const rows = keys.map((word, j) => {
    const cells = [word, scores[j] === -Infinity ? "masked" : fixed(scores[j]), fixed(powers[j]), fixed(weights[j])];
    return j === column ? strong(cells) : cells;
  });
  rows.push(["sum", "", fixed(total), fixed(1)]);
  return [
    h("p", {}, plain(explanation.text)),
    ...(score === -Infinity ? [] : dotTable(view, explanation, [[`÷ √d_k = ${number(explanation.divisor)}`, score]])),
    h(
      "p",
      {},
      "Softmax then turns the scores of this row into weights. The largest score is subtracted first, which changes no " +
        "weight.",
    ),
    table("Softmax of this row", ["word", "score", "e^(score − largest)", "weight"], rows),
    ways(view, "made from ", [`${prefix}.q`]),
  ];
}

function handOfSoftmax(view) {
  const { reading, state } = view;
  const vector = row(reading.pass.logits, state.target);
  const five = likeliest(reading.pass.probabilities(state.target), 5);
  const { powers, total, weights } = softmaxByHand(vector);
  const picked = state.picked?.column ?? five[0].id;
  const rows = five.map(({ id }) => {
    const cells = [reading.nameOf(id), fixed(vector[id]), fixed(powers[id]), fixed(weights[id])];
    return id === picked ? strong(cells) : cells;
  });
  const sum = (values) => five.reduce((left, { id }) => left - values[id], values === powers ? total : 1);
  rows.push([`the other ${vector.length - 5}`, "", fixed(sum(powers)), fixed(sum(weights))], ["sum", "", fixed(total), fixed(1)]);
  return [
    h("p", {}, "Each score becomes e^(score − largest), and is divided by the sum over the whole vocabulary."),
    table("Softmax", ["piece", "score", "e^(score − largest)", "probability"], rows),
    ways(view, "made from ", ["logits"]),
  ];
}

// Backward ------------------------------------------------------------------------------------------------------------

/** The terms of a road over positions are named by their words. */
function namesOver({ reading, positions }, side) {
  return side && (side === "source" ? reading.source : positions());
}

function roadTable(view, road) {
  if (road.left.values.length < 2) return [];
  const after = road.divisor === 1 ? [] : [[`÷ ${road.dividedBy} = ${number(road.divisor)}`, road.result]];
  return dotTable(view, road, after, namesOver(view, road.over), digits);
}

function handOfGradient(view, step) {
  const { stage: id, column } = view.opened(step);
  const { reading, loss, rowsOf } = view;
  const { at } = rowsOf(id);
  const { roads, result } = explainGradient(reading.pass, loss.gradients, id, at, column);
  const titleOf = (reader) => reading.pass.stages.get(reader).title;
  const children = [];
  if (roads.length > 1) {
    const rows = roads.map((road) => [titleOf(road.reader), digits(road.result)]);
    children.push(
      h("p", {}, `${roads.length} stages read this number, and what they send back is added:`),
      table("What arrives", ["read by", "gradient"], [...rows, strong(["sum", digits(result)])]),
    );
  }
  for (const road of roads) {
    const products = roadTable(view, road);
    if (roads.length > 1) children.push(h("h3", {}, `${titleOf(road.reader)}: ${digits(road.result)}`));
    children.push(h("p", {}, plain(road.text)), ...products);
    if (!products.length && roads.length === 1)
      children.push(table("What arrives", ["read by", "gradient"], [strong([titleOf(road.reader), digits(result)])]));
  }
  children.push(ways(view, "comes from ", roads.map(({ reader }) => reader)));
  return [checkPart(view, { stage: id, i: at, j: column }), ...children];
}

function handOfLoss(view, step) {
  const { column } = view.opened(step);
  const { reading, loss, state } = view;
  const p = reading.pass.probabilities(state.at)[column];
  const y = column === state.token ? 1 : 0;
  const gradient = row(loss.gradients.get("logits"), state.at)[column];
  const rows = [["p, the model's probability", digits(p)], ["y, 1 for the right word", String(y)], strong(["p − y", digits(gradient)])];
  return [checkPart(view, { stage: "logits", i: state.at, j: column }), table("p − y", ["part", "value"], rows)];
}

function handOfScoreGradient(view, step) {
  const { reading, loss, state } = view;
  const { attention, prefix, at, keys } = view.attentionOf(step);
  const heads = reading.pass.stages.get(`${prefix}.heads`);
  const dheads = loss.gradients.get(heads.id);
  const { dweights, dscores } = scoreGradients(heads, dheads, state.head);
  const column = state.picked?.column ?? argmax(Array.from(row(dscores, at), Math.abs));
  const width = dheads.cols / attention.heads.length;
  const part = (values) => values.subarray(state.head * width, (state.head + 1) * width);
  const side = (label, values) => ({ label, values });
  const v = heads.op.inputs[2].value;
  const weights = row(attention.heads[state.head], at);
  const shared = row(dweights, at).reduce((sum, dw, j) => sum + dw * weights[j], 0);
  const rows = keys.map((word, j) => {
    const values = [weights[j], row(dweights, at)[j], row(dweights, at)[j] * weights[j], row(dscores, at)[j]];
    const cells = [word, ...values.map(digits)];
    return j === column ? strong(cells) : cells;
  });
  const products = { left: side("gradient of the output", part(row(dheads, at))), right: side("value", part(row(v, column))) };
  return [
    h("p", {}, `The gradient of the weight of ${keys[column]} is the gradient of the head's output · its value:`),
    ...dotTable(view, products, [], null, digits),
    h(
      "p",
      {},
      `Softmax's backward: a score gets its weight × (its weight's gradient − ${digits(shared)}), which is the sum of all ` +
        "weights × their gradients.",
    ),
    table("Softmax, backward", ["word", "weight", "its gradient", "weight × gradient", "gradient of the score"], [
      ...rows,
      ["sum", "1", "", digits(shared), "0"],
    ]),
    ways(view, "comes from ", [heads.id]),
  ];
}

/** The gradient of a weight: this step's sum over positions, and the shares of other stages that use the same weight. */
function handOfWeightGradient(view, { stage: id, weight: n, i, j }) {
  const { reading, loss } = view;
  const stages = [...reading.pass.stages.values()];
  const { data } = reading.pass.stages.get(id).weights[n];
  const road = explainWeight(reading.pass.stages.get(id), loss.gradients.get(id), n, i, j);
  const children = [checkPart(view, { stage: id, i, j, weight: n }), h("p", {}, plain(road.text)), ...roadTable(view, road)];
  const users = stages.flatMap((stage) => stage.weights.map((one, k) => [stage, one, k])).filter(([, one]) => one.data === data);
  if (users.length > 1) {
    const shares = users.map(([stage, , k]) => [stage.title, explainWeight(stage, loss.gradients.get(stage.id), k, i, j).result]);
    const total = shares.reduce((sum, [, share]) => sum + share, 0);
    children.push(
      h("p", {}, `The model uses this table ${users.length} times, and the gradients of all uses are added:`),
      table("All uses", ["used by", "gradient"], [...shares.map(([title, x]) => [title, digits(x)]), strong(["sum", digits(total)])]),
    );
  }
  return [...children, h("p", {}, button("Adam's step with this weight", () => view.change({ step: "adam" }), { "data-key": "to adam" }))];
}

/** A button that checks a gradient, and then what it found. */
function checkPart({ page, reading, state, change }, one) {
  const check = () => change({ check: checkOf(page.model, reading.pass, state, one) });
  if (!state.check) return button("Check: nudge this number", check, { "data-key": "check" });
  const { gradient, slope, higher, lower } = state.check;
  const rows = [
    [`loss, the number larger by ${STEP}`, number(higher, 10)],
    [`loss, the number smaller by ${STEP}`, number(lower, 10)],
    strong(["slope: the difference ÷ the difference of the numbers", number(slope, 8)]),
    strong(["gradient by hand", number(gradient, 8)]),
  ];
  const agreed = digitsOfAgreement(gradient, slope);
  const isZero = Math.max(Math.abs(gradient), Math.abs(slope)) < 1e-9;
  const sentence = isZero
    ? "The loss does not depend on this number: nudged both ways, it stays the same, and the gradient is 0."
    : `Nudged both ways, with two more passes, the loss has the slope ${number(slope, 8)}; the gradient by hand is ` +
      `${number(gradient, 8)}. They agree in ${agreed} digits.`;
  return h("div", { class: "check" }, table("Check", ["computed in double precision", "value"], rows), h("p", { class: "note", tabindex: -1, "data-key": "check" }, sentence));
}

// Adam ----------------------------------------------------------------------------------------------------------------

function handOfAdam(view) {
  const { gradient, m, v, old, now, rate } = view.adam();
  const { name } = view.weightAt();
  const rows = [
    [`gradient of ${name}`, digits(gradient)],
    ["m = 0.9 · 0 + 0.1 × gradient", digits(m)],
    ["v = 0.98 · 0 + 0.02 × gradient²", digits(v)],
    ["m ÷ (1 − 0.9), since m began at 0", digits(m / 0.1)],
    ["√(v ÷ (1 − 0.98)), since v began at 0", digits(Math.sqrt(v / 0.02))],
    [`learning rate of step 1: 1/√${view.page.model.config.d_model} × ${WARMUP}^−1.5`, digits(rate)],
    ["old value", number(old, 9)],
    strong(["new value = old − rate × m̂ ÷ √v̂", number(now, 9)]),
  ];
  return [table("Adam by hand", ["part", "value"], rows)];
}

/** The sentence of Adam's step. */
export function adamSentence({ page, reading, state, adam }) {
  const { count, before, after, gradient, rate } = adam();
  const lang = page.data.languages.target;
  const moved = gradient === 0 ? "This weight has the gradient 0 and stays" : `This weight moves by the learning rate, ${number(rate)}`;
  return [
    `${moved}. After all ${count.toLocaleString("en")} weights have taken their step, the loss of `,
    quoted(reading.nameOf(state.token), lang),
    ` goes from ${number(before, 6)} to ${number(after, 6)}${after < before ? ` (${percent(1 - after / before)} less)` : ""}.`,
  ];
}
