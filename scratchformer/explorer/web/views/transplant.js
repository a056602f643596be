/**
 * Transplant: the encoder's vectors of two sentences. A vector moves into the other sentence, and the search runs again
 * with the changed memory. A control, the other vectors at the same place, says whether this vector is the cause.
 */

import { button, choice, clear, figure, h, percent, reach, roving, s, say, table } from "../dom.js";
import { translate } from "../engine/beam.js";
import { Pass } from "../engine/model.js";
import { attention, linear, matrix, row } from "../engine/tensor.js";
import { BOS, EOS } from "../engine/tokenizer.js";
import { argmax, barOf, commonPlaces, currentSentence, focusOf, idsOf, lessonLink, likeliest, markChanges, partnerOf, quoted, sentenceParameter, similarWords, sourceIdsOf, wordField, wordOf } from "./sentence.js";
import { beamFold } from "./tree.js";

const PRONOUNS = ["es", "sie", "er"];
const NOUNS = { animal: ["es", "das Tier"], horse: ["es", "das Pferd"], street: ["sie", "die Straße"], suitcase: ["er", "der Koffer"], car: ["es", "das Auto"] };
const NAMES = ["first", "second"];
const PAUSE_MS = 200; // in the typing, before the page translates

// What is computed ----------------------------------------------------------------------------------------------------

/** The place in another list that fits place i of this one: what both have fits together, and what stands after it. */
export function placeIn(list, other, i) {
  const pairs = [[-1, -1], ...commonPlaces(list, other)];
  const [k, j] = pairs.findLast(([k]) => k <= i);
  const last = (pairs.find(([k]) => k > i)?.[1] ?? other.length) - 1;
  return Math.max(0, Math.min(j + i - k, last));
}

/** The first place where two translations differ; where they are equal, that of the last word. `ids` end with EOS. */
export function placeOfBars(a, b, isWord) {
  const differs = a.findIndex((id, t) => id !== b[t]);
  return differs >= 0 ? differs : Math.max(0, a.findLastIndex(isWord));
}

/** A memory with the vectors of some moves ({ place, from }) out of another one. */
export function withMoves(memory, other, moves) {
  const changed = matrix(memory.rows, memory.cols, Float32Array.from(memory.data));
  for (const { place, from } of moves) row(changed, place).set(row(other, from));
  return changed;
}

/** The pass of a decoder that has read `before` (ids, BOS first) and looks at this memory. */
function passWith(model, sourceIds, before, memory) {
  return model.forward(sourceIds, before, { changes: { [model.memoryId]: (value) => value.data.set(memory.data) } });
}

/** The distribution of the word after `before`, for a decoder that looks at this memory. */
export function chancesAfter(model, sourceIds, before, memory) {
  return passWith(model, sourceIds, before, memory).probabilities(before.length - 1);
}

/** The same where only some rows of the decoder look at this memory: those for which `reads(t)` is true. */
export function chancesThrough(model, sourceIds, before, memory, reads) {
  const changes = {};
  const pass = new Pass(model, sourceIds, before, { changes });
  model.decoder.forEach(({ cross }, n) => {
    changes[`decoder.${n}.cross.heads`] = (value) => {
      const { value: q } = pass.stages.get(`decoder.${n}.cross.q`);
      const [k, v] = [cross.k, cross.v].map((layer) => linear(memory, layer));
      const { heads } = attention(q, k, v, model.config.h, { divisor: model.divisor });
      for (let t = 0; t < value.rows; t++) if (reads(t)) row(value, t).set(row(heads, t));
    };
  });
  return model.run(pass).probabilities(before.length - 1);
}

// Pictures ------------------------------------------------------------------------------------------------------------

/** A vector as cells in 8 rows: positive numbers blue, negative ones orange, the larger the stronger. */
function mosaic(vector) {
  const width = Math.ceil(vector.length / 8);
  const largest = 2.5 * Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0) / vector.length);
  const shades = new Map();
  vector.forEach((value, i) => {
    const key = Math.sign(value) * Math.ceil(Math.min(1, Math.abs(value) / largest) * 5);
    shades.set(key, `${shades.get(key) ?? ""}M${i % width} ${Math.floor(i / width)}h1v1h-1z`);
  });
  const path = ([key, d]) => s("path", { d, fill: `var(--${key < 0 ? "negative" : "positive"})`, "fill-opacity": Math.abs(key) / 5 });
  return s("svg", { viewBox: `0 0 ${width} 8`, preserveAspectRatio: "none", "aria-hidden": "true" }, [...shades].map(path));
}

// The view ------------------------------------------------------------------------------------------------------------

function mount(root, page) {
  const { model, tokenizer, data, shared } = page;
  const { source, target } = data.languages;
  const settings = { beam: data.decoding.beam, alpha: data.decoding.alpha, extraLength: data.decoding.extra_length };
  const nameOf = (id) => wordOf(tokenizer.pieces([id])[0]);
  const em = (word) => quoted(word, target);
  const rows = Array.from({ length: 6 }, () => []); // what the arrow keys move among: vectors, words, German words; twice
  let turn = 0;
  let timer = 0;
  let moves = []; // [{ to, place, from }], the last one last: the vector of place `from` of the other sentence
  let asked = null; // [at, t]: the word that was tapped, t is its place in translation `at`
  let tokens = null; // the words that have bars
  let trial = null; // the exchange of each vector, while it runs and after it
  let wasDragged = false;

  const sides = NAMES.map((name, at) => {
    const [vectors, chances] = ["vectors", "chances"].map((look) => h("div", { class: look }));
    const german = h("p", { class: "german", lang: target });
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const words = wordField(page, (text) => {
      if (editor.hidden) open(at, true, null, text);
      clearTimeout(timer);
      timer = setTimeout(() => read(at, text), PAUSE_MS);
    });
    words.field.setAttribute("aria-label", `The ${name} sentence`);
    for (const type of ["input", "keyup", "click"]) words.field.addEventListener(type, () => drawMenu(at));
    const menu = h("p", { class: "menu" });
    const copy = button(`Copy it to the ${NAMES[1 - at]} sentence`, () => read(1 - at, words.field.value));
    const editor = h("div", { class: "editor", hidden: true }, words, menu, copy);
    const edit = button("Edit", () => open(at, editor.hidden), { "aria-expanded": "false", "aria-label": `Edit the ${name} sentence` });
    const left = h("div", {}, vectors, editor, words.hints, trouble, h("div", { class: "line" }, german, edit));
    const card = h("section", { class: `side side-${at}`, "aria-label": `The ${name} sentence` }, left, chances);
    return { card, vectors, german, chances, menu, trouble, words, edit, editor, text: "" };
  });
  const prompt = h("p", { class: "prompt" });
  const where = h("span");
  const undo = button("Undo", () => change(moves.slice(0, -1)), { "data-key": "undo" });
  const controls = h("div", { class: "controls" }, button("Try all", tryAll, { "data-key": "try" }), undo, where);
  const cards = h("div", { class: "sides" }, sides.map(({ card }) => card));
  roving(cards, rows);
  const note = h(
    "p",
    { class: "note" },
    `A coloured field is the vector that the encoder makes of a word, or of a piece of a rare word: ${model.config.d_model} numbers, blue for positive, orange for negative. `,
    "Of the English sentence, the decoder reads nothing else. Tap a German word to ask about that one.",
  );
  const picture = figure(data.caption, prompt, cards, controls, note);
  const heads = h("div");
  const looked = h("details", { class: "looked", ontoggle: drawLooked }, h("summary", {}, "Where did attention look?"), heads);
  root.append(picture, looked, beamFold(page, () => sides[0].text, write));

  const changesOf = (at) => moves.filter(({ to }) => to === at);

  // Reading and moving ------------------------------------------------------------------------------------------------

  /** Another text for one sentence. */
  function read(at, text) {
    const side = sides[at];
    if (text.trim() !== side.words.field.value.trim()) side.words.set(text.trim());
    try {
      const ids = sourceIdsOf(page, text.trim());
      const memory = model.encode(new Pass(model, ids, [])).value;
      Object.assign(side, { text: text.trim(), ids, memory, pieces: ids.map(nameOf), own: null });
    } catch (error) {
      return refuse(side, error.message);
    }
    refuse(side, "");
    if (sides.every(({ text }) => text)) translateBoth().catch((error) => refuse(side, error.message));
  }

  function refuse({ trouble }, reason) {
    trouble.hidden = !reason;
    trouble.textContent = reason;
  }

  /** Words and vectors are drawn at once, each translation when its search has ended. */
  async function translateBoth() {
    const mine = ++turn;
    [shared.sentence, shared.other] = sides.map(({ text }) => text);
    moves = [];
    asked = tokens = trial = null;
    const focus = focusOf(root);
    sides.forEach((side, at) => {
      side.after = [];
      drawVectors(at);
      clear(side.chances);
    });
    focus();
    for (const side of sides) {
      side.own ??= await idsOf(page, side.text);
      if (mine !== turn) return;
      side.german.textContent = tokenizer.decode(side.own) || "(nothing)";
    }
    const [at, t] = (page.parameters.get("word") ?? "").split(".").map(Number);
    setPlace(sides[at]?.own[t] === undefined ? null : [at, t]);
    change(readMoves(page.parameters.get("moves") ?? ""));
    for (const name of ["moves", "word"]) page.parameters.delete(name);
  }

  /** Puts the bars at the word asked about and at the one that fits it; without one, where the translations first differ. */
  function setPlace(next) {
    asked = next;
    trial = null;
    const owns = sides.map(({ own }) => own);
    const first = placeOfBars(...owns, (id) => /^\p{L}/u.test(nameOf(id)));
    sides.forEach((side, at) => {
      side.at = !asked ? first : at === asked[0] ? asked[1] : placeIn(owns[1 - at], side.own, asked[1]);
      side.token = side.own[side.at] ?? EOS;
      side.before = [BOS, ...side.own.slice(0, side.at)];
      side.base = chancesAfter(model, side.ids, side.before, side.memory);
      side.after = [];
    });
    const ids = PRONOUNS.map((word) => model.pieces.indexOf(`▁${word}`)).filter((id) => id >= 0);
    const two = sides.map(({ token }) => token);
    const more = doDiffer() ? [] : likeliest(sides[0].base, 3).map(({ id }) => id);
    tokens = [...new Set([...two, ...(target === "de" && two.some((id) => ids.includes(id)) ? ids : more)])].slice(0, 4);
    drawPrompt();
    drawLooked();
  }

  /** Moves as they stand in the address: "0.11.11" is to, place and from. */
  function readMoves(text) {
    const numbers = text.split(",").map((part) => part.split(".").map(Number));
    const all = numbers.map(([to, place, from]) => ({ to, place, from }));
    return all.filter(({ to, place, from }) => sides[to]?.pieces[place] && sides[1 - to].pieces[from]);
  }

  /** Draws chances and translations of both sentences with these moves. */
  async function change(next) {
    if (!tokens) return;
    const mine = ++turn;
    moves = next;
    const focus = focusOf(root);
    sides.forEach((side, at) => {
      side.now = chancesWith(at, changesOf(at));
      drawVectors(at);
      drawChances(at);
    });
    undo.disabled = !moves.length;
    drawWhere();
    focus();
    write();
    for (const [at, side] of sides.entries()) {
      const memory = withMoves(side.memory, sides[1 - at].memory, changesOf(at));
      const found = changesOf(at).length ? await translate(model, tokenizer, side.text, { ...settings, memory }) : null;
      if (mine !== turn) return;
      side.written = found?.text ?? tokenizer.decode(side.own);
      drawGerman(at);
    }
    const sentence = moves.length ? await sentenceOfMove(() => mine === turn) : sentenceOfPair();
    if (sentence) say(picture.sentence, sentence);
  }

  const wordAt = (at) => nameOf(sides[at].token);
  const doDiffer = () => sides[0].token !== sides[1].token;
  const isPronoun = () => sides.every((_, at) => PRONOUNS.includes(wordAt(at)));

  /** Puts a vector into the other sentence. A vector that is there comes back, and so does the own one of a place. */
  function tap(at, i) {
    const rest = moves.filter(({ to, place, from }) => (to === at ? place : from) !== i);
    if (rest.length < moves.length) change(rest);
    else put(at, i, placeIn(sides[at].pieces, sides[1 - at].pieces, i));
  }

  function put(at, from, there) {
    const others = moves.filter(({ to, place }) => to === at || place !== there);
    change([...others, { to: 1 - at, place: there, from }]);
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    sides[1 - at].chances.scrollIntoView({ block: "nearest", behavior });
  }

  // What is drawn -----------------------------------------------------------------------------------------------------

  /** What the pronouns stand for, for readers without German. */
  function genders() {
    const words = sides[0].text.split(/\P{L}+/u);
    const found = isPronoun() ? Object.entries(NOUNS).filter(([noun]) => words.includes(noun)) : [];
    const each = found.map(([noun, [pronoun, german]], i) => [i ? ", " : "", em(pronoun), ` is the ${noun} (`, em(german), ")"]);
    return found.length ? [each, "."] : [];
  }

  function drawPrompt() {
    const what = () => (isPronoun() ? "the pronoun" : [em(wordAt(0)), doDiffer() ? [" or ", em(wordAt(1))] : ""]);
    root.parentElement.querySelector("h1")?.replaceChildren(...["Which vector decides ", what(), "?"].flat(2));
    const question = [h("strong", {}, "Which one vector, moved into the other sentence, changes ", what(), "?"), " Guess first: drag it there, or tap it. "];
    const same = ["Both sentences have ", em(wordAt(0)), " here, so an exchange can hardly tell what decides it: edit one. "];
    prompt.replaceChildren(...(doDiffer() ? question : same), ...genders().flat(2));
  }

  function drawVectors(at) {
    const side = sides[at];
    const other = sides[1 - at];
    const slots = side.pieces.map((piece, i) => {
      const move = changesOf(at).find(({ place }) => place === i);
      const isAway = moves.some(({ to, from }) => to === 1 - at && from === i);
      const vector = row(move ? other.memory : side.memory, move ? move.from : i);
      const label = move
        ? `${piece}: now the vector of ${other.pieces[move.from]}; take it back`
        : `${piece}: ${isAway ? "take its vector back" : `move its vector into the ${NAMES[1 - at]} sentence`}`;
      const effect = i in side.after ? barOf(effectOf(side, i)) : null;
      const said = effect ? `; exchanged, p(${wordAt(at)}) goes from ${percent(side.base[side.token])} to ${percent(side.after[i])}` : "";
      const look = { class: `vector${move ? " strange" : ""}${isAway ? " away" : ""}`, "aria-pressed": String(Boolean(move) || isAway) };
      const on = { onclick: () => wasDragged || tap(at, i), onpointerdown: (event) => drag(event, at, i) };
      const strip = h("button", { type: "button", "data-key": `v ${at} ${i}`, "aria-label": label + said, ...look, ...on }, mosaic(vector));
      const word = h("button", { type: "button", class: "word", lang: source, "data-key": `w ${at} ${i}`, onclick: () => open(at, true, i) }, piece);
      const from = move ? h("span", { class: "from", lang: source }, other.pieces[move.from]) : null;
      return h("div", { class: piece.length > 9 ? "slot long" : "slot", "data-side": at, "data-place": i }, strip, from, word, effect);
    });
    side.vectors.replaceChildren(...slots);
    rows[3 * at] = slots.map((slot) => slot.querySelector(".vector"));
    rows[3 * at + 1] = slots.map((slot) => slot.querySelector(".word"));
    if (at === 1) reach(rows, [0, 0]);
  }

  /** The translation as buttons; marked is what the moves have changed, and without moves the first word that differs. */
  function drawGerman(at) {
    const { own, written, german, at: t } = sides[at];
    const before = tokenizer.decode(own);
    const isChanged = written !== before;
    const marked = markChanges(written, isChanged ? before : tokenizer.decode(sides[1 - at].own));
    const first = marked.findIndex(([, isNew]) => isNew);
    const starts = own.flatMap((id, i) => (i && !model.pieces[id].startsWith("▁") ? [] : [i]));
    const asks = ([word, isNew], i) => {
      const start = starts[placeIn(written.split(" "), before.split(" "), i)] ?? 0;
      const attributes = { "data-key": `g ${at} ${i}`, tabindex: -1, "aria-pressed": String(starts.findLast((one) => one <= t) === start) };
      const content = isNew && (isChanged || (!moves.length && i === first)) ? h("mark", {}, word) : word;
      return h("button", { type: "button", class: "ask", ...attributes, onclick: () => ask(at, start) }, content);
    };
    const stop = rows[3 * at + 2].findIndex(({ tabIndex }) => tabIndex === 0);
    const buttons = (rows[3 * at + 2] = written ? marked.map(asks) : []);
    if (stop >= 0) (buttons[stop] ?? rows[0][0]).tabIndex = 0;
    const focus = focusOf(root);
    german.replaceChildren(...(written ? buttons.flatMap((one, i) => (i ? [" ", one] : [one])) : ["(nothing)"]));
    focus();
  }

  /** Asks about another German word: the bars and the sentences are about it from now on. */
  function ask(at, t) {
    setPlace([at, t]);
    change(moves);
  }

  function drawChances(at) {
    const { now, chances, before } = sides[at];
    const words = tokenizer.decode(before.slice(1)).split(" ");
    const start = words.length > 4 ? [...words.slice(0, 2), "…", words.at(-1)] : words;
    const label = before.length > 1 ? ["The word after ", em(start.join(" "))] : "The first word";
    const bars = tokens.map((id) => [h("dt", { lang: target }, nameOf(id)), h("dd", {}, barOf(now[id]), h("span", {}, percent(now[id])))]);
    chances.replaceChildren(h("p", { class: "label" }, label), h("dl", {}, bars));
  }

  /** The last move, and a list of the places to which the vector can go instead. */
  function drawWhere() {
    clear(where);
    const move = moves.at(-1);
    if (!move) return;
    const { to, place: now, from } = move;
    const options = sides[to].pieces.map((piece, i) => [i, `${i + 1}. ${piece}`]);
    const onchange = (next) => change([...moves.slice(0, -1), { to, place: Number(next), from }]);
    const label = ["The vector of ", quoted(sides[1 - to].pieces[from], source), " stands at"];
    const select = choice({ label, options, value: now, onchange });
    select.querySelector("select").dataset.key = "where";
    where.append(select);
  }

  // What is said ------------------------------------------------------------------------------------------------------

  const effectOf = (side, i) => Math.abs(side.after[i] - side.base[side.token]);
  const likeliestOf = (chances) => likeliest(chances, 1)[0].id; // of all words, not only of those with bars

  /** "p(es) goes from 91 % to 0.2 %" */
  function moved(id, was, now) {
    const [a, b] = [percent(was[id]), percent(now[id])];
    return ["p(", em(nameOf(id)), a === b ? `) stays at ${a}` : `) goes from ${a} to ${b}`];
  }

  /** "with the vector of narrow in the place of tired" */
  function exchangeOf({ to, place, from }) {
    return ["with the vector of ", quoted(sides[1 - to].pieces[from], source), " in the place of ", quoted(sides[to].pieces[place], source)];
  }

  function spanOf(values) {
    const [a, b] = [Math.min(...values), Math.max(...values)].map(percent);
    return a === b ? a : `${a} to ${b}`;
  }

  function sentenceOfPair() {
    const of = (at) => [em(wordAt(at)), ` ${percent(sides[at].base[sides[at].token])} in the ${NAMES[at]} sentence`];
    const first = doDiffer() ? "Where the two translations first differ" : "The two translations are the same. At their last word";
    const isNear = data.label_smoothing && sides.some(({ base, token }) => base[token] > 0.8);
    const goal = [` Why not 100\u00a0%? In the training the goal for the right word was about ${percent(1 - data.label_smoothing)} (`, lessonLink(page, "14_label_smoothing"), ")."];
    return [asked ? "At this word" : first, ", the model gives ", of(0), " and ", of(1), ".", isNear ? goal : ""].flat(2);
  }

  /** What the last move has changed in the sentence into which it went, and what other vectors change there. */
  async function sentenceOfMove(isCurrent) {
    const move = moves.at(-1);
    const { to } = move;
    const { now, own, before, token, written } = sides[to];
    const earlier = changesOf(to).slice(0, -1);
    const was = chancesWith(to, earlier);
    const rival = likeliestOf(now);
    const others = earlier.map(({ place }) => [", ", quoted(sides[to].pieces[place], source)]).flat().slice(1);
    const still = others.length ? [" (", others, " stays exchanged)"] : "";
    const start = [`In the ${NAMES[to]} sentence, `, exchangeOf(move), still, ", ", moved(token, was, now)];
    if (rival !== likeliestOf(was)) {
      const control = await controlOf(move, earlier, rival, isCurrent);
      return control && [start, rival === token ? "." : [" and ", moved(rival, was, now), "."], control].flat(4);
    }
    if (rival !== token) return [start, ", and ", em(nameOf(rival)), " stays the likeliest."].flat(4);
    const isBefore = !written.startsWith(tokenizer.decode(before.slice(1)));
    const changes = `changes ${isBefore ? "before this word; the bars keep the old words before it." : "in another place."}`;
    const isSame = written === tokenizer.decode(own);
    return [start, `, and the translation ${isSame ? "stays the same. Not this one: try another." : changes}`].flat(4);
  }

  function chancesWith(at, list) {
    const { ids, before, memory, base } = sides[at];
    return list.length ? chancesAfter(model, ids, before, withMoves(memory, sides[1 - at].memory, list)) : base;
  }

  /**
   * The control for a move that has made `rival` the likeliest word: what each other vector of the other sentence does at
   * the same place. Only if none of them does it, this vector is the cause. null if the view has gone on meanwhile.
   */
  async function controlOf({ to, place, from }, earlier, rival, isCurrent) {
    const others = [];
    for (const k of sides[1 - to].pieces.keys()) {
      if (k !== from) others.push(chancesWith(to, [...earlier, { to, place, from: k }]));
      await new Promise((done) => setTimeout(done));
      if (!isCurrent()) return null;
    }
    const same = others.filter((chances) => likeliestOf(chances) === rival).length;
    const [n, word] = [others.length, em(nameOf(rival))];
    if (same === n) {
      const span = spanOf(others.map((chances) => chances[rival]));
      return [" Any vector here gives ", word, `, the ${n} others with ${span}: what counts is that `, quoted(sides[to].pieces[place], source), " is gone."];
    }
    const isHome = placeIn(sides[1 - to].pieces, sides[to].pieces, from) === place;
    const all = `of the ${n} other vectors of the ${NAMES[1 - to]} sentence`;
    if (same) return [` ${same} ${all} ${same === 1 ? "does" : "do"} the same here.`];
    return [` None ${all} gives `, word, isHome ? ` here: this vector decides ${isPronoun() ? "the pronoun" : "the word"}.` : " here: only this one does."];
  }

  // Dragging ----------------------------------------------------------------------------------------------------------

  /** A vector follows the pointer until it is dropped on a place of the other sentence; a short way is a tap. */
  function drag(down, at, i) {
    if (down.button || !tokens) return;
    const strip = down.currentTarget;
    const ending = new AbortController();
    const on = (type, listener) => strip.addEventListener(type, listener, { signal: ending.signal });
    let ghost = null;
    let over = null;
    const end = () => {
      ending.abort();
      over?.classList.remove("over");
      ghost?.remove();
    };
    on("pointermove", ({ clientX, clientY }) => {
      if (!ghost && Math.hypot(clientX - down.clientX, clientY - down.clientY) < 8) return;
      if (!ghost) document.body.append((ghost = h("div", { class: "ghost", "aria-hidden": "true" }, strip.firstChild.cloneNode(true))));
      Object.assign(ghost.style, { left: `${clientX}px`, top: `${clientY}px` });
      over?.classList.remove("over");
      over = document.elementFromPoint(clientX, clientY)?.closest(`.slot[data-side="${1 - at}"]`);
      over?.classList.add("over");
    });
    on("pointerup", () => {
      end();
      wasDragged = Boolean(ghost);
      setTimeout(() => {
        if (ghost && over) put(at, i, Number(over.dataset.place));
        wasDragged = false; // its click has come
      });
    });
    on("pointercancel", end);
    document.addEventListener("lostpointercapture", end, { signal: ending.signal }); // also where the strip has gone
    strip.setPointerCapture(down.pointerId);
  }

  // Own words ---------------------------------------------------------------------------------------------------------

  /** Opens or closes the field of a sentence; the word of place i is selected in it. */
  function open(at, isOpen, i = null, text = sides[at].text) {
    const { edit, editor, words, pieces } = sides[at];
    editor.hidden = !isOpen;
    edit.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    words.set(text);
    words.field.focus();
    if (i !== null) {
      const before = tokenizer.decode(sides[at].ids.slice(0, i + 1));
      const start = before.length - pieces[i].replace(/^·/, "").length;
      words.field.setSelectionRange(start, before.length);
    }
    drawMenu(at);
  }

  /** Known words that are used like the one at the cursor. */
  function drawMenu(at) {
    const { menu, words } = sides[at];
    clear(menu);
    const { value, selectionStart } = words.field;
    const found = [...value.matchAll(/[\p{L}\p{N}_-]+/gu)].find(({ 0: word, index }) => index + word.length >= selectionStart);
    if (!data.words?.includes(found?.[0])) return;
    const put = (word) => {
      words.set(value.slice(0, found.index) + word + value.slice(found.index + found[0].length));
      words.field.focus();
      words.field.setSelectionRange(found.index, found.index + word.length);
      drawMenu(at);
      read(at, words.field.value);
    };
    const offer = (word) => button(word, () => put(word), { lang: source });
    const list = similarWords(model, tokenizer, data.words, found[0]);
    menu.append("Instead of ", quoted(found[0], source), ": ", ...list.map(offer));
  }

  // All of them -------------------------------------------------------------------------------------------------------

  /** Exchanges each vector, once for each word asked about, with a bar below it. -> whether they are still shown at the end */
  function tried() {
    const exchangeAll = async (mine) => {
      for (const [at, side] of sides.entries()) {
        for (const i of side.pieces.keys()) {
          side.after[i] = chancesWith(at, [{ place: i, from: placeIn(side.pieces, sides[1 - at].pieces, i) }])[side.token];
          side.vectors.children[i].append(barOf(effectOf(side, i)));
          await new Promise((done) => setTimeout(done));
          if (mine !== trial) return false;
        }
      }
      return true;
    };
    if (tokens && !trial) trial = { done: null };
    if (tokens) return (trial.done ??= exchangeAll(trial));
  }

  async function tryAll() {
    if (!(await tried())) return;
    const [mine, then] = [trial, turn];
    const said = [];
    for (const [at, { base, after, token }] of sides.entries()) {
      const move = strongestOf(at);
      const now = chancesWith(at, [move]);
      const [all, rest] = [after, after.filter((_, i) => i !== move.place)].map(spanOf);
      const rival = likeliestOf(now);
      const isKept = rival === likeliestOf(base);
      said.push(at ? [" ", h("br"), "In the second sentence, "] : "In the first sentence, ");
      if (all === percent(base[token]) || (isKept && !doDiffer())) {
        said.push("whichever vector is exchanged, p(", em(wordAt(at)), `) is ${all}.`);
        continue;
      }
      said.push(exchangeOf(move), ", ", moved(token, base, now), `; after any other exchange it is ${rest}.`);
      const control = isKept ? [] : await controlOf(move, [], rival, () => mine === trial && then === turn);
      if (!control) return;
      said.push(control);
    }
    say(picture.sentence, said.flat(3));
  }

  /** The exchange that changes the word of a sentence most. */
  function strongestOf(to) {
    const side = sides[to];
    const place = argmax(side.pieces.map((_, i) => effectOf(side, i)));
    return { to, place, from: placeIn(side.pieces, sides[1 - to].pieces, place) };
  }

  // Attention ---------------------------------------------------------------------------------------------------------

  async function drawLooked() {
    if (!looked.open || !(await tried())) return;
    const query = new URLSearchParams({ ...sentenceParameter(page, sides[0].text), kind: "cross", q: sides[0].at });
    const about = "The decoder has a row for each German word; it reads the vectors by attention, in all layers and heads. An exchanged vector can change a word through its own row, or through the rows before it. ";
    const more = [h("a", { href: `#/attention?${query}` }, "Attention"), " shows every head; ", lessonLink(page, "00_whole_game"), " tells the whole story."];
    heads.replaceChildren(h("p", {}, about, more), h("div", { class: "halves" }, sides.map(lookedFigure)));
  }

  /** For the strongest exchange: which rows look at this place before and after it, and p where only some rows see it. */
  function lookedFigure(side, at) {
    const { ids, before, memory, pieces, own, token } = side;
    const { place, from } = strongestOf(at);
    const changed = withMoves(memory, sides[1 - at].memory, [{ place, from }]);
    const last = before.length - 1;
    const [old, fresh] = [memory, changed].map((one) => {
      const { attentions } = passWith(model, ids, before, one);
      return attentions.filter(({ kind }) => kind === "cross").flatMap(({ heads }) => heads);
    });
    const largest = [old, fresh].map((all) => before.map((_, t) => Math.max(...all.map((head) => row(head, t)[place]))));
    const readers = [() => false, (t) => t < last, (t) => t === last, () => true];
    const roads = readers.map((reads) => chancesThrough(model, ids, before, changed, reads)[token]);
    const words = { word: em(nameOf(token)), out: quoted(pieces[place], source), in: quoted(sides[1 - at].pieces[from], source) };
    const name = (key) => words[key].cloneNode(true); // each stands in several places
    const bar = (share) => h("span", { class: "share-bar" }, barOf(share), percent(share));
    const lineOf = (_, t) => [h("span", { lang: target }, nameOf(own[t] ?? EOS)), ...largest.map((list) => bar(list[t]))];
    const lines = before.map(lineOf);
    lines[last].strong = true;
    const who = ["none", "only the rows before", ["only the row of ", name("word")], "all"];
    const picture = figure(
      data.caption,
      h("h2", {}, name("in"), " in the place of ", name("out")),
      table("How much each row looks at the exchanged vector", ["row that writes", ["looks at ", name("out")], ["then at ", name("in")]], lines),
      h("p", { class: "note" }, "The largest weight among all heads."),
      table("The probability where only some rows read the new vector", [["rows that read ", name("in")], ["p(", name("word"), ")"]], roads.map((p, i) => [who[i], bar(p)])),
    );

    const mean = pieces.map((_, j) => old.reduce((sum, head) => sum + row(head, last)[j], 0) / old.length);
    const seen = argmax(mean);
    const most = old.filter((head) => argmax([...row(head, last)]) === seen).length;
    const rowOf = (t) => (t === last ? "this row itself" : ["the row that must write ", em(nameOf(own[t]))]);
    const [t0, t1] = largest.map(argmax);
    const said = [
      ["In the row that must write ", name("word"), `, ${most} of ${old.length} heads look most at `, quoted(pieces[seen], source), `; the mean of all ${old.length} is ${percent(mean[seen])}`],
      seen === place ? "." : [", and ", name("out"), ` gets ${percent(mean[place])}.`],
      [" Of all rows, ", rowOf(t0), " looks at ", name("out"), ` most: ${percent(largest[0][t0])} in one head`],
      t0 === t1 ? "." : [". With ", name("in"), " in its place it is ", rowOf(t1), `, ${percent(largest[1][t1])}.`],
      [" p(", name("word"), `) is ${percent(roads[0])}; it becomes ${percent(roads[1])} where only the rows before read `, name("in"), `, ${percent(roads[2])} where only this row does, and ${percent(roads[3])} where all do.`],
    ];
    picture.sentence.append(...said.flat(3));
    picture.classList.add(`side-${at}`);
    return picture;
  }

  // The address -------------------------------------------------------------------------------------------------------

  function write() {
    const [first, second] = sides.map(({ text }) => text);
    page.go("transplant", {
      s: first === data.examples[0] ? null : first,
      t: second === partnerOf(data.examples, first) ? null : second,
      word: asked?.join(".") ?? null,
      moves: moves.length ? moves.map(({ to, place, from }) => [to, place, from].join(".")).join(",") : null,
      ...shared.search,
    });
  }

  const first = currentSentence(page);
  read(0, first);
  const other = page.parameters.get("t") ?? (page.parameters.has("s") ? null : shared.other) ?? partnerOf(data.examples, first);
  read(1, other);
  return () => (turn++, clearTimeout(timer));
}

export const transplantView = {
  id: "transplant",
  title: "Transplant",
  question: ({ languages }) => `Which vector decides the ${languages.target === "de" ? "pronoun" : "translation"}?`,
  mount,
};
