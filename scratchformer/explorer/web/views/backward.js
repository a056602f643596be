/** The view of the gradients: how the loss of one word flows back through every sublayer to the source words. */

import { button, choice, clear, figure, h, heatmap, largestOf, number, percent, range, say, scrolling, strip, table, words } from "../dom.js";
import { Pass } from "../engine/model.js";
import { row } from "../engine/tensor.js";
import { boxesOf, figureOne, widthFor } from "./figure.js";
import { argmax, barOf, currentSentence, decimal, focusOf, likeliest, named, partnerOf, passOf, pronounIn, quoted, readingForm, sentenceForm, sentenceParameter } from "./sentence.js";

const LITTLE = 0.1; // a word is hardly needed if the loss changes by less without it

// What the numbers say ------------------------------------------------------------------------------------------------

/** The length of each row of a matrix. */
export function rowLengths(matrix) {
  return Array.from({ length: matrix.rows }, (_, i) => Math.hypot(...row(matrix, i)));
}

/**
 * Which words a loss needs, by `changes`, how it changes without each of them: { most, hardly, words }. `most` is the
 * position of the word that it needs most, or −1 if it hardly needs any; `hardly` is how many of the `words` change it
 * by less than 0.1. ⟨end⟩ and punctuation don't count.
 */
export function needsOf(words, changes) {
  const isWord = words.map((word) => /[\p{L}\p{N}]/u.test(word) && !word.startsWith("⟨"));
  const most = argmax(changes.map((change, i) => (isWord[i] ? change : -Infinity)));
  return {
    most: isWord[most] && changes[most] >= LITTLE ? most : -1,
    hardly: changes.filter((change, i) => isWord[i] && isLittle(change)).length,
    words: isWord.filter(Boolean).length,
  };
}

/** A pass in which `vector` has been added to one row of the source's embeddings. */
class NudgedPass extends Pass {
  constructor(model, sourceIds, targetInIds, position, vector) {
    super(model, sourceIds, targetInIds);
    this.nudge = { position, vector };
  }

  lookup(id, side) {
    const stage = super.lookup(id, side);
    if (side === "source") {
      const { cols, data } = stage.value;
      this.nudge.vector.forEach((x, j) => (data[this.nudge.position * cols + j] += x));
    }
    return stage;
  }
}

/** The loss of a token after `vector` has been added to the embedding of one source word: a whole forward pass. */
export function nudgedLoss(model, pass, position, vector, at, token) {
  const nudged = model.run(new NudgedPass(model, pass.sourceIds, pass.targetInIds, position, vector));
  return model.lossOf(nudged, at, token).loss;
}

/**
 * A step against the gradient that is `share` of the length of x: { step, promised }, the change of loss to first
 * order.
 */
export function stepAgainst(x, dx, share) {
  const length = (vector) => Math.hypot(...vector);
  const scale = length(dx) > 0 ? (share * length(x)) / length(dx) : 0;
  return { step: Float32Array.from(dx, (g) => -scale * g), promised: -scale * length(dx) ** 2 };
}

/**
 * The order in which the gradient reaches the boxes of Figure 1: that of computation, from its end; words have none.
 */
export function backwardOrder(boxes) {
  return boxes.filter(({ stages }) => stages.length).reverse();
}

/** The stage whose gradient stands for a box: the last of it, which a later one reads. */
function lastStage({ stages }) {
  return stages.at(-1);
}

// The view ------------------------------------------------------------------------------------------------------------

const SECONDS_A_BOX = 0.16;

function mount(root, page) {
  const { model } = page;
  const { source: sourceLang, target: targetLang } = page.data.languages;
  const given = page.parameters;
  const state = {
    at: Number.parseInt(given.get("word") ?? -1),
    token: Number.parseInt(given.get("token") ?? -1),
    nudged: Number.parseInt(given.get("nudge") ?? -1),
    share: 0.02,
    shown: Infinity,
    box: null,
    other: given.get("other"), // the second sentence, if the reader has chosen one
  };
  let reading;
  let loss; // of the chosen word: { loss, probability, gradients, lengths: of the source words, measured, sizes }
  let other; // the second sentence, with the same words to be written, and the loss of the same word
  let otherLoss;
  let boxes;
  let svg;
  let timer = 0;

  const form = readingForm(page, open);
  const chooser = h("div");
  const player = button("Play", () => (timer ? show(state.shown) : play()), { class: "button main" });
  const step = button("Step", () => show(isAll() ? 1 : state.shown + 1));
  const everything = button("Show all", () => show(Infinity));
  const counter = h("span", { class: "label" });
  const controls = h("div", { class: "controls" }, player, step, everything, counter);
  const picture = scrolling("The gradient in Figure 1");
  picture.classList.add("backward-picture");
  const numbers = h("div");
  const twin = h("details", { ontoggle: () => loss && drawTwin() }, h("summary", {}, "The same in numbers"), numbers);
  const flow = figure(page.data.caption, picture, twin);
  const bars = h("div");
  const depends = figure(page.data.caption, bars);
  const nudging = h("div");
  const nudge = figure(page.data.caption, nudging);
  const otherForm = sentenceForm(page, openOther, "Second sentence", "Compare");
  const compared = figure(page.data.caption, h("div", { class: "halves" }));
  root.append(
    form,
    h(
      "div",
      { class: "backward" },
      h(
        "div",
        {},
        h("h2", {}, "1. Choose a word as the loss"),
        chooser,
        h("h2", {}, "2. The gradient flows back"),
        h(
          "p",
          {},
          "It starts at the logits, on top of the decoder, and ends at the embeddings. Choose a box to read its numbers.",
        ),
        controls,
        h(
          "p",
          { class: "note" },
          "A cell is one position of one sublayer: the stronger its colour, the longer the gradient there (the " +
            "square root of its length, so that short ones can be seen too).",
        ),
      ),
      flow,
    ),
    h("h2", {}, "3. Which source words does the loss depend on?"),
    h(
      "p",
      {},
      "Without a word, with zeros in the place of its vector, what does the loss become? A forward pass for each word " +
        "tells. The length of the gradient tells something else: how fast the loss changes when the vector changes a " +
        "little. Where the model is sure, a little change does almost nothing, and still the word may be needed.",
    ),
    depends,
    h("h2", {}, "4. Nudge a word against its gradient"),
    nudge,
    h("h2", {}, "5. Change one word of the sentence"),
    h(
      "p",
      {},
      "Here the decoder has written the same words and must write the same word; only the source sentence " +
        "differs. Words that stand in one sentence only are underlined.",
    ),
    otherForm,
    compared,
  );

  function open(found) {
    const isNew = reading !== undefined;
    reading = found;
    boxes = boxesOf([...reading.pass.stages.keys()]);
    if (isNew || !(state.at >= 0 && state.at < reading.written.length)) state.at = pronounIn(reading.written);
    if (isNew || !(state.token > 0 && state.token < model.config.vocab_size)) state.token = reading.targetIds[state.at];
    if (isNew || !(state.nudged >= 0 && state.nudged < reading.source.length)) state.nudged = -1;
    if (state.other === reading.text) state.other = null;
    compute();
    drawAll();
    playAgain();
    otherForm.submit(state.other ?? partnerOf(page.data.examples, reading.text));
  }

  function lossOf({ pass }) {
    const { loss, probability, dlogits } = model.lossOf(pass, state.at, state.token);
    const gradients = model.backward(pass, dlogits);
    return {
      loss,
      probability,
      gradients,
      lengths: rowLengths(gradients.get("source.embedding")),
      measured: null,
      sizes: new Map(),
    };
  }

  function compute() {
    loss = lossOf(reading);
    if (state.nudged < 0) state.nudged = argmax(loss.lengths);
  }

  function chooseLoss(changes) {
    Object.assign(state, changes, { nudged: -1, box: null });
    compute();
    drawAll();
    setTimeout(() => loss && other && compare());
    playAgain();
  }

  function playAgain() {
    stop();
    state.shown = Infinity;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) play();
  }

  function drawAll() {
    const focus = focusOf(root);
    writeAddress();
    drawChooser();
    drawFlow();
    drawBars();
    drawNudge();
    focus();
  }

  function writeAddress() {
    page.go("backward", {
      ...sentenceParameter(page, reading.text),
      word: state.at,
      ...(state.token === reading.targetIds[state.at] ? {} : { token: state.token }),
      nudge: state.nudged,
      ...(state.other && { other: state.other }),
    });
  }

  function pickNudged(i) {
    const focus = focusOf(root);
    state.nudged = i;
    writeAddress();
    drawBars();
    drawNudge();
    focus();
  }

  const tokenName = () => reading.nameOf(state.token);

  function drawChooser() {
    clear(chooser);
    const bar = words(reading.written, {
      label: "Word of the translation",
      selected: state.at,
      onpick: (i) => chooseLoss({ at: i, token: reading.targetIds[i] }),
    });
    bar.lang = targetLang;
    named(bar.children, "loss");
    const probabilities = reading.pass.probabilities(state.at);
    const ids = likeliest(probabilities, 6).map(({ id }) => id);
    if (!ids.includes(state.token)) ids.push(state.token);
    const select = choice({
      label: "the right word here is",
      options: ids.map((id) => [id, `${reading.nameOf(id)} (p = ${percent(probabilities[id])})`]),
      value: state.token,
      onchange: (id) => chooseLoss({ token: Number(id) }),
    });
    select.querySelector("select").dataset.key = "token";
    chooser.append(
      h("p", { class: "note" }, "The model's translation:"),
      bar,
      h(
        "div",
        { class: "controls" },
        select,
        h(
          "p",
          { class: "equation" },
          "loss = −ln p(",
          quoted(tokenName(), targetLang),
          `) = −ln ${number(loss.probability)} = `,
          h("strong", {}, number(loss.loss)),
        ),
      ),
    );
  }

  // The picture ---------------------------------------------------------------------------------------------------------

  function sizesOf(box) {
    const stage = lastStage(box);
    if (!loss.sizes.has(stage)) loss.sizes.set(stage, rowLengths(loss.gradients.get(stage)));
    return loss.sizes.get(stage);
  }

  /** Logits have another width than everything else, so their gradient is not compared with the others. */
  function largestSize() {
    return Math.max(...boxes.filter(({ id, stages }) => stages.length && id !== "logits").flatMap(sizesOf));
  }

  function drawFlow() {
    drawControls();
    drawPicture();
    drawTwin();
    const order = backwardOrder(boxes);
    const at = order[Math.min(state.shown, order.length) - 1];
    const box = state.box ? boxes.find(({ id }) => id === state.box) : state.shown < order.length ? at : null;
    if (box?.stages.length) {
      const sizes = sizesOf(box);
      const best = argmax(sizes);
      const [names, lang] = box.side === "source" ? [reading.source, sourceLang] : [reading.written, targetLang];
      const found = `${nameOfBox(box)}: the gradient is longest at `;
      say(
        flow.sentence,
        sizes[best] > 0
          ? [found, quoted(names[best], lang), `, with the length ${decimal(sizes[best])}.`]
          : `${nameOfBox(box)}: no gradient arrives here.`,
      );
    } else {
      const top = sizesOf(order.find(({ side, id }) => side === "target" && id !== "logits"))[state.at];
      const most = argmax(loss.lengths);
      say(flow.sentence, [
        "The loss of ",
        quoted(tokenName(), targetLang),
        ` sends a gradient of the length ${decimal(top)} into the top of the decoder; at the source embeddings it is ` +
          "longest at ",
        quoted(reading.source[most], sourceLang),
        `, with ${decimal(loss.lengths[most])}.`,
      ]);
    }
  }

  function nameOfBox({ side, layer, title }) {
    return layer === null
      ? `${title} (${side})`
      : `${side === "source" ? "Encoder" : "Decoder"} layer ${layer + 1}, ${title.toLowerCase()}`;
  }

  function drawControls() {
    const count = backwardOrder(boxes).length;
    player.hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
    player.textContent = timer ? "Pause" : "Play";
    everything.disabled = state.shown >= count;
    counter.textContent = `${Math.min(state.shown, count)} of ${count} boxes`;
  }

  function show(shown) {
    stop();
    Object.assign(state, { shown, box: null });
    drawFlow();
  }

  function isAll() {
    return state.shown >= backwardOrder(boxes).length;
  }

  function play() {
    show(isAll() ? 1 : state.shown + 1);
    timer = setInterval(() => {
      state.shown++;
      if (isAll()) return show(Infinity);
      drawControls();
      drawPicture();
    }, 1000 * SECONDS_A_BOX);
    drawControls();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
  }

  /** Fills the cells of the boxes that the gradient has reached; a new sentence or width needs a new drawing. */
  function drawPicture() {
    const order = backwardOrder(boxes);
    const shown = new Set(order.slice(0, state.shown).map(({ id }) => id));
    const latest = isAll() ? null : order[state.shown - 1].id;
    const largest = largestSize();
    const width = Math.max(
      widthFor(Math.max(reading.source.length, reading.written.length)),
      Math.min(860, picture.clientWidth || 860),
    );
    if (svg?.reading !== reading || svg.wide !== width) {
      svg = figureOne({
        boxes: boxes.filter(({ stages }) => stages.length),
        width,
        label: "The gradient in Figure 1: choose a box to read its numbers",
        names: { source: { below: reading.source }, target: { below: reading.read, above: reading.written } },
        onpick: (box) => {
          stop();
          state.box = box;
          drawFlow();
          svg.querySelector(".current").focus({ preventScroll: true });
        },
      });
      Object.assign(svg, { reading, wide: width });
      picture.replaceChildren(svg);
      picture.scrollLeft = picture.scrollWidth; // the gradient starts in the decoder, on the right
    }
    if (latest) picture.scrollLeft = order[state.shown - 1].side === "target" ? picture.scrollWidth : 0;
    svg.update(state.box ?? latest, (box) => {
      const sizes = sizesOf(box);
      const most = box.id === "logits" ? Math.max(...sizes) : largest;
      return sizes.map((size) => (shown.has(box.id) ? shade(size / most) : 0));
    });
  }

  function drawTwin() {
    clear(numbers);
    if (!twin.open) return;
    for (const [side, names, title] of [
      ["target", reading.written, "Decoder, word to be written"],
      ["source", reading.source, "Encoder, source word"],
    ]) {
      const rows = backwardOrder(boxes).filter((box) => box.side === side);
      const data = Float32Array.from(rows.flatMap(sizesOf));
      numbers.append(
        h("p", { class: "label" }, title),
        heatmap({
          matrix: { rows: rows.length, cols: names.length, data },
          rowLabels: rows.map(nameOfBox),
          columnLabels: names,
          label: `Lengths of the gradients. ${title}`,
          role: "gradient",
          digits: 2,
          largest: largestSize(),
        }),
      );
    }
  }

  // Source words --------------------------------------------------------------------------------------------------------

  function drawBars() {
    clear(bars);
    bars.append(
      dependenceTable(reading, loss, {
        onpick: pickNudged,
        selected: state.nudged,
      }),
    );
    const { lengths, measured } = loss;
    const longest = argmax(lengths);
    const sentence = [
      "The gradient is longest at ",
      quoted(reading.source[longest], sourceLang),
      ` (${decimal(lengths[longest], 2)}).`,
    ];
    if (measured) {
      const { most, hardly, words: count } = needsOf(reading.source, measured);
      const needed = quoted(tokenName(), targetLang);
      if (most < 0) {
        const without = `Without any single word the loss of `;
        sentence.unshift(without, needed, ` grows by less than ${LITTLE}: it hardly needs one of them. `);
      } else {
        const after = decimal(loss.loss + measured[most]);
        sentence.unshift(
          "Without ",
          quoted(reading.source[most], sourceLang),
          " the loss of ",
          needed,
          ` becomes ${after} instead of ${decimal(loss.loss)}: it is needed most. Of the ${count} words ${hardly} are ` +
            `hardly needed: without them the loss changes by less than ${LITTLE}. `,
        );
      }
    }
    say(depends.sentence, sentence);
  }

  /**
   * How the loss really changes without each source word: one forward pass each, with pauses in which the page stays
   * alive.
   */
  async function measure(one, its) {
    const embedding = one.pass.stages.get("source.embedding").value;
    const found = [];
    for (let i = 0; i < embedding.rows; i++) {
      await new Promise((done) => setTimeout(done));
      if (its !== loss && its !== otherLoss) return;
      found.push(
        nudgedLoss(
          model,
          one.pass,
          i,
          row(embedding, i).map((x) => -x),
          state.at,
          state.token,
        ) - its.loss,
      );
    }
    its.measured = found;
    const focus = focusOf(root);
    if (its === loss) drawBars();
    drawCompared();
    focus();
  }

  /** A row for each source word; `all` are the losses whose bars have the same scale. */
  function dependenceTable({ source }, its, { onpick = null, selected = -1, all = [its], marked = [] }) {
    const largest = (column) => largestOf(all.flatMap((one) => one[column] ?? []));
    const rows = source.map((text, i) => {
      const look = `chip${marked.includes(i) ? " marked" : ""}${i === selected ? " selected" : ""}`;
      const word = h("span", { lang: sourceLang }, text);
      const pressed = { "data-key": `source ${i}`, "aria-pressed": String(i === selected) };
      const name = onpick
        ? h("button", { type: "button", class: look, ...pressed, onclick: () => onpick(i) }, word)
        : h("span", { class: look }, word);
      const change = its.measured?.[i];
      const length = its.lengths[i];
      const changed = change !== undefined && [
        signedBar(change / largest("measured")),
        h("span", { class: isLittle(change) ? "value label" : "value" }, signed(change)),
      ];
      return [
        name,
        changed || h("span", { class: "label" }, "…"),
        [barOf(length / largest("lengths")), h("span", { class: "value" }, decimal(length, 2))],
      ];
    });
    const heads = ["source word", "change of the loss without it", "length of the gradient"];
    return table("How the loss depends on each source word", heads, rows, "dependence");
  }

  // Nudge ---------------------------------------------------------------------------------------------------------------

  function drawNudge() {
    const i = state.nudged;
    const x = row(reading.pass.stages.get("source.embedding").value, i);
    const dx = row(loss.gradients.get("source.embedding"), i);
    const says = h("div");
    const write = () => {
      const { step, promised } = stepAgainst(x, dx, state.share);
      const after = nudgedLoss(model, reading.pass, i, step, state.at, state.token);
      says.replaceChildren(
        h(
          "dl",
          { class: "facts" },
          h("div", {}, h("dt", {}, "loss now"), h("dd", {}, number(loss.loss))),
          h("div", {}, h("dt", {}, "the gradient promises"), h("dd", {}, number(loss.loss + promised))),
          h("div", {}, h("dt", {}, "a second forward pass gives"), h("dd", {}, number(after))),
        ),
      );
      say(nudge.sentence, [
        "If we nudge the vector of ",
        quoted(reading.source[i], sourceLang),
        ` by ${percent(state.share)} of its length against the gradient, the loss goes from ${number(loss.loss)} ` +
          `to ${number(after)}.`,
      ]);
    };
    const bar = words(reading.source, { label: "Source word to nudge", selected: i, onpick: pickNudged });
    bar.lang = sourceLang;
    named(bar.children, "nudge");
    const largest = largestOf(dx);
    clear(nudging);
    nudging.append(
      bar,
      h("p", { class: "label" }, "its vector"),
      strip(x, { label: "The word's vector" }),
      h("p", { class: "label" }, `the gradient at it (colours from −${number(largest, 2)} to ${number(largest, 2)})`),
      strip(dx, { label: "The gradient of the loss at the word's vector" }),
      h(
        "div",
        { class: "controls" },
        range({
          label: "Step",
          min: 0,
          max: 20,
          step: 0.5,
          value: 100 * state.share,
          unit: "% of its length",
          oninput: (value) => ((state.share = value / 100), write()),
        }),
      ),
      says,
    );
    write();
  }

  // Compare -------------------------------------------------------------------------------------------------------------

  async function openOther(text) {
    if (text === reading.text) throw new Error("This is the first sentence: change a word of it.");
    state.other = text === partnerOf(page.data.examples, reading.text) ? null : text;
    compare(text);
    writeAddress();
  }

  /** The loss of the same word, after the same words, with another source sentence. */
  function compare(text = other.text) {
    other = passOf(page, text, reading.targetIds);
    otherLoss = lossOf(other);
    drawCompared();
    if (!loss.measured) measure(reading, loss);
    measure(other, otherLoss);
  }

  function drawCompared() {
    const side = (one, its, marked) =>
      h(
        "section",
        { class: "compared" },
        h("p", { lang: sourceLang }, one.text),
        h(
          "p",
          { class: "equation" },
          "p(",
          quoted(tokenName(), targetLang),
          `) = ${percent(its.probability)}, loss `,
          h("strong", {}, number(its.loss)),
        ),
        dependenceTable(one, its, { all: [loss, otherLoss], marked }),
      );
    const [here, there] = [differences(reading.source, other.source), differences(other.source, reading.source)];
    compared.firstChild.replaceChildren(side(reading, loss, here), side(other, otherLoss, there));
    const longest = ({ lengths }) => argmax(lengths);
    const written = page.tokenizer.decode(reading.targetIds.slice(0, state.at));
    const start = written ? ["After “", h("span", { lang: targetLang }, written), "”, "] : ["As the first word, "];
    say(compared.sentence, [
      ...start,
      quoted(tokenName(), targetLang),
      ` has the probability ${percent(loss.probability)} with the first sentence and ` +
        `${percent(otherLoss.probability)} with the second. The gradient is longest at `,
      quoted(reading.source[longest(loss)], sourceLang),
      ` (${decimal(loss.lengths[longest(loss)], 2)}) and at `,
      quoted(other.source[longest(otherLoss)], sourceLang),
      ` (${decimal(otherLoss.lengths[longest(otherLoss)], 2)}).`,
      (loss.loss - otherLoss.loss) * (loss.lengths[longest(loss)] - otherLoss.lengths[longest(otherLoss)]) > 0
        ? " Where the word is less likely, the gradient is longer."
        : "",
    ]);
  }

  const onresize = () => reading && drawPicture();
  addEventListener("resize", onresize);
  form.submit(currentSentence(page));
  return () => {
    form.leave();
    loss = otherLoss = null;
    stop();
    removeEventListener("resize", onresize);
  };
}

/** The positions of the words that another list does not have. */
function differences(list, other) {
  return list.flatMap((word, i) => (other.includes(word) ? [] : [i]));
}

/** Small gradients stay visible: the shade is the square root of the size. */
function shade(size) {
  return Math.sqrt(size);
}

function isLittle(change) {
  return Math.abs(change) < LITTLE;
}

function signed(x) {
  return (x > 0 ? "+" : "") + decimal(x, 2);
}

function signedBar(share) {
  const bar = h("span", { class: `signed-bar ${share < 0 ? "down" : "up"}` });
  bar.style.setProperty("--share", Math.abs(share).toFixed(4));
  return bar;
}

export const backwardView = {
  id: "backward",
  title: "Backward",
  question: "Where does the gradient of one word go?",
  lead:
    "The gradient says how the loss changes when a number changes a little; training steps against it. Choose a word " +
    "of the translation as the loss, and watch its gradient flow back to the source words.",
  mount,
};
