/** "By hand": how a number of the forward pass, a gradient or a weight's gradient is made, as tables; and their check. */

import { button, fixed, h, largestOf, number, percent, table } from "../dom.js";
import { STEPS, explainGradient, explainWeight, scoreGradients } from "../engine/explain.js";
import { inDouble, row } from "../engine/tensor.js";
import { Adam } from "../engine/training.js";
import { argmax, decimal, likeliest, quoted } from "./sentence.js";

export const SHOWN = 8; // numbers of a vector
const TERMS = 5; // of a dot product
const PAPER = { warmup: 4000, lr_factor: 1 }; // of the learning rate
const STEP = 1e-4; // of a number that is checked

// Arithmetic: what is shown is computed from the numbers that are shown, so that a calculator finds the same -----------

const total = (numbers) => numbers.reduce((sum, x) => sum + x, 0);
const rounded = (x, places) => Number(x.toFixed(places));

/** The decimal places with which the largest of some numbers has so many digits that count. */
function placesOf(numbers, digits, most = 12) {
  return Math.min(most, Math.max(0, digits - 1 - Math.floor(Math.log10(largestOf(numbers)))));
}

/** What `compute(digits)` returns with so many digits that its result is right (`isRight`) to the digits that it shows. */
function enough(compute) {
  for (let digits = 5; ; digits++) {
    const found = compute(digits);
    if (found.isRight || digits === 10) return found;
  }
}

/** The `count` largest products of a dot product by their size, as [i, a, b, product], and the sum of the others. */
export function productsOf(left, right, count) {
  const terms = Array.from(left, (a, i) => [i, a, right[i], a * right[i]]);
  terms.sort((a, b) => Math.abs(b[3]) - Math.abs(a[3]));
  const others = terms.splice(count);
  return { terms, others: others.length, rest: total(others.map(([, , , product]) => product)) };
}

/**
 * A calculation (see explain.js) as texts: { rows: [[i, a, b, product]], others, rest, sum, steps: [[sign, label, text]],
 * result }, where `rest` is the sum of so many `others`.
 */
export function worked({ left, right, steps, result }, count = TERMS) {
  const { terms, others, rest } = productsOf(left?.values ?? [], right?.values ?? [], count);
  const isAdded = ([sign]) => sign === "+" || sign === "−";
  const added = [...terms.map(([, , , product]) => product), rest, ...steps.filter(isAdded).map(([, , x]) => x)];
  const last = Math.min(placesOf([result], 4), placesOf(added, 5));
  const isOne = !steps.length && terms.filter(([, , , product]) => product).length === 1; // then this product is the result
  return enough((digits) => {
    const [a, b] = [1, 2].map((k) => placesOf(terms.map((term) => term[k]), isOne ? digits + 2 : digits));
    const places = placesOf(added, digits);
    const rows = terms.map(([i, x, y]) => [i, rounded(x, a), rounded(y, b)]);
    const products = rows.map(([, x, y]) => rounded(x * y, places));
    const sum = rounded(total(products) + rounded(rest, places), places);
    const done = steps.map((step) => {
      const [sign, label, x] = step;
      const text = x === undefined ? "" : fixed(x, Number.isInteger(x) ? 0 : isAdded(step) ? places : placesOf([x], digits));
      return [sign, label, text];
    });
    const found = fixed(done.reduce((x, [sign, , text]) => STEPS[sign](x, numberOf(text)), sum), last);
    return {
      rows: rows.map(([i, x, y], k) => [i, fixed(x, a), fixed(y, b), fixed(products[k], places)]),
      others,
      rest: fixed(rest, places),
      sum: fixed(sum, places),
      steps: done,
      result: found,
      isRight: found === fixed(result, last) && (!isOne || fixed(sum, places) === fixed(result, places)),
    };
  });
}

/** The number that a text shows. */
export function numberOf(text) {
  return Number(text.replace("−", "-"));
}

/** Mean and deviation of a row of numbers, which are shown elsewhere as these texts: { rows: [[x, square]], ends: two rows }. */
export function spreadOf(numbers, epsilon, mean, deviation) {
  const placesIn = (text) => text.split(".")[1]?.length ?? 0;
  const count = numbers.length;
  return enough((digits) => {
    const places = placesOf(numbers, digits);
    const shown = numbers.map((x) => rounded(x, places));
    const squares = shown.map((x) => rounded((x - numberOf(mean)) ** 2, places));
    const [sum, ofSquares] = [shown, squares].map((list) => rounded(total(list), places));
    const variance = rounded(ofSquares / count, places + 2);
    const found = [fixed(sum / count, placesIn(mean)), fixed(Math.sqrt(variance + epsilon), placesIn(deviation))];
    return {
      rows: shown.map((x, i) => [fixed(x, places), fixed(squares[i], places)]),
      sums: [sum, ofSquares].map((x) => fixed(x, places)),
      means: [mean, fixed(variance, places + 2)],
      isRight: found[0] === mean && found[1] === deviation,
    };
  });
}

/** Softmax as texts, for some of the scores, the largest among them: { rows: [[score, power, weight]], rest, sum }. */
export function softmaxWorked(scores, shown = [...scores.keys()]) {
  const largest = Math.max(...scores);
  const exact = Array.from(scores, (score) => Math.exp(score - largest));
  const others = total(exact) - total(shown.map((i) => exact[i]));
  return enough((digits) => {
    const places = digits - 1;
    const mine = shown.map((i) => (scores[i] === -Infinity ? -Infinity : rounded(scores[i], places)));
    const powers = mine.map((score) => rounded(Math.exp(score - Math.max(...mine)), places));
    const sum = rounded(total(powers) + rounded(others, places), places);
    const weights = powers.map((power) => fixed(power / sum, 4));
    return {
      rows: mine.map((score, k) => [score === -Infinity ? "masked" : fixed(score, places), fixed(powers[k], places), weights[k]]),
      rest: [fixed(others, places), fixed(others / sum, 4)],
      sum: fixed(sum, places),
      isRight: shown.every((i, k) => weights[k] === fixed(exact[i] / total(exact), 4)),
    };
  });
}

/** Softmax's backward as texts: { rows: [[weight, its gradient, product, gradient of the score]], sum of the products }. */
export function softmaxBackWorked(weights, dweights, dscores) {
  const products = dweights.map((dw, j) => dw * weights[j]);
  const last = Math.min(placesOf(dscores, 4), placesOf(dweights, 6));
  return enough((digits) => {
    const [a, b] = [digits - 1, placesOf([...dweights, ...products], digits)];
    const mine = Array.from(weights, (w, j) => [rounded(w, a), rounded(dweights[j], b)]);
    const shares = mine.map(([w, dw]) => rounded(w * dw, b));
    const sum = rounded(total(shares), b);
    const found = mine.map(([w, dw]) => fixed(w * (dw - sum), last));
    return {
      rows: mine.map(([w, dw], j) => [fixed(w, a), fixed(dw, b), fixed(shares[j], b), found[j]]),
      sum: fixed(sum, b),
      isRight: found.every((text, j) => text === fixed(dscores[j], last)),
    };
  });
}

/** A loss and its probability as text, with so many digits that −ln of the one, on a calculator, is the other. */
export function lossTexts(loss) {
  const shown = number(loss, 4);
  const p = Math.exp(-loss);
  const digits = [3, 4, 5, 6, 7, 8].find((count) => number(-Math.log(Number(p.toPrecision(count))), 4) === shown) ?? 9;
  return { probability: p.toPrecision(digits).replace("e-", "e−"), loss: shown };
}

/** Adam's first step of a number as texts, each computed from those before. */
export function adamWorked({ gradient, old, rate }) {
  const text = (x, digits = 4) => fixed(x, placesOf([x], digits, 24));
  const texts = { gradient: text(gradient) };
  texts.m = text(0.1 * numberOf(texts.gradient));
  texts.v = text(0.02 * numberOf(texts.gradient) ** 2, 8);
  texts.mean = text(numberOf(texts.m) / 0.1);
  texts.root = text(Math.sqrt(numberOf(texts.v) / 0.02));
  texts.rate = text(rate);
  const places = placesOf([rate], 4);
  texts.old = fixed(old, places);
  const moved = (numberOf(texts.rate) * numberOf(texts.mean)) / (numberOf(texts.root) + 1e-9);
  texts.now = fixed(numberOf(texts.old) - moved, places);
  return texts;
}

/** Where among the rows of a matrix the vector is whose direction is nearest to that of `vector`: { i, cosine }. */
export function mostAlike(matrix, vector, except) {
  const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
  const length = Math.sqrt(dot(vector, vector));
  const cosineTo = (i, one = row(matrix, i)) => (i === except ? -Infinity : dot(one, vector) / (length * Math.sqrt(dot(one, one)) || 1));
  const cosines = Array.from({ length: matrix.rows }, (_, i) => cosineTo(i));
  const i = argmax(cosines);
  return { i, cosine: cosines[i] };
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
 * (its `data`). The weights are then put back. `schedule`: { warmup, lr_factor } of the learning rate.
 */
export function adamStep(model, { sourceIds, targetInIds }, { at, token }, data, index, schedule) {
  const rate = schedule.lr_factor * model.config.d_model ** -0.5 * schedule.warmup ** -1.5;
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
    const found = { gradient: gradients.get(data)[index], old: saved.get(data)[index], now: data[index] };
    const count = [...saved.keys()].reduce((sum, { length }) => sum + length, 0);
    return { ...found, rate, count, before: here.loss, after: inDouble(run).loss };
  } finally {
    saved.forEach((values, weight) => weight.set(values));
    model.refresh();
  }
}

// Tables --------------------------------------------------------------------------------------------------------------

export function strong(cells) {
  return Object.assign(cells, { strong: true });
}

/**
 * What stands under "By hand" for a step of the view, as elements. `view` is the view's own: page, model, reading, loss,
 * state, change, rowsOf, positions, opened, whatOf, weightAt.
 */
export function byHand(view, step) {
  const { way, picked } = view.state;
  const titled = (title, children) => [h("h2", {}, title), ...children];
  if (step.kind === "adam") return titled("Adam by hand", handOfAdam(view));
  if (picked?.weight !== undefined) return titled(`By hand: gradient of ${view.weightAt().name}`, handOfWeightGradient(view, picked));
  if (step.kind === "weights") return titled("By hand", (way === "forward" ? handOfWeight : handOfScoreGradient)(view, step));
  if (step.kind === "softmax") return titled("By hand", handOfSoftmax(view));
  const { stage, column } = view.opened(step);
  const what = view.whatOf(stage, column);
  if (way === "forward") return titled(["By hand: ", ...what], handOfStage(view, stage, column));
  return titled(["By hand: gradient of ", ...what], (step.kind === "loss" ? handOfLoss : handOfGradient)(view, stage, column));
}

/** A calculation as a table. `names` are those of its products, their numbers when left out. */
function calculationTable({ state, change }, one, names = null) {
  const { left, right } = one;
  const { rows, others, rest, sum, steps, result } = worked(one, state.all ? Infinity : TERMS);
  const line = (label, text) => (left ? [label, "", "", text] : [label, text]);
  const lines = rows.map(([i, ...texts]) => [names?.[i] ?? String(i), ...texts]);
  if (others) lines.push(line(`the other ${others} together`, rest));
  if (left && steps.length) lines.push(line("sum", sum));
  lines.push(...steps.map(([sign, label, text], i) => line(sign === "max" || (!left && !i) ? label : `${sign} ${label}`, text)));
  lines.push(strong(line(left && !steps.length ? "sum" : "result", result)));
  const heads = left ? [names ? "word" : (one.index ?? "number"), left.label, right.label, "product"] : ["part", "value"];
  const found = [table(left ? "The products, the largest first" : "What it is made of", heads, lines)];
  if (left?.values.length > TERMS) {
    const text = state.all ? `Show the ${TERMS} largest products only` : `Show all ${left.values.length} products`;
    found.push(button(text, () => change({ all: !state.all }), { "data-key": "all" }));
  }
  return found;
}

/** The products of positions are named by their words. */
function namesOver({ reading, positions }, side) {
  return side && (side === "source" ? reading.source : positions());
}

// Forward -------------------------------------------------------------------------------------------------------------

function handOfStage(view, id, column) {
  const stage = view.reading.pass.stages.get(id);
  const one = stage.explain(view.rowsOf(id).at, column);
  const drawn = calculationTable(view, one, namesOver(view, one.over));
  return stage.op.kind === "norm" ? [...drawn, ...spreadPart(view, stage, worked(one))] : drawn;
}

/** A button that shows how mean and standard deviation of a row are made, and the table. */
function spreadPart({ state, change, reading, page, rowsOf }, { id, inputs }, { steps }) {
  const text = state.all ? "Hide mean and standard deviation" : "How are mean and standard deviation made?";
  const toggle = button(text, () => change({ all: !state.all }), { "data-key": "all" });
  if (!state.all) return [toggle];
  const rowsIn = inputs.map((input) => row(reading.pass.stages.get(input).value, rowsOf(id).at));
  const numbers = Array.from(rowsIn[0], (x, i) => x + (rowsIn[1]?.[i] ?? 0));
  const textOf = (sign) => steps.find(([one]) => one === sign)[2];
  const [mean, deviation] = [textOf("−"), textOf("÷")];
  const { rows, sums, means } = spreadOf(numbers, page.model.config.ln_eps, mean, deviation);
  const lines = rows.map((texts, i) => [String(i), ...texts]);
  const ends = [["sum", ...sums], strong([`sum ÷ ${numbers.length}`, ...means]), strong([`σ = √(variance + ${decimal(page.model.config.ln_eps)})`, "", deviation])];
  return [toggle, table("Mean and standard deviation", ["number", inputs.length > 1 ? "x + update" : "x", "(it − mean)²"], [...ends, ...lines])];
}

function handOfWeight(view, step) {
  const { attention, names, at, keys } = view.attentionOf(step);
  const head = view.state.head;
  const column = view.state.picked?.column ?? argmax(row(attention.heads[head], at));
  const scores = row(attention.scores[head], at);
  const { rows, sum } = softmaxWorked(scores);
  const one = attention.explain(head, at, column);
  const lines = rows.map((texts, j) => (j === column ? strong : Array.from)([keys[j], ...texts]));
  return [
    ...(scores[column] === -Infinity
      ? [h("p", {}, `${names[at]} must not look at ${keys[column]}, which comes later: the score is −∞ and the weight 0.`)]
      : [h("p", {}, "The score of ", quoted(names[at]), " and ", quoted(keys[column]), ":"), ...calculationTable(view, one)]),
    h("p", {}, "Softmax turns the scores of this row into weights. The largest score is subtracted first, which changes no weight."),
    table("Softmax of this row", ["word", "score", "e^(score − largest)", "weight"], [...lines, ["sum", "", sum, "1"]]),
  ];
}

function handOfSoftmax(view) {
  const { reading, state } = view;
  const vector = row(reading.pass.logits, state.target);
  const five = likeliest(reading.pass.probabilities(state.target), 5).map(({ id }) => id);
  const { rows, rest, sum } = softmaxWorked(vector, five);
  const lines = rows.map((texts, k) => [reading.nameOf(five[k]), ...texts]);
  strong(lines[0]);
  return [
    h("p", {}, "Each score becomes e^(score − largest), and is divided by the sum over the whole vocabulary."),
    table("Softmax", ["piece", "score", "e^(score − largest)", "probability"], [
      ...lines,
      [`the other ${vector.length - 5}`, "", ...rest],
      ["sum", "", sum, "1"],
    ]),
  ];
}

// Backward ------------------------------------------------------------------------------------------------------------

function handOfGradient(view, id, column) {
  const { reading, loss, rowsOf } = view;
  const { at } = rowsOf(id);
  const { roads, result } = explainGradient(reading.pass, loss.gradients, id, at, column);
  const titleOf = ({ reader }) => reading.pass.stages.get(reader).title;
  const children = [];
  if (roads.length > 1) {
    const steps = roads.map((road) => ["+", titleOf(road), road.result]);
    children.push(h("p", {}, `${roads.length} stages read this number, and what they send back is added:`), ...calculationTable(view, { steps, result }));
  }
  for (const road of roads)
    children.push(
      roads.length > 1 ? h("h3", {}, titleOf(road)) : "",
      h("p", {}, road.text),
      ...calculationTable(view, road, namesOver(view, road.over)),
    );
  return [...children, checkPart(view, { stage: id, i: at, j: column })];
}

function handOfLoss(view, id, column) {
  const { reading, loss, state } = view;
  const p = reading.pass.probabilities(state.at)[column];
  const steps = [["+", "p, the model's probability", p], ["−", "y, 1 for the right word", column === state.token ? 1 : 0]];
  const one = { steps, result: row(loss.gradients.get(id), state.at)[column] };
  return [...calculationTable(view, one), checkPart(view, { stage: id, i: state.at, j: column })];
}

/** What label smoothing would change, for a model that was trained with it. */
export function smoothingText({ page, loss, state, reading }) {
  const { label_smoothing: epsilon, right_target: right } = page.data;
  if (!epsilon) return "";
  const { probability } = lossTexts(loss.loss);
  const places = probability.split(".")[1].length;
  const most = Number(right.toPrecision(4));
  const gradient = fixed(Number(probability) - most, Math.max(places, 4)).replace(/^(?=[1-9]|0\.0*[1-9])/, "+");
  return [
    `This is the loss without label smoothing. Training used ${epsilon}: then y of the right word is ${most}, and the gradient at `,
    quoted(reading.nameOf(state.token), page.data.languages.target),
    ` would be ${probability} − ${most} = ${gradient}. So the model never wants more than ${percent(right)}.`,
  ];
}

function handOfScoreGradient(view, step) {
  const { reading, loss, state } = view;
  const { attention, prefix, at, keys } = view.attentionOf(step);
  const heads = reading.pass.stages.get(`${prefix}.heads`);
  const dheads = loss.gradients.get(heads.id);
  const { dweights, dscores } = scoreGradients(heads, dheads, state.head);
  const column = state.picked?.column ?? argmax(Array.from(row(dscores, at), Math.abs));
  const width = dheads.cols / attention.heads.length;
  const part = (label, values) => ({ label, values: values.subarray(state.head * width, (state.head + 1) * width) });
  const [left, right] = [part("gradient of the output", row(dheads, at)), part("value", row(heads.op.inputs[2].value, column))];
  const { rows, sum } = softmaxBackWorked(row(attention.heads[state.head], at), row(dweights, at), row(dscores, at));
  const lines = rows.map((texts, j) => (j === column ? strong : Array.from)([keys[j], ...texts]));
  return [
    h("p", {}, "The gradient of the weight of ", quoted(keys[column]), " is the gradient of the head's output · its value:"),
    ...calculationTable(view, { left, right, steps: [], result: row(dweights, at)[column] }),
    h("p", {}, `Softmax's backward: a score gets its weight × (its weight's gradient − s), where s = ${sum} is the sum of all weights × their gradients.`),
    table("Softmax, backward", ["word", "weight", "its gradient", "weight × gradient", "gradient of the score"], [...lines, ["sum", "1", "", sum, "0"]]),
  ];
}

const USES = { "source.embedding": "source words", "target.embedding": "words so far", logits: "output" };

/** The gradient of a weight: the shares of all stages that use it, and this one's sum over positions. */
function handOfWeightGradient(view, { stage: id, weight: n, i, j }) {
  const { reading, loss } = view;
  const { stages } = reading.pass;
  const { data } = stages.get(id).weights[n];
  const children = [];
  const users = [...stages.values()].flatMap((stage) => stage.weights.flatMap((one, k) => (one.data === data ? [[stage, k]] : [])));
  const sharesOf = ([stage, k]) => ["+", USES[stage.id] ?? stage.title, explainWeight(stage, loss.gradients.get(stage.id), k, i, j).result];
  if (users.length > 1) {
    const steps = users.map(sharesOf);
    const names = steps.map(([, name]) => name).join(", ");
    const sum = { steps, result: total(steps.map(([, , share]) => share)) };
    children.push(h("p", {}, `The model uses this table ${users.length} times: ${names}. The gradients are added:`), ...calculationTable(view, sum));
    children.push(h("h3", {}, `The share of: ${USES[id] ?? stages.get(id).title}`));
  }
  const road = explainWeight(stages.get(id), loss.gradients.get(id), n, i, j);
  return [
    ...children,
    h("p", {}, road.text),
    ...calculationTable(view, road, namesOver(view, road.over)),
    checkPart(view, { stage: id, i, j, weight: n }),
    h("p", {}, button("Adam's step with this weight", () => view.change({ step: "adam" }), { "data-key": "to adam" })),
  ];
}

/** A button that checks a gradient, and then what it found. */
function checkPart({ page, reading, state, change }, one) {
  const check = () => change({ check: checkOf(page.model, reading.pass, state, one) });
  if (!state.check) return button("Check: nudge this number", check, { "data-key": "check" });
  const { gradient, slope, higher, lower } = state.check;
  const rows = [
    [`loss, the number larger by ${STEP}`, number(higher, 10)],
    [`loss, the number smaller by ${STEP}`, number(lower, 10)],
    strong(["slope: the difference ÷ the difference of the numbers", decimal(slope, 8, 8)]),
    strong(["gradient by hand", decimal(gradient, 8, 8)]),
  ];
  const isZero = Math.max(Math.abs(gradient), Math.abs(slope)) < 1e-9;
  const sentence = isZero
    ? "The loss does not depend on this number: nudged both ways, it stays the same, and the gradient is 0."
    : `Nudged both ways, with two more passes, the two agree in ${digitsOfAgreement(gradient, slope)} digits.`;
  return h("div", { class: "check" }, table("Check", ["computed in double precision", "value"], rows), h("p", { class: "note", tabindex: -1, "data-key": "check" }, sentence));
}

// Adam ----------------------------------------------------------------------------------------------------------------

/** The schedule of the run's learning rate, and what it is called: the paper's where the run has another kind. */
export function scheduleOf({ data }) {
  return data.schedule ? [data.schedule, "this run's"] : [PAPER, "the paper's"];
}

function handOfAdam(view) {
  const texts = adamWorked(view.adam());
  const [{ warmup, lr_factor }] = scheduleOf(view.page);
  const factor = lr_factor === 1 ? "" : `${lr_factor} × `;
  const rows = [
    [`gradient of ${view.weightAt().name}`, texts.gradient],
    ["m = 0.9 × 0 + 0.1 × gradient", texts.m],
    ["v = 0.98 × 0 + 0.02 × gradient²", texts.v],
    ["m̂ = m ÷ (1 − 0.9), since m began at 0", texts.mean],
    ["√v̂ = √(v ÷ (1 − 0.98)), since v began at 0", texts.root],
    [`learning rate of step 1: ${factor}1/√${view.page.model.config.d_model} × ${warmup}^−1.5`, texts.rate],
    ["old value", texts.old],
    strong(["new value = old − rate × m̂ ÷ (√v̂ + 10^−9)", texts.now]),
  ];
  return [table("Adam by hand", ["part", "value"], rows)];
}

/** The sentence of Adam's step. */
export function adamSentence({ page, reading, state, adam }) {
  const { count, before, after, gradient, rate } = adam();
  const [{ warmup }, whose] = scheduleOf(page);
  const moved =
    gradient === 0
      ? "This weight has the gradient 0 and stays"
      : `The learning rate of step 1 is ${adamWorked({ gradient, rate, old: 0 }).rate}, with ${whose} warm-up of ${warmup} steps, and this weight moves by it`;
  return [
    `${moved}. After all ${count.toLocaleString("en")} weights have taken their step, the loss of `,
    quoted(reading.nameOf(state.token), page.data.languages.target),
    ` goes from ${number(before, 6)} to ${number(after, 6)}${after < before ? ` (${percent(1 - after / before)} less)` : ""}.`,
  ];
}
