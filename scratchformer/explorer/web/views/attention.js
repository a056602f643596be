/** The view of the attention weights: which words each head looks at, and what happens without a head. */

import { button, choice, clear, figure, h, heatmap, number, percent, s, say, table } from "../dom.js";
import { Pass } from "../engine/model.js";
import { column, row } from "../engine/tensor.js";
import { argmax, currentSentence, decimal, focusOf, idsOf, named, passOf, pronounIn, quoted, readingForm, rowName, sentenceParameter } from "./sentence.js";
import { markChanges, minimalPair } from "./sentence.js";

const KINDS = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention" };
const WHAT = {
  encoder: "Source words look at each other.",
  decoder: "Words to be written look at those before.",
  cross: "Words to be written look at source words.",
};

// What the numbers say ------------------------------------------------------------------------------------------------

/** The entropy of a distribution in bits: 0 where all weight is on one word, log2(n) for n equal weights. */
export function entropyInBits(weights) {
  let sum = 0;
  for (const weight of weights) if (weight > 0) sum -= weight * Math.log2(weight);
  return sum;
}

/** The mean entropy of a head's rows in bits. 2 to this power is the number of equal weights with the same entropy. */
export function meanEntropy(matrix) {
  let sum = 0;
  for (let i = 0; i < matrix.rows; i++) sum += entropyInBits(row(matrix, i));
  return sum / matrix.rows;
}

/** The mean of some heads' weights. */
export function averageOf(heads) {
  const { rows, cols } = heads[0];
  const data = new Float32Array(rows * cols);
  for (const head of heads) head.data.forEach((weight, i) => (data[i] += weight / heads.length));
  return { rows, cols, data };
}

/** ln p of a whole translation: the sum over its tokens, EOS included. */
export function logProbability(pass, targetIds) {
  let sum = 0;
  targetIds.forEach((id, t) => (sum += Math.log(pass.probabilities(t)[id])));
  return sum;
}

/** All heads of a pass: [{ id: "cross.0.2", kind, layer, head, name }]. */
export function headsOf(pass) {
  return pass.attentions.flatMap(({ id, kind, layer, heads }) =>
    heads.map((_, head) => ({
      id: `${id}.${head}`,
      kind,
      layer,
      head,
      name: `${KINDS[kind].toLowerCase()}, layer ${layer + 1}, head ${head + 1}`,
    })),
  );
}

/** Each head with `change`, the change of ln p of the translation when it is removed; the largest fall first. */
export async function rankHeads({ model }, { targetIds, pass }, pause = () => new Promise((done) => setTimeout(done))) {
  const before = logProbability(pass, targetIds);
  const memory = [...pass.stages.values()].findLast(({ id }) => id.startsWith("encoder."));
  const decoderOnly = Object.assign(Object.create(model), { encode: () => memory });
  const ranked = [];
  for (const head of headsOf(pass)) {
    const reader = head.kind === "encoder" ? model : decoderOnly;
    const without = reader.run(new Pass(model, pass.sourceIds, pass.targetInIds, { removed: [head.id] }));
    ranked.push({ ...head, change: logProbability(without, targetIds) - before });
    await pause();
  }
  return ranked.sort((a, b) => a.change - b.change);
}

/** What happens without some heads: the translation with all heads had the probability `before`, and now has `after`. */
function effectOfRemoval(wordsStay, before, after) {
  const goes = `goes from ${percent(before)} to ${percent(after)}.`;
  if (!wordsStay) return `the model writes something else. The probability of the translation with all heads ${goes}`;
  const but = after < before ? "but the translation is only" : "and the translation is";
  return `the words stay the same, ${but} ${decimal(after / before, 2)} times as likely. Its probability ${goes}`;
}

// Pictures ------------------------------------------------------------------------------------------------------------

/** A small map without labels: eight steps of shade, one path each. */
function thumbnail({ rows, cols, data }) {
  const steps = Array.from({ length: 9 }, () => "");
  data.forEach((weight, k) => (steps[Math.round(8 * weight)] += `M${k % cols} ${Math.floor(k / cols)}h1v1h-1z`));
  const paths = steps.map((d, i) => (i && d ? s("path", { d, fill: "var(--weight)", "fill-opacity": i / 8 }) : null));
  return s(
    "svg",
    { viewBox: `0 0 ${cols} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "thumbnail" },
    paths,
  );
}

/**
 * Threads between two columns of words, as thick as the weights: `weights` has a row for each word on the left. Those of
 * the chosen word are strong, the others faint.
 */
function threads(weights, isChosen) {
  const height = Math.max(weights.rows, weights.cols);
  const [faint, chosen] = [[], []];
  for (let i = 0; i < weights.rows; i++) {
    for (let j = 0; j < weights.cols; j++) {
      const weight = weights.data[i * weights.cols + j];
      const isStrong = isChosen(i, j);
      if (weight < (isStrong ? 0.005 : 0.05)) continue;
      const path = `M0 ${i + 0.5}C40 ${i + 0.5} 60 ${j + 0.5} 100 ${j + 0.5}`;
      (isStrong ? chosen : faint).push(
        s("path", {
          d: path,
          class: isStrong ? "chosen" : null,
          "data-q": i,
          "data-k": j,
          "stroke-width": (0.6 + 13 * weight).toFixed(2),
          "vector-effect": "non-scaling-stroke",
        }),
      );
    }
  }
  const svg = s(
    "svg",
    { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", class: "threads", "aria-hidden": "true" },
    faint,
    chosen,
  );
  svg.style.setProperty("--rows", height);
  return svg;
}

// The view ------------------------------------------------------------------------------------------------------------

function mount(root, page) {
  const target = page.data.languages.target;
  const given = page.parameters;
  let reading; // the sentence with the model's own translation
  let shown; // the same words, read with some heads removed
  let ranking = null;
  const state = {
    kind: KINDS[given.get("kind")] ? given.get("kind") : "cross",
    layer: Number.parseInt(given.get("layer")) - 1,
    head: given.get("head") === "average" ? "average" : Number.parseInt(given.get("head")) - 1,
    side: given.has("k") ? "k" : "q",
    word: Number.parseInt(given.get(given.has("k") ? "k" : "q") ?? -1),
    removed: (given.get("removed") ?? "").split(",").filter(Boolean),
  };

  const form = readingForm(page, open);
  const maps = h("div", { class: "maps" });
  const large = h("div", { class: "large-map" });
  const looks = h("div", { class: "looks" });
  const picture = figure(page.data.caption, h("div", { class: "one-head" }, looks, large));
  const title = h("h2");
  const removal = h("span");
  const outcome = h("p", { class: "note" });
  const without = h("div", { class: "without" });
  root.append(
    form,
    h(
      "div",
      { class: "attention" },
      h("section", {}, h("div", { class: "head-line" }, title, removal), picture, outcome),
      h(
        "section",
        {},
        h("h2", {}, "All heads"),
        maps,
        h(
          "p",
          { class: "note" },
          "Below each map: how widely it spreads its weight. “1.3 words” is as widely as if 1.3 words shared the weight " +
            "equally.",
        ),
      ),
    ),
    h("h2", {}, "Without a head"),
    without,
  );
  function open(found) {
    reading = found;
    ranking = null;
    const { pass, written } = reading;
    const known = new Set(headsOf(pass).map(({ id }) => id));
    state.removed = state.removed.filter((id) => known.has(id));
    const { attentions } = pass;
    const layers = attentions.filter(({ kind }) => kind === state.kind);
    const rows = state.kind === "encoder" ? reading.source.length : written.length;
    const limit = state.side === "k" && state.kind !== "decoder" ? reading.source.length : rows;
    if (!(state.word >= 0 && state.word < limit)) {
      const word = state.kind === "encoder" ? Math.min(1, rows - 1) : pronounIn(written);
      Object.assign(state, { side: "q", word });
    }
    if (!layers[state.layer] || (state.head !== "average" && !layers[state.layer].heads[state.head])) {
      Object.assign(state, clearest(layers, state.side === "q" ? state.word : 0));
    }
    readAgain();
  }

  /** The head of the last layer in which a word looks most at the word that matters here, or at any single word. */
  function clearest(layers, query) {
    const { layer, heads } = layers.at(-1);
    const key = state.kind === "decoder" ? -1 : changedWord();
    const weightOf = (head) => (key < 0 ? Math.max(...row(head, query)) : row(head, query)[key]);
    return { layer, head: argmax(heads.map(weightOf)) };
  }

  /** Where the word stands that changes the translation, in the two examples that differ in one word; or −1. */
  function changedWord() {
    const pair = minimalPair(page.data.examples) ?? [];
    if (!pair.includes(reading.text)) return -1;
    const [[word]] = markChanges(reading.text, pair.find((text) => text !== reading.text)).filter(([, isNew]) => isNew);
    return reading.source.indexOf(word.replace(/[.,!?]$/u, ""));
  }

  function readAgain() {
    shown = state.removed.length ? passOf(page, reading.text, reading.targetIds, { removed: state.removed }) : reading;
    draw();
    drawWithout();
  }

  function pick(changes) {
    const kind = changes.kind ?? state.kind;
    if (kind !== state.kind)
      Object.assign(state, { side: "q", word: Math.min(state.word, labels(kind)[0].length - 1) });
    Object.assign(state, changes);
    draw();
    if ("head" in changes) drawWithout();
  }

  function toggle(id) {
    state.removed = state.removed.includes(id) ? state.removed.filter((one) => one !== id) : [...state.removed, id];
    readAgain();
  }

  function removeText(id) {
    return state.removed.includes(id) ? "Put this head back" : "Remove this head";
  }

  function weightsOf({ kind, layer, head }) {
    const { heads } = shown.pass.attentions.find((one) => one.kind === kind && one.layer === layer);
    return head === "average" ? averageOf(heads) : heads[head];
  }

  /** Names of the words that look and of those that are looked at. */
  function labels(kind) {
    const { source, written, read } = reading;
    return { encoder: [source, source], decoder: [written, read], cross: [written, source] }[kind];
  }

  function draw() {
    const focus = focusOf(root);
    const { kind, layer, head, side, word } = state;
    page.go("attention", {
      ...sentenceParameter(page, reading.text),
      kind,
      layer: layer + 1,
      head: head === "average" ? head : head + 1,
      [side]: word,
      ...(state.removed.length ? { removed: state.removed.join(",") } : {}),
    });
    drawMaps();
    drawOne();
    focus();
  }

  function drawMaps() {
    clear(maps);
    for (const kind of Object.keys(KINDS)) {
      const layers = shown.pass.attentions.filter((one) => one.kind === kind);
      const rows = layers.map(({ layer, heads }) =>
        h(
          "div",
          { role: "group", "aria-label": `${KINDS[kind]}, layer ${layer + 1}` },
          h("p", { class: "label" }, `layer ${layer + 1}`),
          h(
            "div",
            { class: "map-list" },
            [...heads.keys(), "average"].map((head) => mapButton(kind, layer, head)),
          ),
        ),
      );
      maps.append(
        h("section", { class: "map-kind" }, h("h3", {}, KINDS[kind]), h("p", { class: "label" }, WHAT[kind]), rows),
      );
    }
  }

  function mapButton(kind, layer, head) {
    const weights = weightsOf({ kind, layer, head });
    const id = `${kind}.${layer}.${head}`;
    const gone = state.removed.includes(id);
    const name = head === "average" ? "average" : `head ${head + 1}`;
    const words = number(2 ** meanEntropy(weights), 2);
    const rank = ranking?.find((one) => one.id === id);
    const effect = rank && !state.removed.length ? `p × ${decimal(Math.exp(rank.change), 2)}` : null;
    const isCurrent = kind === state.kind && layer === state.layer && head === state.head;
    return h(
      "button",
      {
        type: "button",
        class: gone ? "map gone" : "map",
        "data-key": id,
        "aria-pressed": String(isCurrent),
        "aria-label":
          `${KINDS[kind]}, layer ${layer + 1}, ${name}: ` +
          `${gone ? "removed" : `spread over about ${words} words`}${effect ? `; without it the translation's probability is multiplied by ${effect.slice(4)}` : ""}`,
        onclick: () => {
          pick({ kind, layer, head });
          if (title.getBoundingClientRect().top < 0) title.scrollIntoView();
        },
      },
      thumbnail(weights),
      h("span", {}, name),
      h("span", { class: "label" }, gone ? "removed" : `${words} words`),
      effect ? h("span", { class: "label" }, effect) : null,
    );
  }

  function drawOne() {
    const { kind, layer, head, side, word } = state;
    const weights = weightsOf(state);
    const [rows, columns] = labels(kind);
    const name = head === "average" ? `the average of the heads` : `head ${head + 1}`;
    title.textContent = `${KINDS[kind]}, layer ${layer + 1}, ${name}`;
    const id = `${kind}.${layer}.${head}`;
    removal.replaceChildren(
      ...(head === "average" ? [] : [button(removeText(id), () => toggle(id), { "data-key": "remove here" })]),
    );
    const isChosen = (i, j) => (side === "q" ? i === word : j === word);
    const shares = side === "q" ? row(weights, word) : column(weights, word);
    const best = argmax(shares);
    const rowLang = kind === "encoder" ? null : target;
    const columnLang = kind === "decoder" ? target : null;
    clear(looks);
    looks.append(
      h(
        "div",
        { class: "columns" },
        wordColumn(rows, "q", kind === "encoder" ? "this word looks" : "to be written", "query", side === "k" ? shares : null, rowLang),
        threads(weights, isChosen),
        wordColumn(
          columns,
          "k",
          kind === "decoder" ? "at a word read before" : "at this source word",
          "key",
          side === "q" ? shares : null,
          columnLang,
        ),
      ),
    );
    clear(large);
    const map = heatmap({
      matrix: weights,
      rowLabels: rows,
      columnLabels: columns,
      label: `Weights of ${title.textContent}: a row for each word that looks, a column for each word it can look at`,
      role: "weight",
      largest: 1,
      selected: side === "q" ? [word, null] : null,
      onpick: (i) => pick({ side: "q", word: i }),
    });
    map.querySelectorAll("th[scope=row]").forEach((cell) => (cell.lang = rowLang ?? ""));
    map.querySelectorAll("th[scope=col]").forEach((cell) => (cell.lang = columnLang ?? ""));
    named(map.querySelectorAll("td button"), "cell");
    large.append(map, h("p", { class: "label" }, spreadOf(weights)));

    const where = `In ${title.textContent[0].toLowerCase()}${title.textContent.slice(1)}, `;
    if (side === "q") {
      say(picture.sentence, [
        where,
        ...(kind === "encoder" ? [quoted(rows[word], rowLang)] : rowName(reading, word, target)),
        ` looks ${percent(shares[best])} at `,
        quoted(columns[best], columnLang),
        ".",
      ]);
    } else {
      say(picture.sentence, [
        where,
        quoted(columns[word], columnLang),
        " is looked at most by ",
        ...(kind === "encoder" ? [quoted(rows[best], rowLang)] : rowName(reading, best, target)),
        ` (${percent(shares[best])}).`,
      ]);
    }
  }

  function spreadOf(weights) {
    const bits = meanEntropy(weights);
    return (
      `A row spreads its weight as widely as if ${number(2 ** bits, 2)} words shared it equally (entropy ` +
      `${number(bits, 2)} bits, the mean of the rows).`
    );
  }

  /** Shows the threads of a word while a pointer or the focus is on it. */
  function light(side, i, isOn) {
    looks.querySelectorAll(`.threads [data-${side}="${i}"]`).forEach((thread) => thread.classList.toggle("lit", isOn));
  }

  function wordColumn(list, side, heading, role, shares, lang) {
    const items = list.map((text, i) => {
      const selected = side === state.side && i === state.word;
      const chip = h(
        "button",
        {
          type: "button",
          class: `chip role-${role}${selected ? " selected" : ""}`,
          "data-key": `${side} ${i}`,
          "aria-pressed": String(selected),
          onclick: () => pick({ side, word: i }),
          onpointerenter: () => light(side, i, true),
          onpointerleave: () => light(side, i, false),
          onfocus: () => light(side, i, true),
          onblur: () => light(side, i, false),
        },
        h("span", { lang }, text),
      );
      return h("li", {}, chip, shares ? h("span", { class: "share" }, percent(shares[i])) : null);
    });
    return h("div", { class: `word-column ${side}` }, h("p", { class: "label" }, heading), h("ol", {}, items));
  }

  // Without a head ------------------------------------------------------------------------------------------------------

  async function drawWithout() {
    const mine = reading;
    const focus = focusOf(without);
    clear(without);
    clear(outcome);
    const heads = headsOf(reading.pass);
    const select = choice({
      label: "head",
      options: heads.map(({ id, name }) => [id, name]),
      value: state.head === "average" ? heads[0].id : `${state.kind}.${state.layer}.${state.head}`,
      onchange: (id) => {
        const { kind, layer, head } = heads.find((one) => one.id === id);
        pick({ kind, layer, head });
      },
    });
    select.querySelector("select").dataset.key = "removable";
    const selected = () => select.querySelector("select").value;
    const answer = h("div", { class: "answer" });
    without.append(
      h("p", {}, "Remove a head, or several: its output becomes zeros, and the model translates again."),
      h(
        "div",
        { class: "controls" },
        select,
        button(removeText(selected()), () => toggle(selected()), { "data-key": "remove" }),
        state.removed.length
          ? button("Put all heads back", () => ((state.removed = []), readAgain()), { "data-key": "all" })
          : null,
        button("Find the head that matters most here", find, { "data-key": "find" }),
      ),
      answer,
    );
    focus();
    if (ranking) answer.append(rankingTable());
    if (!state.removed.length) return;
    const before = page.tokenizer.decode(reading.targetIds);
    const result = figure(page.data.caption);
    answer.prepend(result);
    const removed = [...state.removed];
    const ids = await idsOf(page, reading.text, removed);
    if (mine !== reading || removed.join() !== state.removed.join()) return;
    const now = page.tokenizer.decode(ids);
    const p = Math.exp(logProbability(reading.pass, reading.targetIds));
    const q = Math.exp(logProbability(shown.pass, reading.targetIds));
    const line = (text, other, mark) =>
      markChanges(text, other).map(([word, changed], i) => [i ? " " : "", changed ? h(mark, {}, word) : word]);
    result.prepend(
      h(
        "dl",
        { class: "old-new" },
        h("dt", {}, "all heads"),
        h("dd", { lang: target }, line(before, now, "del")),
        h("dt", {}, removed.length === 1 ? "without it" : `without these ${removed.length}`),
        h("dd", { lang: target }, line(now, before, "ins")),
      ),
    );
    const names = heads.filter(({ id }) => removed.includes(id)).map(({ name }) => name);
    say(result.sentence, `Without ${names.join(" and ")} ${effectOfRemoval(before === now, p, q)}`);
    outcome.replaceChildren("Without ", names.join(" and "), ": ", h("span", { lang: target }, now));
  }

  async function find() {
    const mine = reading;
    const found = await rankHeads(page, reading);
    if (mine !== reading) return;
    ranking = found;
    ranking.staysTheSame = String(await idsOf(page, reading.text, [found[0].id])) === String(reading.targetIds);
    if (mine !== reading) return;
    draw();
    drawWithout();
  }

  function rankingTable() {
    const [worst] = ranking;
    const p = Math.exp(logProbability(reading.pass, reading.targetIds));
    const rows = ranking.slice(0, 5).map(({ id, name, change }) => [
      button(name, () => toggle(id), {
        "aria-label": `Remove or put back ${name}`,
        "aria-pressed": String(state.removed.includes(id)),
      }),
      percent(p * Math.exp(change)),
      `${decimal(Math.exp(change), 2)} times as likely`,
    ]);
    const heads = ["without this head", "p of the translation", "compared with all heads"];
    const result = figure(page.data.caption, table("The five heads that matter most", heads, rows, ""));
    say(
      result.sentence,
      `Of all ${ranking.length} heads, ${worst.name} matters most here: without it ` +
        effectOfRemoval(ranking.staysTheSame, p, p * Math.exp(worst.change)),
    );
    return result;
  }

  form.submit(currentSentence(page));
  return () => {
    form.leave();
    reading = null;
  };
}

export const attentionView = {
  id: "attention",
  title: "Attention",
  question: "Which words does each head look at?",
  lead:
    "A thread is a weight: the thicker, the more a word looks at another. Choose a word, then another head. Each map " +
    "shows all weights of one head: a row for each word that looks, a column for each word it can look at.",
  mount,
};
