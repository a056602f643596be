/** The view that walks one sentence through every stage, and shows for each number how it is made. */

import { button, choice, clear, figure, h, heatmap, largestOf, number, percent, say, strip, table, words } from "../dom.js";
import { row } from "../engine/tensor.js";
import { boxesOf, figureOne } from "./figure.js";
import { argmax, barOf, currentSentence, focusOf, lessonLink, likeliest, named, pronounIn, quoted, readingForm, rowName, sentenceParameter, wordOf } from "./sentence.js";
import { stepsOf } from "./steps.js";

const ROLES = { q: "query", k: "key", v: "value" };
const SHOWN = 8; // numbers of a vector, and terms of a dot product
const IN_A_BOX = 24; // numbers of a vector in a box of Figure 1

// By hand -------------------------------------------------------------------------------------------------------------

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

function fixed(x) {
  return x.toFixed(4).replace("-", "−");
}

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

function strong(cells) {
  return Object.assign(cells, { strong: true });
}

// The view ------------------------------------------------------------------------------------------------------------

function mount(root, page) {
  const { config } = page.model;
  const given = page.parameters;
  const state = {
    step: given.get("step"),
    source: Number.parseInt(given.get("source") ?? -1),
    target: Number.parseInt(given.get("target") ?? -1),
    head: Number.parseInt(given.get("head") ?? 1) - 1,
    picked: null, // { stage, column } or { column } of a weight or a word
    all: false,
  };
  let reading;
  let steps;
  let boxes;

  const form = readingForm(page, open);
  const picture = h("div", { class: "inside-picture" });
  const place = h("section");
  const hand = h("section", { class: "by-hand", "aria-label": "By hand" });
  root.append(form, h("div", { class: "inside" }, picture, h("div", { class: "inside-panel" }, place, hand)));

  function open(found) {
    reading = found;
    steps = stepsOf([...reading.pass.stages.keys()], config);
    boxes = boxesOf([...reading.pass.stages.keys()]);
    if (!steps.some(({ id }) => id === state.step)) state.step = steps[0].id;
    if (!(state.head >= 0 && state.head < config.h)) state.head = 0;
    if (!(state.source >= 0 && state.source < reading.source.length))
      state.source = Math.min(1, reading.source.length - 1);
    if (!(state.target >= 0 && state.target < reading.written.length)) state.target = pronounIn(reading.written);
    draw();
  }

  function change(changes) {
    if (changes.step) changes = { picked: null, all: false, ...changes };
    Object.assign(state, changes);
    draw();
  }

  const indexOf = () => steps.findIndex(({ id }) => id === state.step);

  function walk(by) {
    const next = steps[indexOf() + by];
    if (next) change({ step: next.id });
  }

  const onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || !reading || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest?.("input, select, textarea, nav, .scroll, [role=toolbar]")) return;
    event.preventDefault();
    walk(by);
  };
  document.addEventListener("keydown", onkeydown);

  /** The decoder's positions: what it has read last, and what it must write. */
  function positions() {
    return reading.read.map((word, i) => `${word} → ${reading.written[i]}`);
  }

  /** The words of a stage's rows, and the chosen one: cross-attention's keys and values belong to the source words. */
  function rowsOf(stage) {
    const isSource = /^(source|encoder)\.|\.cross\.[kv]$/.test(stage);
    return isSource
      ? { side: "source", names: reading.source, at: state.source, lang: page.data.languages.source }
      : { side: "target", names: positions(), at: state.target, lang: page.data.languages.target };
  }

  function draw() {
    const focus = focusOf(root);
    const step = steps[indexOf()];
    page.go("inside", {
      ...sentenceParameter(page, reading.text),
      step: step.id,
      source: state.source,
      target: state.target,
      head: state.head + 1,
    });
    drawPicture(step);
    drawStep(step);
    drawHand(step);
    focus();
  }

  function drawPicture(step) {
    const width = Math.min(560, picture.clientWidth || 400);
    const reached = new Set(steps.slice(0, indexOf() + 1).map(({ box }) => box));
    const svg = figureOne({
      boxes,
      width,
      label: "Figure 1: choose a box to go there",
      onpick: (box) => {
        change({ step: steps.find((one) => one.box === box).id });
        picture.querySelector(".current").focus({ preventScroll: true });
      },
      content: contentOf,
    });
    svg.update(step.box);
    boxes.forEach(({ id }, i) => svg.querySelectorAll(".box")[i].classList.toggle("ahead", !reached.has(id)));
    const [word, position] = [reading.source[state.source], positions()[state.target]];
    picture.replaceChildren(
      svg,
      h(
        "p",
        { class: "label" },
        `Beside each name: the first ${IN_A_BOX} numbers of the vector of `,
        quoted(word, page.data.languages.source),
        " on the left, of ",
        quoted(position, page.data.languages.target),
        " on the right. Blue is positive, orange negative.",
      ),
    );
    if (picture.scrollHeight > picture.clientHeight) {
      const y = Number(svg.querySelector(".current rect").getAttribute("y"));
      picture.scrollTop = y - picture.clientHeight / 2 + 20;
    }
  }

  /** What stands in a box of the picture: the chosen word's first numbers, or the likeliest next word. */
  function contentOf({ id, stages }) {
    if (id === "softmax") {
      const [best] = likeliest(reading.pass.probabilities(state.target), 1);
      return `${nameOf(best.id)} ${percent(best.probability)}`;
    }
    if (!stages.length || id === "logits") return null;
    const stage = stages.at(-1);
    return rowOfStage(stage, rowsOf(stage).at).subarray(0, IN_A_BOX);
  }

  function drawStep(step) {
    const at = indexOf();
    clear(place);
    const picker = (side, label) => {
      const names = side === "source" ? reading.source : positions();
      const bar = words(names, { label, selected: state[side], onpick: (i) => change({ [side]: i }) });
      bar.lang = page.data.languages[side];
      named(bar.children, side);
      return h("div", {}, h("p", { class: "label" }, label), bar);
    };
    const isCross = step.id.endsWith(".cross.qkv");
    place.append(
      h(
        "div",
        { class: "controls walk" },
        button("◀ back", () => walk(-1), { disabled: at === 0, "data-key": "back" }),
        button("next ▶", () => walk(1), {
          disabled: at === steps.length - 1,
          class: "button main",
          "data-key": "next",
        }),
        choice({
          label: `step ${at + 1} of ${steps.length}`,
          options: steps.map(({ id, title }, i) => [id, `${i + 1}. ${title}`]),
          value: step.id,
          onchange: (id) => change({ step: id }),
        }),
      ),
      h("h2", {}, step.title),
      h("p", {}, step.about, " ", h("span", { class: "label" }, lessonLink(page, step.lesson))),
      step.side === "target"
        ? picker("target", "row of the decoder: has read → must write")
        : picker("source", "source word"),
      isCross ? picker("source", "source word") : "",
    );
    place.querySelector("select").dataset.key = "step";
    const usesHead = step.kind === "weights" || step.stages.some((id) => /\.(q|k|v|heads)$/.test(id));
    if (usesHead && config.h > 1) {
      const options = Array.from({ length: config.h }, (_, i) => [i, `head ${i + 1}`]);
      const select = choice({
        label: "head",
        options,
        value: state.head,
        onchange: (value) => change({ head: Number(value), picked: null }),
      });
      select.querySelector("select").dataset.key = "head";
      place.append(select);
    }
    const drawn = figure(page.data.caption);
    place.append(drawn);
    const body = { text: drawText, stage: drawStages, weights: drawWeights, softmax: drawSoftmax }[step.kind](step);
    drawn.prepend(...[body.children].flat());
    say(drawn.sentence, body.sentence);
  }

  // What a step shows ---------------------------------------------------------------------------------------------------

  function drawText(step) {
    const { pass, source, read, written } = reading;
    const isSource = step.side === "source";
    const ids = isSource ? pass.sourceIds : pass.targetInIds;
    const list = isSource ? source : read;
    const at = state[step.side];
    const { value } = pass.stages.get(`${step.side}.embedding`);
    const largest = largestOf(value.data);
    const rows = list.map((word, i) => [
      String(i),
      word,
      String(ids[i]),
      ...(isSource ? [] : [written[i]]),
      strip(row(value, i), { label: `Embedding of ${word}`, largest }),
    ]);
    if (rows[at]) strong(rows[at]);
    const heads = ["position", isSource ? "piece" : "has read", "its number", ...(isSource ? [] : ["must write"]), "the vector it becomes"];
    const lang = page.data.languages[step.side];
    const sentence = isSource
      ? [
          `${list.length} pieces; `,
          quoted(list[at], lang),
          ` at position ${at} has number ${ids[at]} of ${config.vocab_size}.`,
        ]
      : [
          `At position ${at} the decoder has read `,
          quoted(list[at], lang),
          " last and must write ",
          quoted(written[at], lang),
          ".",
        ];
    const drawn = table("Pieces and their numbers", heads, rows);
    drawn.classList.add("becoming");
    return { children: [drawn], sentence };
  }

  function drawStages(step) {
    const children = step.stages.map((id) => drawVector(id));
    const id = step.stages[0];
    const { names, at, lang } = rowsOf(id);
    const { value } = reading.pass.stages.get(id);
    const vector = rowOfStage(id, at);
    const part = id.split(".")[3];
    let sentence = [
      `The ${ROLES[part] ?? "vector"} of `,
      quoted(names[at], lang),
      ` has ${value.cols} numbers, from ${number(Math.min(...vector))} to ${number(Math.max(...vector))}.`,
    ];
    if (id.endsWith(".hidden")) {
      const on = vector.filter((x) => x > 0).length;
      sentence = [
        "At ",
        quoted(names[at], lang),
        `, ${on} of the ${value.cols} hidden numbers are on (${percent(on / value.cols)}); the others are 0.`,
      ];
    } else if (id === "logits") {
      const [best] = likeliest(vector, 1);
      sentence = [
        "After ",
        quoted(reading.read[at], lang),
        ", the largest score is ",
        number(best.probability),
        " for ",
        quoted(nameOf(best.id), lang),
        ".",
      ];
    }
    return { children, sentence };
  }

  function nameOf(id) {
    return reading.nameOf(id);
  }

  function rowOfStage(id, at) {
    return row(reading.pass.stages.get(id).value, at);
  }

  /** How many numbers of a vector belong to each head, where heads stand side by side. */
  function widthOfHead(id) {
    return { q: config.d_k, k: config.d_k, v: config.d_v, heads: config.d_v }[id.split(".")[3]];
  }

  function headOf(id) {
    const { cols } = reading.pass.stages.get(id).value;
    const width = widthOfHead(id);
    const first = width * state.head;
    return width && width < cols ? `; ${first} to ${first + width - 1} belong to head ${state.head + 1}` : "";
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
      const { cols } = reading.pass.stages.get(id).value;
      const column = Math.min(cols - 1, Math.max(0, Math.floor(((clientX - left) / width) * cols)));
      openNumber(id, column, { [rowsOf(id).side]: at });
    });
    return drawn;
  }

  function shownColumns(id) {
    if (id === "logits") return likeliest(rowOfStage(id, rowsOf(id).at), SHOWN).map((one) => one.id);
    const first = widthOfHead(id) * state.head || 0; // the chosen head's
    return Array.from({ length: Math.min(SHOWN, reading.pass.stages.get(id).value.cols - first) }, (_, i) => first + i);
  }

  function drawVector(id) {
    const stage = reading.pass.stages.get(id);
    const { names, at, lang } = rowsOf(id);
    const part = id.split(".")[3];
    const role = ROLES[part] ?? "plain";
    const vector = rowOfStage(id, at);
    const picked = pickedIn(id);
    const columns = shownColumns(id);
    const more = vector.length - columns.length;
    if (picked !== null && !columns.includes(picked)) columns.push(picked);
    const cells = columns.map((column) => {
      const name =
        id === "logits"
          ? h("span", { class: "label", lang }, nameOf(column))
          : h("span", { class: "label" }, String(column));
      const isPicked = picked === column;
      return h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: `number-cell role-${role}${isPicked ? " selected" : ""}`,
            "data-key": `${id} ${column}`,
            "aria-pressed": String(isPicked),
            onclick: () => openNumber(id, column),
          },
          name,
          number(vector[column]),
        ),
      );
    });
    const title = ROLES[part] ?? stage.title;
    const all = h("details", {}, h("summary", {}, `All ${names.length} positions`));
    all.addEventListener("toggle", () => {
      if (all.children.length > 1) return;
      const list = names.map((word, i) =>
        h(
          "li",
          { class: i === at ? "selected" : null },
          h("span", { lang }, word),
          openable(id, strip(rowOfStage(id, i), { label: `Vector of ${word}` }), i),
        ),
      );
      all.append(h("ol", { class: "strips" }, list));
    });
    const last = vector.length - 1;
    const field = h("input", {
      type: "number",
      class: "field",
      min: 0,
      max: last,
      placeholder: `0–${last}`,
      "aria-label": `Number 0 to ${last} of this ${ROLES[part] ?? "vector"}`,
      "data-key": `${id} field`,
      onchange: () => field.value !== "" && field.validity.valid && openNumber(id, field.valueAsNumber),
    });
    return h(
      "section",
      { class: `vector role-${role}` },
      h(
        "div",
        { class: "vector-head" },
        h(
          "h3",
          {},
          `${title} of `,
          quoted(names[at], lang),
          h("span", { class: "label" }, ` ${vector.length} numbers${headOf(id)}`),
        ),
        more > 0 ? h("label", { class: "label" }, "number ", field) : null,
      ),
      id === "logits"
        ? null
        : openable(id, strip(vector, { label: `The ${vector.length} numbers of this vector as colours` }), at),
      h(
        "ol",
        { class: "number-cells" },
        cells,
        more > 0 ? h("li", { class: "label" }, `… ${more} more`) : null,
      ),
      id === "logits" ? null : all,
    );
  }

  function drawWeights(step) {
    const attention = reading.pass.attentions.find(({ id }) => id === step.attention);
    const { names, at, lang } = rowsOf(step.id.replace("weights", "q"));
    const keys = step.side === "source" || /\.cross\./.test(step.id) ? reading.source : reading.read;
    const keyLang = step.side === "source" || /\.cross\./.test(step.id) ? page.data.languages.source : lang;
    const weights = attention.heads[state.head];
    const shares = row(weights, at);
    const best = argmax(shares);
    const column = state.picked?.column ?? best;
    const map = heatmap({
      matrix: weights,
      rowLabels: names,
      columnLabels: keys,
      label: `The weights of head ${state.head + 1}: choose one to see how it is made`,
      role: "weight",
      largest: 1,
      selected: [at, column],
      onpick: (i, j) => change({ [step.side]: i, picked: { column: j }, all: false }),
    });
    named(map.querySelectorAll("td button"), "cell");
    const sentence = [
      `In head ${state.head + 1}, `,
      ...(step.side === "source" ? [quoted(names[at], lang)] : rowName(reading, at, lang)),
      ` looks ${percent(shares[best])} at `,
      quoted(keys[best], keyLang),
      ".",
    ];
    return { children: [map], sentence };
  }

  function drawSoftmax() {
    const at = state.target;
    const lang = page.data.languages.target;
    const five = likeliest(reading.pass.probabilities(at), 5);
    const picked = state.picked?.column ?? five[0].id;
    const bars = five.map(({ id, probability }) => {
      const isPicked = id === picked;
      return h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: `chip${isPicked ? " selected" : ""}`,
            lang,
            "data-key": `word ${id}`,
            "aria-pressed": String(isPicked),
            onclick: () => change({ picked: { column: id } }),
          },
          nameOf(id),
        ),
        barOf(probability),
        h("span", { class: "share" }, percent(probability)),
      );
    });
    const sentence = [
      "After ",
      quoted(reading.read[at], lang),
      " the likeliest next word is ",
      quoted(nameOf(five[0].id), lang),
      ` (${percent(five[0].probability)}), then `,
      quoted(nameOf(five[1].id), lang),
      ` (${percent(five[1].probability)}).`,
    ];
    return { children: [h("ol", { class: "bars" }, bars)], sentence };
  }

  // By hand -------------------------------------------------------------------------------------------------------------

  function pickedIn(id) {
    if (state.picked?.stage) return state.picked.stage === id ? state.picked.column : null;
    return id === steps[indexOf()].stages[0] ? shownColumns(id)[0] : null;
  }

  function drawHand(step) {
    clear(hand);
    hand.hidden = step.kind === "text";
    if (hand.hidden) return;
    hand.append(
      h("h2", {}, "By hand"),
      ...{ stage: handOfStage, weights: handOfWeight, softmax: handOfSoftmax }[step.kind](step),
    );
  }

  /**
   * A dot product, product by product. `names` are those of its terms, their numbers when left out; `after` follows the
   * sum.
   */
  function dotTable({ left, right }, after, names = null) {
    const { terms, others, rest, sum } = productsOf(left.values, right.values, state.all ? left.values.length : SHOWN);
    const rows = terms.map(([i, a, b, product]) => [names?.[i] ?? String(i), fixed(a), fixed(b), fixed(product)]);
    if (others) rows.push([`the other ${others} together`, "", "", fixed(rest)]);
    rows.push(
      strong(["sum", "", "", fixed(sum)]),
      ...after.map(([name, value]) => strong([name, "", "", fixed(value)])),
    );
    const found = [
      table(
        "The products, the largest first",
        ["number", ...[left, right].map(({ label }) => plain(label).split(":")[0]), "product"],
        rows,
      ),
    ];
    if (left.values.length > SHOWN) {
      found.push(
        button(
          state.all ? `Show the ${SHOWN} largest products only` : `Show all ${left.values.length} products`,
          () => change({ all: !state.all }),
          { "data-key": "all" },
        ),
      );
    }
    return found;
  }

  function handOfStage(step) {
    const { stage: id, column } = state.picked ?? { stage: step.stages[0], column: shownColumns(step.stages[0])[0] };
    const stage = reading.pass.stages.get(id);
    const explanation = renamed(stage.explain(rowsOf(id).at, column), rowsOf(id));
    const { kind, text, parts, result, bias, relu } = explanation;
    const children = [h("p", {}, plain(text))];
    if (explanation.left) {
      const after = bias === undefined ? [] : [["+ bias", bias]];
      if (bias !== undefined || relu) after.push([relu ? "relu(sum + bias)" : "result", result]);
      children.push(...dotTable(explanation, after, kind === "mix" ? parts.map(({ label }) => plain(label)) : null));
    } else {
      const rows = parts.map(({ label, value }) => [plain(label), fixed(value)]);
      children.push(table("What it is made of", ["part", "value"], [...rows, strong(["result", fixed(result)])]));
    }
    return [...children, originsOf(stage.inputs)];
  }

  /** The engine calls a row of the decoder by the word that it has read: here it has its whole name, like “weil → es”. */
  function renamed(explanation, { side, at, names }) {
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

  /** Buttons that lead to the steps where the operands were made. */
  function originsOf(inputs) {
    const found = new Set(inputs.map((id) => steps.find((step) => step.stages.includes(id))).filter(Boolean));
    if (!found.size) return "";
    return h(
      "p",
      { class: "origins" },
      h("span", { class: "label" }, "made from "),
      Array.from(found, ({ id, title }) => button(title, () => change({ step: id }))),
    );
  }

  function handOfWeight(step) {
    const attention = reading.pass.attentions.find(({ id }) => id === step.attention);
    const prefix = step.id.replace(".weights", "");
    const { at } = rowsOf(`${prefix}.q`);
    const keys = attention.kind === "decoder" ? reading.read : reading.source;
    const column = state.picked?.column ?? argmax(row(attention.heads[state.head], at));
    const explanation = renamed(attention.explain(state.head, at, column), rowsOf(`${prefix}.q`));
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
      ...(score === -Infinity ? [] : dotTable(explanation, [[`÷ √d_k = ${number(explanation.divisor)}`, score]])),
      h(
        "p",
        {},
        "Softmax then turns the scores of this row into weights. The largest score is subtracted first, which " +
          "changes no weight.",
      ),
      table("Softmax of this row", ["word", "score", "e^(score − largest)", "weight"], rows),
      originsOf([`${prefix}.q`]),
    ];
  }

  function handOfSoftmax() {
    const vector = rowOfStage("logits", state.target);
    const five = likeliest(reading.pass.probabilities(state.target), 5);
    const { powers, total, weights } = softmaxByHand(vector);
    const picked = state.picked?.column ?? five[0].id;
    const rows = five.map(({ id }) => {
      const cells = [nameOf(id), fixed(vector[id]), fixed(powers[id]), fixed(weights[id])];
      return id === picked ? strong(cells) : cells;
    });
    const sum = (values) => five.reduce((left, { id }) => left - values[id], values === powers ? total : 1);
    rows.push(
      [`the other ${vector.length - 5}`, "", fixed(sum(powers)), fixed(sum(weights))],
      ["sum", "", fixed(total), fixed(1)],
    );
    return [
      h("p", {}, "Each score becomes e^(score − largest), and is divided by the sum over the whole vocabulary."),
      table("Softmax", ["piece", "score", "e^(score − largest)", "probability"], rows),
      originsOf(["logits"]),
    ];
  }

  const onresize = () => reading && drawPicture(steps[indexOf()]);
  addEventListener("resize", onresize);
  form.submit(currentSentence(page));
  return () => {
    form.leave();
    document.removeEventListener("keydown", onkeydown);
    removeEventListener("resize", onresize);
  };
}

export const insideView = {
  id: "inside",
  title: "Inside",
  question: "What happens to a sentence, stage by stage?",
  lead: "Walk from the text to the next word. Choose a number of a vector, or a weight, and see how it is computed.",
  mount,
};
