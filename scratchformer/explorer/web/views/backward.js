/** The view of the gradients: how the loss of one word flows back through every sublayer to the source words. */

import { button, choice, clear, figure, h, heatmap, number, percent, range, say, strip, words } from "../dom.js";
import { Pass } from "../engine/model.js";
import { boxesOf, figureOne, widthFor } from "./figure.js";
import { currentSentence, focusOf, idsOf, passOf, pronounIn, quoted, sentenceForm, sentenceParameter } from "./sentence.js";

// What the numbers say ------------------------------------------------------------------------------------------------

/** The root mean square of each row of a matrix. */
export function rowSizes({ rows, cols, data }) {
  return Array.from({ length: rows }, (_, i) =>
    Math.sqrt(data.subarray(i * cols, (i + 1) * cols).reduce((sum, x) => sum + x * x, 0) / cols),
  );
}

/**
 * What a loss says about each row of x, given its gradient dx: [{ length, effect }]. `length` is the gradient's length,
 * `effect` = −dx · x is the first-order estimate of how the loss changes when the row becomes zeros.
 */
export function dependence(x, dx) {
  return Array.from({ length: x.rows }, (_, i) => {
    let square = 0;
    let product = 0;
    for (let k = i * x.cols; k < (i + 1) * x.cols; k++) {
      square += dx.data[k] ** 2;
      product += dx.data[k] * x.data[k];
    }
    return { length: Math.sqrt(square), effect: -product };
  });
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
export function lastStage({ stages }) {
  return stages.at(-1);
}

function rowOf({ cols, data }, i) {
  return data.subarray(i * cols, (i + 1) * cols);
}

// The view ------------------------------------------------------------------------------------------------------------

const SECONDS_A_BOX = 0.16;

function mount(root, page) {
  const { model } = page;
  const { source: sourceLang, target: targetLang } = page.data.languages;
  const given = page.parameters;
  const [first, second] = page.data.examples;
  const state = {
    at: Number.parseInt(given.get("word") ?? -1),
    token: Number.parseInt(given.get("token") ?? -1),
    nudged: Number.parseInt(given.get("nudge") ?? -1),
    share: 0.02,
    shown: Infinity,
    box: null,
    other: given.get("other") ?? second,
  };
  let reading;
  let loss; // of the chosen word: { loss, probability, gradients, words: dependence, measured, sizes }
  let other; // the second sentence, with the same words to be written, and the loss of the same word
  let otherLoss;
  let boxes;
  let svg;
  let timer = 0;
  let turn = 0;

  const form = sentenceForm(page, open);
  const chooser = h("div");
  const player = button("Play", () => (timer ? show(state.shown) : play()), { class: "button main" });
  const step = button("Step", () => show(isAll() ? 1 : state.shown + 1));
  const everything = button("Show all", () => show(Infinity));
  const counter = h("span", { class: "label" });
  const controls = h("div", { class: "controls" }, player, step, everything, counter);
  const picture = h("div", {
    class: "backward-picture scroll",
    tabindex: 0,
    role: "group",
    "aria-label": "The gradient in Figure 1",
  });
  const numbers = h("div");
  const twin = h("details", { ontoggle: () => loss && drawTwin() }, h("summary", {}, "The same in numbers"), numbers);
  const flow = figure(page.data.caption, picture, twin);
  const bars = h("div");
  const depends = figure(page.data.caption, bars);
  const nudging = h("div");
  const nudge = figure(page.data.caption, nudging);
  const otherForm = sentenceForm(page, openOther, "Second sentence");
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
          "A cell is one position of one sublayer: the stronger its colour, the larger the gradient there (the square " +
            "root of its root mean square, so that small ones can be seen too).",
        ),
      ),
      flow,
    ),
    h("h2", {}, "3. Which source words does the loss depend on?"),
    h(
      "p",
      {},
      "The gradient at a word's vector says in which direction the loss grows, and its length says how fast. From " +
        "the slope one can estimate how the loss changes when the vector becomes zeros: −gradient · vector. A real " +
        "forward pass with these zeros checks the estimate. Zeros are a long way off, so the two can differ a " +
        "lot: where the model is sure of a word, the slope is almost flat, and still the word may be needed.",
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

  async function open(text) {
    const mine = ++turn;
    const ids = await idsOf(page, text);
    if (mine !== turn) return;
    const isNew = reading !== undefined;
    page.shared.sentence = text;
    reading = passOf(page, text, ids);
    boxes = boxesOf([...reading.pass.stages.keys()]);
    if (isNew || !(state.at >= 0 && state.at < reading.written.length)) state.at = pronounIn(reading.written);
    if (isNew || !(state.token > 0 && state.token < model.config.vocab_size)) state.token = reading.targetIds[state.at];
    if (isNew || !(state.nudged >= 0 && state.nudged < reading.source.length)) state.nudged = -1;
    if (isNew && state.other === text) state.other = text === first ? second : first;
    compute();
    drawAll();
    playAgain();
    otherForm.submit(state.other);
  }

  function lossOf({ pass }) {
    const { loss, probability, dlogits } = model.lossOf(pass, state.at, state.token);
    const gradients = model.backward(pass, dlogits);
    return {
      loss,
      probability,
      gradients,
      words: dependence(pass.stages.get("source.embedding").value, gradients.get("source.embedding")),
      measured: null,
      sizes: new Map(),
    };
  }

  function compute() {
    loss = lossOf(reading);
    if (state.nudged < 0) {
      state.nudged = largestOf(loss.words.map(({ length }) => length));
    }
  }

  function chooseLoss(changes) {
    Object.assign(state, changes, { nudged: -1, box: null });
    compute();
    drawAll();
    setTimeout(() => loss && compare());
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
      ...(state.other === second ? {} : { other: state.other }),
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
    bar.querySelectorAll("button").forEach((chip, i) => (chip.dataset.key = `loss ${i}`));
    const probabilities = reading.pass.probabilities(state.at);
    const ids = Array.from(probabilities.keys())
      .sort((a, b) => probabilities[b] - probabilities[a])
      .slice(0, 6);
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
    if (!loss.sizes.has(stage)) loss.sizes.set(stage, rowSizes(loss.gradients.get(stage)));
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
      const best = largestOf(sizes);
      const [names, lang] = box.side === "source" ? [reading.source, sourceLang] : [reading.written, targetLang];
      const found = `${nameOfBox(box)}: the gradient is largest at `;
      say(
        flow.sentence,
        sizes[best] > 0
          ? [found, quoted(names[best], lang), `, ${number(sizes[best])} (root mean square).`]
          : `${nameOfBox(box)}: no gradient arrives here.`,
      );
    } else {
      const top = rowSizes(
        loss.gradients.get(order.find(({ side, id }) => side === "target" && id !== "logits").stages.at(-1)),
      )[state.at];
      const bottom = rowSizes(loss.gradients.get("source.embedding"));
      const most = largestOf(bottom);
      say(flow.sentence, [
        "The loss of ",
        quoted(tokenName(), targetLang),
        ` sends a gradient of ${number(top)} into the top of the decoder; at the source embeddings it is largest at `,
        quoted(reading.source[most], sourceLang),
        `, ${number(bottom[most])} (root mean square).`,
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
          label: `Gradient (root mean square). ${title}`,
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
        columns: ["length", "effect", "measured"],
        onpick: pickNudged,
        selected: state.nudged,
      }),
    );
    const { words: found, measured } = loss;
    const most = largestOf(found.map(({ length }) => length));
    const sentence = [
      "The gradient of the loss is longest at ",
      quoted(reading.source[most], sourceLang),
      ` (${number(found[most].length)}). `,
    ];
    if (measured) {
      const need = largestOf(measured);
      sentence.push(
        "The word that ",
        quoted(tokenName(), targetLang),
        " needs most is ",
        quoted(reading.source[need], sourceLang),
        `: with zeros in its place the loss changes by ${signed(measured[need])}; the slope alone promised ` +
          `${signed(found[need].effect)}.`,
      );
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
          rowOf(embedding, i).map((x) => -x),
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
  function dependenceTable({ source }, its, { columns, onpick = null, selected = -1, all = [its], marked = [] }) {
    const values = (one, column) => (column === "measured" ? one.measured : one.words.map((word) => word[column]));
    const together = columns.includes("effect") ? ["effect", "measured"] : ["measured"];
    const largest = (column) =>
      Math.max(
        ...all.flatMap((one) =>
          (column === "length" ? ["length"] : together).flatMap((each) => values(one, each) ?? []).map(Math.abs),
        ),
      ) || 1;
    const rows = source.map((text, i) => {
      const look = `chip${marked.includes(i) ? " marked" : ""}${i === selected ? " selected" : ""}`;
      const word = h("span", { lang: sourceLang }, text);
      const cells = columns.map((column) => {
        const value = values(its, column)?.[i];
        if (value === undefined) return h("td", { class: "label" }, "…");
        const bar = column === "length" ? barOf(value / largest(column)) : signedBar(value / largest(column));
        return h("td", {}, bar, h("span", { class: "value" }, column === "length" ? number(value, 2) : signed(value)));
      });
      const name = onpick
        ? h(
            "button",
            {
              type: "button",
              class: look,
              "data-key": `source ${i}`,
              "aria-pressed": String(i === selected),
              onclick: () => onpick(i),
            },
            word,
          )
        : h("span", { class: look }, word);
      return h("tr", {}, h("th", { scope: "row" }, name), cells);
    });
    const tall = (text) => h("th", { scope: "col", rowspan: 2 }, text);
    const head = h(
      "thead",
      {},
      h(
        "tr",
        {},
        tall("source word"),
        tall("gradient length"),
        h("th", { scope: "colgroup", colspan: together.length }, "change of loss without it"),
      ),
      h(
        "tr",
        {},
        together.map((column) => h("th", { scope: "col" }, { effect: "estimated", measured: "measured" }[column])),
      ),
    );
    return h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "How the loss depends on each source word" },
      h("table", { class: "plain-table dependence" }, head, h("tbody", {}, rows)),
    );
  }

  // Nudge ---------------------------------------------------------------------------------------------------------------

  function drawNudge() {
    const i = state.nudged;
    const x = rowOf(reading.pass.stages.get("source.embedding").value, i);
    const dx = rowOf(loss.gradients.get("source.embedding"), i);
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
    bar.querySelectorAll("button").forEach((chip, j) => (chip.dataset.key = `nudge ${j}`));
    const largest = Math.max(...dx.map(Math.abs));
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
    state.other = text;
    compare();
    writeAddress();
  }

  /** The loss of the same word, after the same words, with another source sentence. */
  function compare() {
    other = passOf(page, state.other, reading.targetIds);
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
        dependenceTable(one, its, { columns: ["length", "measured"], all: [loss, otherLoss], marked }),
      );
    const [here, there] = [differences(reading.source, other.source), differences(other.source, reading.source)];
    compared.firstChild.replaceChildren(side(reading, loss, here), side(other, otherLoss, there));
    const longest = ({ words: found }) => largestOf(found.map(({ length }) => length));
    const written = page.tokenizer.decode(reading.targetIds.slice(0, state.at));
    const start = written ? ["After “", h("span", { lang: targetLang }, written), "”, "] : ["As the first word, "];
    say(compared.sentence, [
      ...start,
      quoted(tokenName(), targetLang),
      ` has the probability ${percent(loss.probability)} with the first sentence and ` +
        `${percent(otherLoss.probability)} with the second. The gradient is longest at `,
      quoted(reading.source[longest(loss)], sourceLang),
      ` (${number(loss.words[longest(loss)].length, 2)}) and at `,
      quoted(other.source[longest(otherLoss)], sourceLang),
      ` (${number(otherLoss.words[longest(otherLoss)].length, 2)}).`,
      (loss.loss - otherLoss.loss) * (loss.words[longest(loss)].length - otherLoss.words[longest(otherLoss)].length) > 0
        ? " The less likely the word, the larger the gradient."
        : "",
    ]);
  }

  const onresize = () => reading && drawPicture();
  addEventListener("resize", onresize);
  form.submit(currentSentence(page));
  return () => {
    turn++;
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

/** Where a list of numbers is largest. */
function largestOf(values) {
  return values.indexOf(Math.max(...values));
}

function signed(x) {
  return x > 0 ? `+${number(x, 2)}` : number(x, 2);
}

function barOf(share) {
  const bar = h("span", { class: "bar" });
  bar.style.setProperty("--share", share.toFixed(4));
  return bar;
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
