/** The view of the attention weights: which words each head looks at, and what the model writes without it. */

import { button, figure, h, heatmap, number, percent, s, say } from "../dom.js";
import { column, row } from "../engine/tensor.js";
import { argmax, currentSentence, differInOneWord, focusOf, idsOf, markChanges, named, passOf, pronounIn, quoted, readingForm, rowName, sentenceParameter } from "./sentence.js";

const KINDS = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention" };
const WHAT = {
  encoder: "Source words look at each other.",
  decoder: "Words to be written look at those before.",
  cross: "Words to be written look at source words.",
};
const SPREAD = "The number below a map says over how many words a row spreads its weight, on average: 1.3 is as if 1.3 words shared it equally.";
const ENDS = { 1: "st", 2: "nd", 3: "rd" };

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

/** "cross.0.2" is { kind: "cross", layer: 0, head: 2 }; the average of a layer's heads ends in ".average". */
function headOf(id) {
  const [kind, layer, head] = id.split(".");
  return { kind, layer: Number(layer), head: head === "average" ? head : Number(head) };
}

function nameOf(id) {
  const { kind, layer, head } = headOf(id);
  return `${KINDS[kind].toLowerCase()}, layer ${layer + 1}, ${head === "average" ? "the average of the heads" : `head ${head + 1}`}`;
}

/** The probability of each token of a translation after those before it, EOS included. */
export function tokenChances(pass, targetIds) {
  return targetIds.map((id, t) => pass.probabilities(t)[id]);
}

/** The probability of the token at `t`; without one, of the whole translation. */
export function chanceOf(chances, t = null) {
  return t === null ? chances.reduce((product, chance) => product * chance, 1) : chances[t];
}

/** The probability of each token when these heads are removed. */
export function chancesWithout(model, { pass, targetIds }, removed) {
  return tokenChances(model.forward(pass.sourceIds, pass.targetInIds, { removed }), targetIds);
}

/** [id, chances] of heads; first the one without which the token at `t`, or the translation, is least probable. */
export function rankedBy(effects, t = null) {
  return [...effects].sort(([, a], [, b]) => chanceOf(a, t) - chanceOf(b, t));
}

/** 1st, 2nd, 3rd, 4th, … */
export function ordinal(n) {
  return `${n}${(n % 100 > 10 && n % 100 < 14 ? null : ENDS[n % 10]) ?? "th"}`;
}

/** What it says about a head that looks at one word with the weight `most`: without it p goes from before to after. */
export function verdictOf(before, after, most) {
  const ratio = after / before;
  if (ratio < 0.5) return "this head matters";
  if (ratio < 0.9) return "this head helps";
  if (ratio > 1.1) return "it is likelier without this head";
  return most > 0.5 ? "the strongest thread need not decide the word" : "it hardly depends on this head";
}

/** "goes from 28 % to 4 %", or "stays 28 %" where no digit that is shown changes. */
function goes(before, after) {
  const [from, to] = [before, after].map(percent);
  return from === to ? `stays ${from}` : `goes from ${from} to ${to}`;
}

// Pictures ------------------------------------------------------------------------------------------------------------

/** A small map without labels: eight steps of shade, one path each. */
function thumbnail({ rows, cols, data }) {
  const steps = Array.from({ length: 9 }, () => "");
  data.forEach((weight, k) => (steps[Math.round(8 * weight)] += `M${k % cols} ${Math.floor(k / cols)}h1v1h-1z`));
  const paths = steps.map((d, i) => (i && d ? s("path", { d, fill: "var(--weight)", "fill-opacity": i / 8 }) : null));
  const box = { viewBox: `0 0 ${cols} ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "thumbnail" };
  return s("svg", box, paths);
}

/**
 * Threads between two columns of words, as thick as the weights: `weights` has a row for each word on the left. Those of
 * the chosen word are strong, the others faint.
 */
function threads(weights, isChosen) {
  const height = Math.max(weights.rows, weights.cols);
  const [faint, chosen] = [[], []];
  weights.data.forEach((weight, at) => {
    const [i, j] = [Math.floor(at / weights.cols), at % weights.cols];
    const isStrong = isChosen(i, j);
    if (weight < (isStrong ? 0.005 : 0.05)) return;
    const look = { "stroke-width": (0.6 + 13 * weight).toFixed(2), "vector-effect": "non-scaling-stroke" };
    const path = `M0 ${i + 0.5}C40 ${i + 0.5} 60 ${j + 0.5} 100 ${j + 0.5}`;
    const ends = { class: isStrong ? "chosen" : null, "data-q": i, "data-k": j };
    (isStrong ? chosen : faint).push(s("path", { d: path, ...ends, ...look }));
  });
  const box = { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", class: "threads", "aria-hidden": "true" };
  const svg = s("svg", box, faint, chosen);
  svg.style.setProperty("--rows", height);
  return svg;
}

// The view ------------------------------------------------------------------------------------------------------------

function mount(root, page) {
  const target = page.data.languages.target;
  const given = page.parameters;
  let reading; // the sentence with the model's own translation, and `chances` of its tokens
  let shown; // the same words, read with some heads removed
  let effects; // "id" or "id id" -> the chances of the tokens without this head, or these two, as far as they are known
  let paired; // the heads that have been removed with each other one, or will be
  const state = {
    id: `${given.get("kind") ?? "cross"}.${given.get("layer") - 1}.${given.get("head") === "average" ? "average" : given.get("head") - 1}`,
    side: given.has("k") ? "k" : "q", // the chosen word looks ("q") or is looked at ("k")
    word: Number.parseInt(given.get("k") ?? given.get("q") ?? -1),
    removed: (given.get("removed") ?? "").split(",").filter(Boolean),
  };

  const form = readingForm(page, open);
  const maps = h("div", { class: "maps" });
  const looks = h("div", { class: "looks" });
  const large = h("div", { class: "large-map" });
  const picture = figure(page.data.caption, h("div", { class: "one-head" }, looks, large));
  const title = h("h2", { tabindex: -1 });
  const removal = h("div", { class: "controls" });
  const outcome = h("dl", { class: "old-new" });
  const needs = h("div", { class: "needs" });
  picture.sentence.after(needs);
  const oneHead = h("section", {}, h("div", { class: "head-line" }, title, removal), outcome, picture);
  const allHeads = h("section", {}, h("h2", {}, "All heads"), h("p", { class: "note" }, SPREAD), maps);
  root.append(form, h("div", { class: "attention" }, oneHead, allHeads));

  function open(found) {
    reading = { ...found, chances: tokenChances(found.pass, found.targetIds) };
    effects = new Map();
    paired = new Set();
    const known = new Set(page.model.headIds);
    state.removed = state.removed.filter((id) => known.has(id));
    const asked = headOf(state.id).kind;
    const kind = KINDS[asked] ? asked : "cross";
    const count = sidesOf(kind)[state.side === "q" ? 0 : 1].names.length;
    if (!(state.word >= 0 && state.word < count))
      Object.assign(state, { side: "q", word: kind === "encoder" ? Math.min(1, count - 1) : pronounIn(reading.written) });
    if (!known.has(state.id.replace("average", "0"))) state.id = mostStriking(kind);
    readAgain();
    tryAll(page.model.headIds.map((id) => [id]));
  }

  /** The head of the last layer in which the word looks most at the word by which the sentence differs from an example. */
  function mostStriking(kind) {
    const { id, heads } = reading.pass.attentions.findLast((one) => one.kind === kind);
    const other = page.data.examples.find((example) => differInOneWord(example, reading.text))?.split(" ") ?? [];
    const word = reading.text.split(" ").find((one, i) => one !== (other[i] ?? one)) ?? "";
    const key = kind === "decoder" ? -1 : reading.source.indexOf(word.replace(/[.,!?]$/u, ""));
    const rows = heads.map((head) => row(head, state.side === "q" ? state.word : 0));
    return `${id}.${argmax(rows.map((weights) => weights[key] ?? Math.max(...weights)))}`;
  }

  /** Finds out what the words need these heads for, one list of ids after the other. */
  async function tryAll(lists) {
    const mine = reading;
    for (const ids of lists) {
      await new Promise((done) => setTimeout(done));
      if (mine !== reading) return;
      effectOf(...ids);
    }
    draw();
  }

  function effectOf(...ids) {
    const key = ids.join(" ");
    if (!effects.has(key)) effects.set(key, chancesWithout(page.model, reading, ids));
    return effects.get(key);
  }

  /** [key, chances] of some removals, as rankedBy returns it, once all have been tried; else null. */
  function rankingOf(lists) {
    const keys = lists.map((ids) => ids.join(" "));
    return keys.every((key) => effects.has(key)) ? rankedBy(keys.map((key) => [key, effects.get(key)]), chosenToken()) : null;
  }

  const ranking = () => rankingOf(page.model.headIds.map((id) => [id]));

  /** The same for each removal of `first` with one other head, which begins here. */
  function pairsWith(first) {
    const lists = page.model.headIds.filter((id) => id !== first).map((id) => [first, id]);
    if (!paired.has(first)) tryAll(lists);
    paired.add(first);
    return rankingOf(lists);
  }

  function readAgain() {
    shown = state.removed.length ? passOf(page, reading.text, reading.targetIds, { removed: state.removed }) : reading;
    draw();
    drawOutcome();
  }

  function show(id) {
    const [from, to] = [state.id, id].map((one) => headOf(one).kind);
    if (from !== to) Object.assign(state, { side: "q", word: Math.min(state.word, sidesOf(to)[0].names.length - 1) });
    state.id = id;
    draw();
    if (title.getBoundingClientRect().top < 0) title.scrollIntoView();
  }

  function choose(side, word) {
    Object.assign(state, { side, word });
    draw();
  }

  function remove(ids) {
    state.removed = ids;
    readAgain();
    if (!root.contains(document.activeElement)) (removal.querySelector("button") ?? title).focus({ preventScroll: true });
  }

  const isGone = () => state.removed.includes(state.id);

  function weightsOf(id, { pass } = shown) {
    const { kind, layer, head } = headOf(id);
    const { heads } = pass.attentions.find((one) => one.kind === kind && one.layer === layer);
    return head === "average" ? averageOf(heads) : heads[head];
  }

  /** The weights of the chosen word: where it looks, or who looks at it. */
  function sharesOf() {
    return (state.side === "q" ? row : column)(weightsOf(state.id), state.word);
  }

  /** The words that look and those that are looked at: their names, their language, and what stands above them. */
  function sidesOf(kind) {
    const source = { names: reading.source, lang: null, heading: "at a source word" };
    const read = { names: reading.read, lang: target, heading: "at a word before" };
    const written = { names: reading.written, lang: target, heading: "to be written" };
    return { encoder: [{ ...source, heading: "this word looks" }, source], decoder: [written, read], cross: [written, source] }[kind];
  }

  // What is drawn -------------------------------------------------------------------------------------------------------

  function draw() {
    const focus = focusOf(root);
    const { kind, layer, head } = headOf(state.id);
    page.go("attention", {
      ...sentenceParameter(page, reading.text),
      ...{ kind, layer: layer + 1, head: head === "average" ? head : head + 1, [state.side]: state.word },
      ...(state.removed.length ? { removed: state.removed.join(",") } : {}),
    });
    maps.replaceChildren(...Object.keys(KINDS).map(mapsOf));
    drawHead(kind);
    const where = isGone() ? ["This head is removed: its output is zeros."] : whereItLooks(kind);
    say(picture.sentence, [...where, ...whatItDoes()]);
    drawNeeds();
    focus();
  }

  function mapsOf(kind) {
    const layers = shown.pass.attentions.filter((one) => one.kind === kind);
    const rows = layers.map(({ id, layer, heads }) => {
      const list = [...heads.keys(), "average"].map((head) => mapButton(`${id}.${head}`));
      const group = { role: "group", "aria-label": `${KINDS[kind]}, layer ${layer + 1}` };
      return h("div", group, h("p", { class: "label" }, `layer ${layer + 1}`), h("div", { class: "map-list" }, list));
    });
    return h("section", { class: "map-kind" }, h("h3", {}, KINDS[kind]), h("p", { class: "label" }, WHAT[kind]), rows);
  }

  function mapButton(id) {
    const weights = weightsOf(id);
    const gone = state.removed.includes(id);
    const spread = number(2 ** meanEntropy(weights), 2);
    const isMost = !gone && ranking()?.[0][0] === id;
    const attributes = {
      ...{ type: "button", class: `map${gone ? " gone" : ""}${isMost ? " most" : ""}`, "data-key": id, "aria-pressed": String(id === state.id) },
      "aria-label": `${nameOf(id)}: ${gone ? "removed" : `spread over about ${spread} words`}${isMost ? "; its removal alone costs most" : ""}`,
      onclick: () => show(id),
    };
    const { head } = headOf(id);
    const name = head === "average" ? head : `head ${head + 1}`;
    return h("button", attributes, thumbnail(weights), h("span", {}, name), h("span", { class: "label" }, gone ? "removed" : isMost ? "costs most" : spread));
  }

  function drawHead(kind) {
    const { id, side, word } = state;
    const gone = isGone();
    title.textContent = nameOf(id).replace(/^./u, (letter) => letter.toUpperCase());
    const others = state.removed.filter((one) => one !== id);
    const text = gone ? "Put this head back" : "Remove this head";
    const one = () => button(text, () => remove(gone ? others : [...others, id]), { "data-key": "remove" });
    const all = () => button("Put all back", () => remove([]), { "data-key": "all" });
    removal.replaceChildren(...(id.endsWith("average") ? [] : [one()]), ...(others.length ? [all()] : []));

    const weights = weightsOf(id);
    const shares = sharesOf();
    const best = argmax(shares);
    const sides = sidesOf(kind);
    const left = wordColumn("q", sides[0], side === "k" && !gone ? shares : null);
    const right = wordColumn("k", sides[1], side === "q" && !gone ? shares : null);
    const between = threads(weights, (i, j) => (side === "q" ? i : j) === word);
    looks.replaceChildren(h("div", { class: gone ? "columns gone" : "columns" }, left, between, right));

    const map = heatmap({
      matrix: weights,
      rowLabels: sides[0].names,
      columnLabels: sides[1].names,
      label: `Weights of ${nameOf(id)}: a row for each word that looks, a column for each word it can look at`,
      role: "weight",
      largest: 1,
      selected: side === "q" ? [word, null] : [null, word],
      onpick: (i) => choose("q", i),
    });
    map.classList.toggle("gone", gone);
    const heads = ["row", "col"].map((scope) => [...map.querySelectorAll(`th[scope=${scope}]`)]);
    heads.forEach((cells, i) => cells.forEach((cell) => (cell.lang = sides[i].lang ?? "")));
    named(map.querySelectorAll("td button"), "cell");
    const [rowHead, columnHead] = (side === "q" ? [word, best] : [best, word]).map((i, which) => heads[which][i]);
    [rowHead, columnHead].forEach((cell) => cell.classList.add("here"));
    large.replaceChildren(map);
    map.scrollLeft = columnHead.offsetLeft - (map.clientWidth + rowHead.offsetWidth - columnHead.offsetWidth) / 2;
  }

  /** Shows the threads of a word while a pointer or the focus is on it. */
  function light(side, i, isOn) {
    looks.querySelectorAll(`.threads [data-${side}="${i}"]`).forEach((thread) => thread.classList.toggle("lit", isOn));
  }

  function wordColumn(side, { names, lang, heading }, shares) {
    const items = names.map((text, i) => {
      const selected = side === state.side && i === state.word;
      const look = `chip role-${side === "q" ? "query" : "key"}${selected ? " selected" : ""}`;
      const [on, off] = [true, false].map((isOn) => () => light(side, i, isOn));
      const attributes = {
        ...{ type: "button", class: look, "data-key": `${side} ${i}`, "aria-pressed": String(selected) },
        ...{ onpointerenter: on, onpointerleave: off, onfocus: on, onblur: off, onclick: () => choose(side, i) },
      };
      const share = shares ? h("span", { class: "share" }, percent(shares[i])) : null;
      return h("li", {}, h("button", attributes, h("span", { lang }, text)), share);
    });
    return h("div", { class: `word-column ${side}` }, h("p", { class: "label" }, heading), h("ol", {}, items));
  }

  // What is said --------------------------------------------------------------------------------------------------------

  /** The position of the written word that is chosen, or null. */
  function chosenToken() {
    return state.side === "q" && headOf(state.id).kind !== "encoder" ? state.word : null;
  }

  /** "p(es)" for a token, "p of the translation" for null. */
  function chanceName(t) {
    return t === null ? ["p of the translation"] : ["p(", quoted(reading.written[t], target), ")"];
  }

  function whereItLooks(kind) {
    const shares = sharesOf();
    const [best, share] = [argmax(shares), percent(Math.max(...shares))];
    const [{ names }, { names: columns, lang }] = sidesOf(kind);
    const who = (i) => (kind === "encoder" ? [quoted(names[i])] : rowName(reading, i, target));
    if (state.side === "q") return ["Here ", ...who(state.word), ` looks ${share} at `, quoted(columns[best].replace(/^\p{P}$/u, "“$&”"), lang), "."];
    return ["Here ", quoted(columns[state.word], lang), " is looked at most by ", ...who(best), ` (${share}).`];
  }

  /** How the heads that are removed, or else the one that is shown, change the chance of the token and the translation. */
  function whatItDoes() {
    const t = chosenToken();
    const change = (chances, of) => [...chanceName(of), " ", goes(chanceOf(reading.chances, of), chanceOf(chances, of))];
    if (state.removed.length) {
      const chances = tokenChances(shown.pass, reading.targetIds);
      const ofToken = t === null ? [] : [", and ", ...change(chances, t)];
      const [first, ...others] = state.removed;
      const names = others.length ? `these ${others.length + 1} heads` : isGone() ? "it" : nameOf(first);
      return [` Without ${names}, `, ...change(chances, null), ...ofToken, "."];
    }
    if (state.id.endsWith("average")) return [];
    const chances = effectOf(state.id);
    const verdict = verdictOf(chanceOf(reading.chances, t), chanceOf(chances, t), t === null ? 0 : Math.max(...sharesOf()));
    const isRanked = chanceOf(chances, t) < 0.9 * chanceOf(reading.chances, t);
    const place = isRanked && ranking()?.findIndex(([one]) => one === state.id) + 1;
    const counted = place ? ` By what its removal alone costs, it is ${ordinal(place)} of ${page.model.headIds.length}.` : "";
    return [" Without this head, ", ...change(chances, t), `: ${verdict}.`, counted];
  }

  function drawNeeds() {
    const t = chosenToken();
    const ranked = state.removed.length ? null : ranking();
    const [id, alone] = ranked?.[0] ?? [state.id];
    const pairs = ranked && pairsWith(id);
    const [pair, chances] = pairs?.[0] ?? [];
    const isMore = pair && chanceOf(chances, t) < 0.9 * chanceOf(alone, t);
    const go = id === state.id ? null : button("Show it", () => show(id), { "data-key": "needed" });
    const both = isMore && button("Remove both", () => ((state.id = id), remove(pair.split(" "))), { "data-key": "both" });
    const transplant = h("a", { class: "button", href: "#/transplant" }, "Exchange vectors");
    const said = [ranked && whatIsNeeded(ranked), isMore && whatBothDo(pair.split(" ")[1], chances), pairs || state.removed.length ? null : "…"];
    needs.replaceChildren(...said.filter(Boolean).map((text) => h("p", {}, text)), h("div", { class: "controls" }, both, go, transplant));
  }

  /** Which head's removal alone costs the chosen token, or the translation, most. */
  function whatIsNeeded(ranked) {
    const t = chosenToken();
    const [[id, chances]] = ranked;
    const p = [...chanceName(t), ` is ${percent(chanceOf(chances, t))}. `];
    if (chanceOf(chances, t) > 0.9 * chanceOf(reading.chances, t))
      return ["No head is needed alone: without the one whose removal costs most, ", ...p];
    const who = t === null ? "the translation" : quoted(reading.written[t], target);
    if (id === state.id) return ["Of all heads, this one alone costs ", who, " most when it is removed. "];
    const { kind } = headOf(id);
    const [, { names, lang }] = sidesOf(kind);
    const weights = t === null || kind === "encoder" ? [] : row(weightsOf(id, reading), t);
    const looks = [`it looks ${percent(Math.max(...weights))} at `, quoted(names[argmax(weights)], lang), ". "];
    const most = [`Removed alone, ${nameOf(id)} costs `, who, " most", ...(weights.length ? [": ", ...looks] : [". "]), "Without that head ", ...p];
    return most;
  }

  function whatBothDo(id, chances) {
    const t = chosenToken();
    const alone = goes(...[reading.chances, effectOf(id)].map((one) => chanceOf(one, t)));
    const most = [`Of the ${page.model.headIds.length - 1} other heads, ${nameOf(id)} costs most when it is removed, too: without both, `, ...chanceName(t)];
    return [...most, ` is ${percent(chanceOf(chances, t))}. Without the second one alone, it ${alone}.`];
  }

  /** The translation with all heads, how probable it is, and the one without those that are removed. */
  async function drawOutcome() {
    const [mine, removed] = [reading, state.removed];
    const before = page.tokenizer.decode(mine.targetIds);
    const [p, q] = [reading, shown].map(({ pass }) => percent(chanceOf(tokenChances(pass, mine.targetIds))));
    const line = (text, other, mark) =>
      h("span", { lang: target }, markChanges(text, other).map(([word, isNew], i) => [i ? " " : "", isNew ? h(mark, {}, word) : word]));
    const write = (now) => {
      const chance = h("span", { class: "share" }, `p of this translation ${p}`, removed.length ? h("strong", {}, ` → ${q}`) : "");
      outcome.replaceChildren(h("dt", {}, "all heads"), h("dd", {}, line(before, now ?? before, "del"), chance));
      if (!removed.length) return;
      outcome.append(h("dt", {}, `${removed.length} removed`), h("dd", {}, now === null ? "…" : line(now, before, "ins")));
    };
    write(null);
    if (!removed.length) return;
    const now = page.tokenizer.decode(await idsOf(page, mine.text, removed));
    if (mine === reading && removed === state.removed) write(now);
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
  lead: "The thicker a thread, the more a word looks at another. Remove a head.",
  mount,
};
