/** The view that walks one sentence through every stage, forward or backward, and shows how each number is made. */

import { button, choice, figure, fixed, h, heatmap, largestOf, number, percent, say, strip, table, words } from "../dom.js";
import { scoreGradients } from "../engine/explain.js";
import { row } from "../engine/tensor.js";
import { boxesOf, figureOne } from "./figure.js";
import { SHOWN, adamSentence, adamStep, byHand, lossTexts, mostAlike, scheduleOf, smoothingText, strong } from "./hand.js";
import { argmax, barOf, currentSentence, decimal, focusOf, lessonLink, likeliest, named, pronounIn, quoted, readingForm, rowName, sentenceParameter } from "./sentence.js";
import { backwardStepsOf, codeOf, linesOf, stepsOf, visited } from "./steps.js";

const ROLES = { q: "query", k: "key", v: "value" };
const IN_A_BOX = 24; // numbers of a vector in a box of Figure 1
const MS_A_STEP = 1200; // while it plays
const NOTHING = 5e-10; // a gradient so small is only rounding

function mount(root, page) {
  const { model } = page;
  const { config } = model;
  const { source: sourceLang, target: targetLang } = page.data.languages;
  const given = page.parameters;
  const numberOf = (name, otherwise) => Number.parseInt(given.get(name) ?? otherwise);
  const state = {
    way: given.get("way") === "backward" ? "backward" : "forward",
    step: given.get("step"),
    source: numberOf("source", -1),
    target: numberOf("target", -1),
    head: numberOf("head", 1) - 1,
    at: numberOf("word", -1), // the position whose loss goes backward
    token: numberOf("token", -1),
    picked: null, // { stage, column } of a vector, { column } of a row of weights or words, { stage, weight, i, j }
    weight: null, // the weight that was opened last, for Adam
    all: false, // of a table's lines
    code: false, // of a function's lines
    check: null,
  };
  let timer = 0;
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let follows = !given.has("source"); // backward, the source word is the one with the longest gradient, until one is chosen
  let reading;
  let loss; // { loss, gradients, shares: "reader input" -> what the one sends to the other, adam }
  let walks; // the steps of each way

  const form = readingForm(page, open);
  const picture = h("div", { class: "inside-picture" });
  const place = h("section");
  const hand = h("section", { class: "by-hand", "aria-label": "By hand" });
  const code = h("section");
  root.append(form, h("div", { class: "inside" }, picture, h("div", { class: "inside-panel" }, place)));

  /** What the functions of "by hand" need. */
  const view = { page, state, change, rowsOf, positions, attentionOf, opened, whatOf, weightAt, adam: adamHere };
  Object.defineProperties(view, { reading: { get: () => reading }, loss: { get: () => loss } });

  function open(found) {
    const isNew = reading !== undefined;
    reading = found;
    const forward = stepsOf([...reading.pass.stages.keys()], config);
    walks = { forward, backward: backwardStepsOf(forward, model.memoryId, config.norm) };
    if (!(state.head >= 0 && state.head < config.h)) state.head = 0;
    if (!(state.source >= 0 && state.source < reading.source.length))
      state.source = Math.min(1, reading.source.length - 1);
    if (isNew || !(state.at >= 0 && state.at < reading.written.length)) state.at = pronounIn(reading.written);
    if (isNew || !(state.token > 0 && state.token < config.vocab_size)) state.token = reading.targetIds[state.at];
    if (!(state.target >= 0 && state.target < reading.written.length)) state.target = state.at;
    Object.assign(state, { picked: null, weight: null, check: null });
    loss = null;
    draw();
  }

  function change(changes) {
    stop();
    update(changes);
  }

  function update(changes) {
    if (changes.step || changes.way) changes = { picked: null, all: false, ...changes };
    if (changes.picked?.weight !== undefined) changes = { weight: changes.picked, ...changes };
    if ("at" in changes || "token" in changes) loss = null;
    if ("source" in changes) follows = false;
    Object.assign(state, { check: null }, changes);
    draw();
  }

  // Steps ---------------------------------------------------------------------------------------------------------------

  /** The step that is shown: that of the address, or the one nearest to it of this way. */
  function stepHere() {
    const steps = walks[state.way];
    const near = { "source.text": "source.embedding", "target.text": "target.embedding", softmax: "logits", adam: "source.embedding" };
    return steps.find(({ id }) => id === state.step) ?? steps.find(({ id }) => id === near[state.step]) ?? steps.find(({ kind }) => ["weights", "loss"].includes(kind));
  }

  function walk(by, go = change) {
    const step = stepHere();
    const steps = visited(walks[state.way], step);
    const next = steps[steps.indexOf(step) + by];
    if (next) go({ step: next.id });
    return Boolean(next);
  }

  function play() {
    timer = setInterval(() => walk(1, update) || (stop(), draw()), MS_A_STEP);
    draw();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
  }

  const onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || !reading || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest?.("input, select, textarea, nav, .scroll, [role=toolbar]")) return;
    event.preventDefault();
    walk(by);
  };
  document.addEventListener("keydown", onkeydown);

  // What stands where ---------------------------------------------------------------------------------------------------

  /** The decoder's positions: what it has read last, and what it must write. */
  function positions() {
    return reading.read.map((word, i) => `${word} → ${reading.written[i]}`);
  }

  /** The words of a stage's rows, and the chosen one: cross-attention's keys and values belong to the source words. */
  function rowsOf(id) {
    return reading.pass.stages.get(id).side === "source"
      ? { side: "source", names: reading.source, at: state.source, lang: sourceLang }
      : { side: "target", names: positions(), at: state.target, lang: targetLang };
  }

  /** The values of a stage, or, backward, their gradients. */
  function matrixOf(id) {
    return state.way === "forward" ? reading.pass.stages.get(id).value : loss.gradients.get(id);
  }

  function attentionOf(step) {
    const prefix = step.id.replace(".weights", "");
    const attention = reading.pass.attentions.find(({ id }) => id === step.attention);
    const { side } = reading.pass.stages.get(`${prefix}.k`);
    const keys = side === "source" ? reading.source : reading.read;
    return { attention, prefix, ...rowsOf(`${prefix}.q`), keys, keyLang: side === "source" ? sourceLang : targetLang };
  }

  function computeLoss() {
    const { loss: value, probability, dlogits } = model.lossOf(reading.pass, state.at, state.token);
    const shares = new Map();
    const gradients = model.backward(reading.pass, dlogits, (reader, input, share) => shares.set(`${reader} ${input}`, share));
    loss = { loss: value, probability, gradients, shares, adam: null };
    const { data, rows } = gradients.get("source.embedding");
    const lengths = Array.from({ length: rows }, (_, i) => Math.hypot(...row({ data, cols: data.length / rows }, i)));
    if (follows) state.source = argmax(lengths);
  }

  /** The weight that Adam's step shows: the one opened last, or the one with the largest gradient at the embeddings. */
  function weightAt() {
    const { stage, weight, i, j } = state.weight ?? largestWeights("source.embedding", 0, 1)[0];
    const { name, data, rows, cols } = reading.pass.stages.get(stage).weights[weight];
    return { data, index: i * cols + j, name: nameOfWeight(name, rows, i, j) };
  }

  function adamHere() {
    const { data, index } = weightAt();
    if (loss.adam?.data !== data || loss.adam.index !== index)
      loss.adam = { data, index, ...adamStep(model, reading.pass, state, data, index, scheduleOf(page)[0]) };
    return loss.adam;
  }

  function nameOfWeight(name, rows, i, j) {
    if (rows === 1) return `${name}[${j}]`;
    return name === "E" ? `E[${reading.nameOf(i)}, ${j}]` : `${name}[${i}, ${j}]`;
  }

  /** The places of the largest gradients of a weight of a stage: [{ stage, weight, i, j, gradient }]. */
  function largestWeights(id, weight, count) {
    const stage = reading.pass.stages.get(id);
    const { cols, data } = stage.weightGradients(loss.gradients.get(id))[weight];
    const found = [];
    for (let at = 0; at < data.length; at++) {
      const size = Math.abs(data[at]);
      if (found.length === count && size <= Math.abs(found.at(-1).gradient)) continue;
      const before = found.findLastIndex(({ gradient }) => Math.abs(gradient) >= size);
      found.splice(before + 1, 0, { stage: id, weight, i: Math.floor(at / cols), j: at % cols, gradient: data[at] });
      found.length = Math.min(found.length, count);
    }
    return found;
  }

  // Drawing -------------------------------------------------------------------------------------------------------------

  function draw() {
    const focus = focusOf(root);
    const hasFocus = root.contains(document.activeElement);
    if (state.way === "backward" && !loss) computeLoss();
    const step = stepHere();
    state.step = step.id;
    if (step.kind === "loss") state.target = state.at;
    page.go("inside", {
      ...sentenceParameter(page, reading.text),
      way: state.way === "backward" ? "backward" : null,
      step: step.id,
      source: state.source,
      target: state.target,
      head: state.head + 1,
      word: state.way === "backward" ? state.at : null,
      token: state.way === "backward" && state.token !== reading.targetIds[state.at] ? state.token : null,
    });
    drawPicture(step);
    drawStep(step);
    hand.replaceChildren(...byHand(view, step));
    code.replaceChildren(codeOfStep(step));
    focus();
    if (hasFocus && !root.contains(document.activeElement)) place.querySelector("h2").focus(); // the control has gone
  }

  function drawPicture(step) {
    const width = Math.min(560, picture.clientWidth || 400);
    const isBack = state.way === "backward";
    const boxes = boxesOf([...reading.pass.stages.keys()], step.isFold ? null : step.fold);
    const boxIn = (one) => (boxes.some(({ id }) => id === one.box) ? one.box : one.fold);
    const steps = walks[state.way];
    const svg = figureOne({
      boxes: boxes.map((box) => (isBack && box.id === "softmax" ? { ...box, title: "Loss" } : box)),
      width,
      label: "Figure 1: choose a box to go there",
      current: boxIn(step),
      reached: new Set(steps.slice(0, steps.indexOf(step) + 1).map(boxIn)),
      onpick: (box) => {
        const last = steps.find(({ isFold, fold }) => isFold && fold === box);
        const found = last ?? steps.find((one) => one.box === box) ?? steps.find(({ id }) => id === box.replace("text", "embedding"));
        change({ step: (found ?? steps[0]).id });
        picture.querySelector(".current")?.focus({ preventScroll: true });
      },
      content: contentOf,
      flow: isBack ? flow() : null,
    });
    const [word, position] = [reading.source[state.source], positions()[state.target]];
    picture.replaceChildren(
      svg,
      h(
        "p",
        { class: "label" },
        "Choose a box. ",
        isBack ? "An arrow is as thick as the gradient that it carries is long (square root). " : "",
        `Beside each name: the first ${IN_A_BOX} numbers of the ${isBack ? "gradient" : "vector"} of `,
        quoted(word, sourceLang),
        " on the left, of ",
        quoted(position, targetLang),
        " on the right. Blue is positive, orange negative.",
      ),
    );
    const current = svg.querySelector(".current rect");
    if (current && picture.scrollHeight > picture.clientHeight)
      picture.scrollTop = Number(current.getAttribute("y")) - picture.clientHeight / 2 + 20;
  }

  /** What stands in a box of the picture: the chosen word's first numbers; in the last box the likeliest word, or the loss. */
  function contentOf({ id, stages }) {
    if (id !== "softmax") return stages.length && id !== "logits" ? rowOfStage(stages.at(-1)).subarray(0, IN_A_BOX) : null;
    if (state.way === "backward") return number(loss.loss);
    const [best] = likeliest(reading.pass.probabilities(state.target), 1);
    return `${reading.nameOf(best.id)} ${percent(best.probability)}`;
  }

  /** See figureOne: the length of what one box sends to another, for the chosen rows; the longest has 1. */
  function flow() {
    const { stages } = reading.pass;
    const at = (id) => (stages.get(id).side === "source" ? state.source : state.target);
    const rowOf = (key) => row(loss.shares.get(key), at(key.split(" ")[1]));
    const longest = largestOf([...loss.shares.keys()].map((key) => Math.hypot(...rowOf(key))));
    return (from, to, isPast) => {
      if (to.id === "softmax") return Math.sqrt(Math.hypot(...row(loss.gradients.get("logits"), state.target)) / Math.SQRT2);
      const readBy = to.stages.map((reader) => `${reader} ${from.stages.at(-1)}`);
      const keys = isPast ? [`${to.id} ${stages.get(to.id).inputs[0]}`] : readBy.filter((key) => loss.shares.has(key));
      if (!keys.length) return 0;
      const sum = keys.map(rowOf).reduce((total, share) => total.map((x, i) => x + share[i]));
      return Math.sqrt(Math.hypot(...sum) / longest);
    };
  }

  function drawStep(step) {
    const steps = visited(walks[state.way], step);
    const at = steps.indexOf(step);
    const options = walks[state.way].map((one) => {
      const i = steps.indexOf(one);
      return [one.id, i < 0 ? `\u00a0\u00a0\u00a0${one.title}` : `${i + 1}. ${one.title}`];
    });
    const onchange = (id) => change({ step: id });
    const select = keyed("step", { label: `step ${at + 1} of ${steps.length}`, options, value: step.id, onchange });
    const way = (id, text) => {
      const pressed = state.way === id;
      const look = { class: pressed ? "button main" : "button", "aria-pressed": String(pressed), "data-key": id };
      return button(text, () => pressed || change({ way: id }), look);
    };
    const ways = h("span", { class: "ways", role: "group", "aria-label": "Direction" }, way("forward", "Forward"), way("backward", "Backward"));
    place.replaceChildren(
      h(
        "div",
        { class: "controls walk" },
        ways,
        button("◀", () => walk(-1), { disabled: at === 0, "data-key": "back", "aria-label": "back" }),
        button("▶", () => walk(1), { disabled: at === steps.length - 1, "data-key": "next", "aria-label": "next" }),
        isStill ? "" : button(timer ? "Pause" : "Play", () => (timer ? (stop(), draw()) : play()), { "data-key": "play" }),
        select,
      ),
      h("h2", { tabindex: -1 }, state.way === "backward" && step.kind === "stage" ? `Gradient: ${step.title}` : step.title),
      h("p", {}, step.about, " ", h("span", { class: "label" }, lessonLink(page, step.lesson))),
    );
    const other = () => button("another word", () => change({ step: "logits" }), { "data-key": "other loss" });
    if (state.way === "backward") place.append(step.kind === "loss" ? lossChooser() : h("p", { class: "equation" }, equation(), " ", other()));
    const isCross = step.id.endsWith(".cross.qkv");
    const choices = h("div", { class: "choices" });
    if (step.kind !== "adam" && step.kind !== "loss") choices.append(picker(step.side, step.kind !== "weights"), isCross ? picker("source") : "");
    const usesHead = step.kind === "weights" || step.stages.some((id) => /\.(q|k|v|heads)$/.test(id));
    if (usesHead && config.h > 1) {
      const heads = Array.from({ length: config.h }, (_, i) => [i, `head ${i + 1}`]);
      const onhead = (value) => change({ head: Number(value), picked: null });
      choices.append(keyed("head", { label: "head", options: heads, value: state.head, onchange: onhead }));
    }
    const drawn = figure(page.data.caption);
    place.append(choices, drawn);
    const drawAdam = () => ({ children: [], sentence: adamSentence(view) });
    const draws = { text: drawText, stage: drawStages, loss: drawStages, weights: drawWeights, softmax: drawSoftmax, adam: drawAdam };
    const { children, sentence, weights = "" } = draws[step.kind](step);
    drawn.prepend(...children);
    drawn.append(...(state.picked?.weight === undefined ? [hand, weights] : [weights, hand]), code);
    say(drawn.sentence, sentence);
  }

  /** The words of a side to choose from, unless the step has a map whose rows they are; and what a row of the decoder is. */
  function picker(side, hasWords = true) {
    const isSource = side === "source";
    const [names, lang] = [isSource ? reading.source : positions(), page.data.languages[side]];
    const [row, read, written] = [names, reading.read, reading.written].map((list) => quoted(list[state.target], lang));
    const label = isSource ? ["source word"] : ["row of the decoder: ", row, " has read ", read, " last and must write ", written];
    const bar = words(names, { label: label[0], selected: state[side], onpick: (i) => change({ [side]: i }) });
    bar.lang = lang;
    named(bar.children, side);
    return h("div", {}, hasWords || !isSource ? h("p", { class: "label" }, label) : "", hasWords ? bar : "");
  }

  // The loss ------------------------------------------------------------------------------------------------------------

  function equation() {
    const texts = lossTexts(loss.loss);
    return ["loss = −ln p(", quoted(reading.nameOf(state.token), targetLang), `) = −ln ${texts.probability} = `, h("strong", {}, texts.loss)];
  }

  function lossChooser() {
    const bar = words(reading.written, {
      label: "The word whose loss goes backward",
      selected: state.at,
      onpick: (i) => change({ at: i, target: i, token: reading.targetIds[i], picked: null }),
    });
    bar.lang = targetLang;
    named(bar.children, "loss");
    const probabilities = reading.pass.probabilities(state.at);
    const ids = likeliest(probabilities, 6).map(({ id }) => id);
    if (!ids.includes(state.token)) ids.push(state.token);
    const select = keyed("token", {
      label: "the right word here is",
      options: ids.map((id) => [id, `${reading.nameOf(id)} (p = ${percent(probabilities[id])})`]),
      value: state.token,
      onchange: (id) => change({ token: Number(id), picked: null }),
    });
    const label = h("p", { class: "label" }, "the loss of which word of the translation?");
    const line = h("div", { class: "controls" }, select, h("p", { class: "equation" }, equation()));
    return h("div", {}, label, bar, line, h("p", { class: "label" }, smoothingText(view)));
  }

  // What a step shows ---------------------------------------------------------------------------------------------------

  function drawText({ side }) {
    const id = `${side}.embedding`;
    const ids = reading.pass.ids[side];
    const token = ids[state[side]];
    const word = quoted(reading.nameOf(token), page.data.languages[side]);
    const sentence = [word, ` is number ${token} of the ${config.vocab_size.toLocaleString("en")} pieces in the vocabulary.`];
    const numbered = (name, k) => name.replace(/ →|$/, (end) => ` ${ids[k]}${end}`); // "weil 60 → es"
    return { children: [stripsOf(id, numbered)], sentence };
  }

  /** The vectors of all positions as colours. */
  function stripsOf(id, nameOf = (word) => word) {
    const { names, at, lang } = rowsOf(id);
    const largest = largestOf(matrixOf(id).data);
    const list = names.map((word, i) => {
      const drawn = openable(id, strip(rowOfStage(id, i), { label: `Vector of ${word}`, largest }), i);
      return h("li", { class: i === at ? "selected" : null }, h("span", { lang }, nameOf(word, i)), drawn);
    });
    return h("ol", { class: "strips" }, list);
  }

  function drawStages(step) {
    const [id] = step.stages;
    const isBack = state.way === "backward";
    const weights = isBack ? drawWeightsOf(step) : "";
    return { children: step.stages.map(drawVector), sentence: (isBack ? gradientSentence : stageSentence)(id), weights };
  }

  function stageSentence(id) {
    const { names, at, lang } = rowsOf(id);
    const vector = rowOfStage(id);
    if (id.endsWith(".hidden")) {
      const on = vector.filter((x) => x > 0).length;
      const count = `, ${on} of the ${vector.length} hidden numbers are on (${percent(on / vector.length)}); the others are 0.`;
      return ["At ", quoted(names[at], lang), count];
    }
    if (id === "logits") {
      const [best] = likeliest(vector, 1);
      const largest = [number(best.probability), " for ", quoted(reading.nameOf(best.id), lang), "."];
      return ["After ", quoted(reading.read[at], lang), ", the largest score is ", ...largest];
    }
    const name = quoted(names[at], lang);
    const { stages } = reading.pass;
    if (id.endsWith(".update")) {
      const [before] = stages.get(id.replace("update", "out")).inputs;
      const ratio = Math.hypot(...vector) / Math.hypot(...row(stages.get(before).value, at));
      return ["The update of ", name, ` is ${number(ratio, 2)} times as long as the vector that it is added to.`];
    }
    if (widthOfHead(id)) return whereItLooks(walks.forward.find((step) => step.id === id.replace(/[^.]+$/, "weights")), id.endsWith("heads"));
    const [side, part] = id.split(".");
    if (part === "embedding") {
      const position = row(stages.get(`${side}.positions`).value, at).map((x, k) => x - vector[k]);
      const ratio = number(Math.hypot(...vector) / Math.hypot(...position), 2);
      return ["The vector of ", name, ` is ${ratio} times as long as that of its position, which is added next.`];
    }
    if (names.length < 2) return [name, " stands alone."];
    const { i, cosine } = mostAlike(matrixOf(id), vector, at);
    const others = side === "source" || side === "encoder" ? "words here" : "rows of the decoder";
    const end = `: the cosine of their vectors is ${fixed(cosine, 2)} (at most 1).`;
    return [`Of the other ${others}, `, quoted(names[i], lang), " is most like ", name, end];
  }

  function gradientSentence(id) {
    const { names, at, lang } = rowsOf(id);
    const vector = rowOfStage(id);
    const word = quoted(reading.nameOf(state.token), targetLang);
    const [largest] = shownColumns(id);
    const gradient = vector[largest];
    if (Math.abs(gradient) < NOTHING) return ["No gradient arrives at ", quoted(names[at], lang), ": the loss of ", word, " does not depend on it."];
    const among = id === "logits" ? "the scores" : `the numbers of this ${ROLES[id.split(".")[3]] ?? "vector"}`;
    return [
      `Of ${among}${widthOfHead(id) ? ` in head ${state.head + 1}` : ""}, the loss of `,
      word,
      " depends most on ",
      ...(id === "logits" ? whatOf(id, largest) : [`number ${largest}`]),
      `: its gradient is ${decimal(gradient, 3, 2)}, so when it grows by 0.01, the loss ${gradient < 0 ? "falls" : "grows"} by about ` +
        `${decimal(Math.abs(gradient) / 100, 3, 2)}.`,
    ];
  }

  /** What a number of the chosen row is called. */
  function whatOf(id, column) {
    const { names, at, lang } = rowsOf(id);
    if (id === "logits") return ["the score of ", quoted(reading.nameOf(column), targetLang)];
    return [`number ${column} of the ${ROLES[id.split(".")[3]] ?? "vector"} of `, quoted(names[at], lang)];
  }

  function rowOfStage(id, at = rowsOf(id).at) {
    return row(matrixOf(id), at);
  }

  /** How many numbers of a vector belong to each head, where heads stand side by side. */
  function widthOfHead(id) {
    return { q: config.d_k, k: config.d_k, v: config.d_v, heads: config.d_v }[id.split(".")[3]];
  }

  /** Opens a number of the chosen word's vector; among heads side by side its head is chosen. */
  function openNumber(id, column, changes = {}) {
    const width = widthOfHead(id);
    change({ ...changes, picked: { stage: id, column }, all: false, ...(width && { head: Math.floor(column / width) }) });
  }

  /** A click on a cell of a strip opens its number; with keys, the field of numbers does. */
  function openable(id, drawn, at) {
    drawn.classList.add("openable");
    drawn.addEventListener("click", ({ clientX }) => {
      const { left, width } = drawn.getBoundingClientRect();
      const { cols } = matrixOf(id);
      const column = Math.min(cols - 1, Math.max(0, Math.floor(((clientX - left) / width) * cols)));
      openNumber(id, column, { [rowsOf(id).side]: at });
    });
    return drawn;
  }

  /** The columns of the largest numbers, among heads side by side those of the chosen head. */
  function shownColumns(id) {
    const width = widthOfHead(id);
    const vector = rowOfStage(id);
    const first = width ? width * state.head : 0;
    const sizes = vector.subarray(first, width ? first + width : undefined).map(id === "logits" && state.way === "forward" ? Number : Math.abs);
    return likeliest(sizes, SHOWN).map((one) => first + one.id);
  }

  /** The number that is open: the chosen one, or the largest of the step's first stage. */
  function opened(step) {
    const id = step.stages[0] ?? `${step.side}.embedding`;
    return state.picked ?? { stage: id, column: shownColumns(id)[0] };
  }

  /** A number as a button that opens it. */
  function cell(key, name, value, isPicked, role, onclick) {
    const look = `number-cell role-${role}${isPicked ? " selected" : ""}`;
    const attributes = { type: "button", class: look, "data-key": key, "aria-pressed": String(isPicked), onclick };
    return h("li", {}, h("button", attributes, name, decimal(value, 3, 3)));
  }

  function drawVector(id) {
    const { names, at, lang } = rowsOf(id);
    const part = id.split(".")[3];
    const isBack = state.way === "backward";
    const role = ROLES[part] ?? (isBack ? "gradient" : "plain");
    const vector = rowOfStage(id, at);
    const { stage, column: open = null } = opened(stepHere());
    const picked = stage === id ? open : null;
    const columns = shownColumns(id);
    const more = vector.length - columns.length;
    if (picked !== null && !columns.includes(picked)) columns.push(picked);
    const cells = columns.map((column) => {
      const name = h("span", { class: "label", lang: id === "logits" ? lang : null }, id === "logits" ? reading.nameOf(column) : String(column));
      return cell(`${id} ${column}`, name, vector[column], picked === column, role, () => openNumber(id, column));
    });
    const first = `${vector.length} numbers, the largest ${widthOfHead(id) ? `of head ${state.head + 1} ` : ""}first`;
    const title = `${isBack ? "gradient of the " : ""}${ROLES[part] ?? (id === "logits" ? "logits" : "vector")} of `;
    const all = h("details", {}, h("summary", {}, `All ${names.length} positions`));
    all.addEventListener("toggle", () => all.append(stripsOf(id)), { once: true });
    const field = numberField("Number", vector.length, `this ${ROLES[part] ?? "vector"}`, `${id} field`, null, () => {
      if (field.value !== "" && field.validity.valid) openNumber(id, field.valueAsNumber);
    });
    return h(
      "section",
      { class: `stage-vector role-${role}` },
      h(
        "div",
        { class: "vector-head" },
        h("h3", {}, title, quoted(names[at], lang), h("span", { class: "label" }, ` ${first}`)),
        more > 0 ? h("label", { class: "label" }, "number ", field) : null,
      ),
      id === "logits" ? null : openable(id, strip(vector, { label: `The ${vector.length} numbers of this vector as colours` }), at),
      h("ol", { class: "number-cells" }, cells),
      id === "logits" ? null : all,
    );
  }

  /** The gradients of the weights of a step's stages, for the weight that is chosen: the largest ones, and any other. */
  function drawWeightsOf(step) {
    const found = step.stages.flatMap((id) => reading.pass.stages.get(id).weights.map((one, weight) => ({ id, weight, ...one })));
    const { picked } = state;
    if (!found.length) return "";
    const chosen = found.find(({ id, weight }) => id === picked?.stage && weight === picked.weight) ?? found[0];
    const { id, weight, name, rows, cols } = chosen;
    const openWeight = (i, j, stage = id, n = weight) => change({ picked: { stage, weight: n, i, j }, all: false });
    const eight = largestWeights(id, weight, SHOWN);
    const isAt = ({ i, j }) => picked?.weight === weight && picked.stage === id && picked.i === i && picked.j === j;
    if (picked?.weight !== undefined && !eight.some(isAt)) {
      const gradients = reading.pass.stages.get(id).weightGradients(loss.gradients.get(id))[weight];
      eight.push({ ...picked, gradient: row(gradients, picked.i)[picked.j] });
    }
    const cells = eight.map((one) => {
      const label = h("span", { class: "label" }, nameOfWeight(name, rows, one.i, one.j));
      return cell(`weight ${id} ${name} ${one.i} ${one.j}`, label, one.gradient, isAt(one), "gradient", () => openWeight(one.i, one.j));
    });
    const openFields = () => {
      if (fields.every((field) => field.value !== "" && field.validity.valid)) openWeight(...fields.map((field) => field.valueAsNumber));
    };
    const at = picked?.weight === undefined ? [null, null] : [picked.i, picked.j];
    const fields = [["Row", rows], ["Column", cols]].map(([label, count], k) =>
      numberField(label, count, name, `weight ${label}`, at[k], openFields),
    );
    if (rows === 1) fields[0].value = 0;
    const select = keyed("weight", {
      label: "gradients of the weights, the largest first",
      options: found.map((one, k) => [k, `${one.name}, ${one.rows === 1 ? one.cols : `${one.rows} × ${one.cols}`}`]),
      value: found.indexOf(chosen),
      onchange: (k) => {
        const [{ i, j }] = largestWeights(found[k].id, found[k].weight, 1);
        openWeight(i, j, found[k].id, found[k].weight);
      },
    });
    const inputs = h("span", { class: "label" }, rows === 1 ? "number " : "row and column ", rows === 1 ? fields[1] : fields);
    const head = h("div", { class: "vector-head" }, select, inputs);
    return h("section", { class: "stage-vector role-gradient" }, head, h("ol", { class: "number-cells" }, cells));
  }

  /** The chosen row of an attention in words. */
  function whoLooks({ side }, { names, at, lang }) {
    return side === "source" ? [quoted(names[at], lang)] : rowName(reading, at, lang);
  }

  /** Where the chosen row looks most in the chosen head, and what its output is made of. */
  function whereItLooks(step, isOutput = false) {
    const here = attentionOf(step);
    const weights = row(here.attention.heads[state.head], here.at);
    const best = argmax(weights);
    const [who, key] = [whoLooks(step, here), quoted(here.keys[best], here.keyLang)];
    const [head, weight] = [`In head ${state.head + 1}, `, percent(weights[best])];
    if (isOutput) return [head, "the value of ", key, ` has the largest weight, ${weight}, in the output of `, ...who, "."];
    return [head, ...who, ` looks ${weight} at `, key, "."];
  }

  function drawWeights(step) {
    const here = attentionOf(step);
    const { attention, prefix, names, at, keys, keyLang } = here;
    const isBack = state.way === "backward";
    const heads = reading.pass.stages.get(`${prefix}.heads`);
    const map = isBack ? scoreGradients(heads, loss.gradients.get(heads.id), state.head).dscores : attention.heads[state.head];
    const line = row(map, at);
    const best = argmax(Array.from(line, Math.abs));
    const cells = heatmap({
      matrix: map,
      rowLabels: names,
      columnLabels: keys,
      label: `The ${isBack ? "gradients of the scores" : "weights"} of head ${state.head + 1}: choose one to see how it is made`,
      role: isBack ? "gradient" : "weight",
      largest: isBack ? largestOf(map.data) : 1,
      selected: [at, state.picked?.column ?? best],
      onpick: (i, j) => change({ [step.side]: i, picked: { column: j }, all: false }),
    });
    named(cells.querySelectorAll("td button"), "cell");
    const drawn = (sentence) => ({ children: [cells], sentence });
    if (!isBack) return drawn(whereItLooks(step));
    const who = whoLooks(step, here);
    const head = `In head ${state.head + 1}, the loss`;
    if (Math.abs(line[best]) < NOTHING) return drawn([`${head} does not depend on where `, ...who, " looks: the gradients are 0."]);
    const end = `: the gradient of this score is ${decimal(line[best], 3, 2)}, the largest of the row.`;
    return drawn([`${head} would fall if `, ...who, ` looked ${line[best] > 0 ? "less" : "more"} at `, quoted(keys[best], keyLang), end]);
  }

  function drawSoftmax() {
    const at = state.target;
    const five = likeliest(reading.pass.probabilities(at), 5);
    const bars = five.map(({ id, probability }) =>
      h("li", {}, h("span", { lang: targetLang }, reading.nameOf(id)), barOf(probability), h("span", { class: "share" }, percent(probability))),
    );
    const [first, second] = five.map(({ id, probability }) => [quoted(reading.nameOf(id), targetLang), ` (${percent(probability)})`]);
    const sentence = ["After ", quoted(reading.read[at], targetLang), " the likeliest next word is ", ...first, ", then ", ...second, "."];
    return { children: [h("ol", { class: "bars" }, bars)], sentence };
  }

  // Code ----------------------------------------------------------------------------------------------------------------

  /** The function of lessons/transformer.py that does this step, where the page has it. */
  function codeOfStep(step) {
    const { picked, way } = state;
    const weight = picked?.weight === undefined ? null : reading.pass.stages.get(picked.stage).weights[picked.weight].name;
    const [name, ...fragments] = codeOf(step, way, weight, config) ?? [];
    const text = page.data.code?.[name];
    if (!text) return "";
    const lines = linesOf(text, fragments, way, state.code).map(({ text: line, isLit, isHalf }) =>
      h("span", { class: `code-line${isLit ? " lit" : ""}${isHalf ? "" : " other"}` }, `${line}\n`),
    );
    const half = way === "forward" ? ": forward runs the lines up to yield" : ": backward runs the lines after yield";
    return h(
      "div",
      { class: "code" },
      h("span", { class: "label" }, `lessons/transformer.py, ${name}${/\byield\b/.test(text) ? half : ""} `),
      button(state.code ? "Show these lines only" : "Show the whole function", () => change({ code: !state.code }), { "data-key": "code" }),
      h("pre", { class: "scroll", tabindex: 0, role: "group", "aria-label": `The function ${name}` }, h("code", {}, lines)),
    );
  }

  const onresize = () => reading && drawPicture(stepHere());
  addEventListener("resize", onresize);
  form.submit(currentSentence(page));
  return () => {
    form.leave();
    stop();
    document.removeEventListener("keydown", onkeydown);
    removeEventListener("resize", onresize);
  };
}

/** A native select that keeps the focus when the view is drawn again. */
function keyed(key, options) {
  const element = choice(options);
  element.querySelector("select").dataset.key = key;
  return element;
}

/** A field for a number from 0 to count − 1. */
function numberField(label, count, what, key, value, onchange) {
  const range = { min: 0, max: count - 1, placeholder: `0–${count - 1}`, "aria-label": `${label} 0 to ${count - 1} of ${what}` };
  return h("input", { type: "number", class: "field", ...range, value, "data-key": key, onchange });
}

export const insideView = {
  id: "inside",
  title: "Inside",
  question: "How is each number made, and each gradient?",
  lead: "Choose a box, a number or a weight, and see how it is made.",
  mount,
};
