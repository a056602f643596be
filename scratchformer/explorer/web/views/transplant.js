/**
 * Transplant: the encoder's vectors of two sentences. A vector moves into the other sentence, the search runs again with
 * the changed memory, and the translation shows what this vector decides.
 */

import { button, choice, clear, figure, h, number, percent, reach, roving, s, say } from "../dom.js";
import { translate } from "../engine/beam.js";
import { Pass } from "../engine/model.js";
import { matrix, row } from "../engine/tensor.js";
import { BOS, EOS } from "../engine/tokenizer.js";
import { argmax, barOf, currentSentence, focusOf, idsOf, lessonLink, likeliest, markChanges, partnerOf, quoted, sourceIdsOf, wordField, wordOf } from "./sentence.js";
import { beamFold } from "./tree.js";

const PRONOUNS = ["es", "sie", "er"];
const NAMES = ["first", "second"];
const PAUSE_MS = 200; // in the typing, before the page translates

// What is computed ----------------------------------------------------------------------------------------------------

/** The place in a sentence of `n` that belongs to place i of another sentence: equal beginnings and ends fit together. */
export function placeIn(words, other, i) {
  let [start, end] = [0, 0];
  while (start < Math.min(words.length, other.length) && words[start] === other[start]) start++;
  while (end < Math.min(words.length, other.length) - start && words.at(-1 - end) === other.at(-1 - end)) end++;
  if (i < start) return i;
  if (i >= words.length - end) return i - words.length + other.length;
  return Math.min(i, Math.max(start, other.length - end - 1), other.length - 1);
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

/** The distribution of the word after `before` (ids, BOS first), for a decoder that looks at this memory. */
export function chancesAfter(model, sourceIds, before, memory) {
  const changes = { [model.memoryId]: (value) => value.data.set(memory.data) };
  return model.forward(sourceIds, before, { changes }).probabilities(before.length - 1);
}

/** The words of a list whose embeddings point in the most similar directions, the most similar first. */
export function similarWords(model, tokenizer, list, word, count = 8) {
  const vectorOf = (text) => {
    const sum = new Float64Array(model.config.d_model);
    for (const id of tokenizer.encode(text)) row(model.embeddings.source, id).forEach((x, j) => (sum[j] += x));
    const length = Math.hypot(...sum);
    return sum.map((x) => x / length);
  };
  const asked = vectorOf(word);
  const cosines = list.map((other) => [other, vectorOf(other).reduce((total, x, j) => total + x * asked[j], 0)]);
  const others = cosines.filter(([other]) => other !== word).sort((a, b) => b[1] - a[1]);
  return others.slice(0, count).map(([other]) => other);
}

// Pictures ------------------------------------------------------------------------------------------------------------

/** A vector as cells in 8 rows: positive numbers blue, negative ones orange, the larger the stronger. */
function mosaic(vector, largest) {
  const width = Math.ceil(vector.length / 8);
  const shades = new Map();
  vector.forEach((value, i) => {
    const key = Math.sign(value) * Math.ceil(Math.min(1, Math.abs(value) / largest) * 5);
    shades.set(key, `${shades.get(key) ?? ""}M${i % width} ${Math.floor(i / width)}h1v1h-1z`);
  });
  const path = ([key, d]) => s("path", { d, fill: `var(--${key < 0 ? "negative" : "positive"})`, "fill-opacity": Math.abs(key) / 5 });
  return s("svg", { viewBox: `0 0 ${width} 8`, preserveAspectRatio: "none", "aria-hidden": "true" }, [...shades].map(path));
}

/** The threads of all heads from one word at the left to the words at the right. `heads` are their weights. */
function threadsOf(heads, n) {
  const paths = heads.flatMap((weights, k) =>
    Array.from(weights, (weight, j) => {
      if (weight < 0.02) return null;
      const start = n / 2 + (k - (heads.length - 1) / 2) * 0.2;
      const d = `M0 ${start}C45 ${start} 55 ${j + 0.5} 100 ${j + 0.5}`;
      return s("path", { d, "stroke-width": (0.5 + 7 * weight).toFixed(2), "vector-effect": "non-scaling-stroke" });
    }),
  );
  return s("svg", { class: "looking", viewBox: `0 0 100 ${n}`, preserveAspectRatio: "none", "aria-hidden": "true" }, paths);
}

// The view ------------------------------------------------------------------------------------------------------------

function mount(root, page) {
  const { model, tokenizer, data, shared } = page;
  const { source, target } = data.languages;
  const settings = { beam: data.decoding.beam, alpha: data.decoding.alpha, extraLength: data.decoding.extra_length };
  const nameOf = (id) => wordOf(tokenizer.pieces([id])[0]);
  const em = (word) => quoted(word, target);
  const rows = []; // what the arrow keys move among
  let turn = 0;
  let timer = 0;
  let moves = []; // [{ to, place, from }], the last one last
  let place = null; // where the bars are: { before, tokens, at }
  let isTrying = false;
  let wasDragged = false;

  const sides = NAMES.map((name, at) => {
    const vectors = h("div", { class: "vectors" });
    const german = h("p", { class: "german", lang: target });
    const chances = h("div", { class: "chances" });
    const menu = h("p", { class: "menu" });
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const words = wordField(page, (text) => {
      clearTimeout(timer);
      timer = setTimeout(() => read(at, text), PAUSE_MS);
      drawMenu(at);
    });
    words.field.setAttribute("aria-label", `The ${name} sentence`);
    words.field.addEventListener("keyup", () => drawMenu(at));
    words.field.addEventListener("click", () => drawMenu(at));
    const copy = button(`Copy it to the ${NAMES[1 - at]} sentence`, () => read(1 - at, words.field.value));
    const editor = h("div", { class: "editor", hidden: true }, words, menu, copy);
    const edit = button("Edit", () => open(at, editor.hidden), { class: "button edit", "aria-label": `Edit the ${name} sentence` });
    const line = h("div", { class: "line" }, german, edit);
    const main = h("div", {}, vectors, editor, trouble, line);
    const card = h("section", { class: `side side-${at}`, "aria-label": `The ${name} sentence` }, main, chances);
    return { card, vectors, german, chances, menu, trouble, words, editor, effects: null, text: "" };
  });

  const prompt = h("p", { class: "prompt" });
  const where = h("span");
  const tryButton = button("Try all", tryAll, { "data-key": "try" });
  const undo = button("Undo", () => change(moves.slice(0, -1)), { "data-key": "undo" });
  const cards = h("div", { class: "sides" }, sides.map(({ card }) => card));
  roving(cards, rows);
  const picture = figure(data.caption, prompt, cards, h("div", { class: "controls" }, tryButton, undo, where));
  const looked = h("details", { class: "looked", ontoggle: () => looked.open && drawLooked() }, h("summary", {}, "Where did attention look?"));
  const lookedPlace = h("div");
  looked.append(lookedPlace);
  root.append(picture, looked, beamFold(page, () => sides[0].text, () => write()));

  const changesOf = (at) => moves.filter(({ to }) => to === at);

  // Reading and moving ------------------------------------------------------------------------------------------------

  /** Another text for one sentence. */
  function read(at, text) {
    const side = sides[at];
    const shown = text.trim();
    if (shown !== side.words.field.value.trim()) side.words.set(shown);
    try {
      const ids = sourceIdsOf(page, shown);
      const memory = model.encode(new Pass(model, ids, [])).value;
      Object.assign(side, { text: shown, ids, memory, pieces: ids.map(nameOf), own: null, effects: null });
    } catch (error) {
      return refuse(side, error.message);
    }
    refuse(side, "");
    moves = [];
    if (sides.every(({ text }) => text)) return translateBoth();
  }

  function refuse({ trouble }, reason) {
    trouble.hidden = !reason;
    trouble.textContent = reason;
  }

  /** The first sentence's words and vectors are drawn at once, each translation when its search has ended. */
  async function translateBoth() {
    const mine = ++turn;
    [shared.sentence, shared.other] = sides.map(({ text }) => text);
    place = null;
    const focus = focusOf(root);
    sides.forEach((side, at) => {
      side.largest = 2.5 * Math.sqrt(side.memory.data.reduce((sum, x) => sum + x * x, 0) / side.memory.data.length);
      drawVectors(at);
      clear(side.chances);
    });
    focus();
    for (const side of sides) {
      side.own ??= await idsOf(page, side.text).catch((error) => (refuse(side, error.message), null));
      if (mine !== turn || !side.own) return;
      side.german.textContent = tokenizer.decode(side.own) || "(nothing)";
    }
    const [a, b] = sides.map(({ own }) => own);
    const at = placeOfBars(a, b, (id) => /^\p{L}/u.test(nameOf(id)));
    place = { at, before: [BOS, ...a.slice(0, at)], differ: a.join() !== b.join() };
    const asked = page.parameters.get("moves");
    page.parameters.delete("moves");
    await update(mine, asked ? readMoves(asked) : []);
  }

  /** Moves as they stand in the address: "0.11.11" is to, place and from. */
  function readMoves(text) {
    const numbers = text.split(",").map((part) => part.split(".").map(Number));
    const all = numbers.map(([to, at, from]) => ({ to, place: at, from }));
    return all.filter(({ to, place, from }) => sides[to]?.pieces[place] && sides[1 - to].pieces[from]);
  }

  const change = (next) => place && update(++turn, next);

  /** Chances and translations of both sentences with these moves. */
  async function update(mine, next) {
    const before = sides.map(({ probabilities }) => probabilities);
    moves = next;
    const focus = focusOf(root);
    sides.forEach((side, at) => {
      side.now = withMoves(side.memory, sides[1 - at].memory, changesOf(at));
      side.probabilities = chancesAfter(model, side.ids, place.before, side.now);
      if (!moves.length) side.base = side.probabilities;
      side.base ??= chancesAfter(model, side.ids, place.before, side.memory);
    });
    if (!moves.length || !place.tokens) place.tokens = tokensOfBars();
    drawPrompt();
    sides.forEach((_, at) => (drawVectors(at), drawChances(at)));
    undo.disabled = !moves.length;
    drawWhere();
    focus();
    write();
    for (const [at, side] of sides.entries()) {
      const { text, ids } = changesOf(at).length
        ? await translate(model, tokenizer, side.text, { ...settings, memory: side.now })
        : { ids: side.own.slice(0, -1), text: tokenizer.decode(side.own) };
      if (mine !== turn) return;
      side.written = ids;
      drawGerman(at, text);
    }
    say(picture.sentence, moves.length ? sentenceOfMove(before) : sentenceOfPair());
    if (looked.open) drawLooked();
  }

  /** The words that have bars: those in which the translations differ, and the pronouns if they are among them. */
  function tokensOfBars() {
    if (!place.differ) return likeliest(sides[0].base, 3).map(({ id }) => id);
    const two = sides.map(({ own }) => own[place.at] ?? EOS);
    const pronouns = target === "de" ? PRONOUNS.map((word) => tokenizer.encode(`a ${word}`).at(-1)) : [];
    const three = two.some((id) => pronouns.includes(id) && PRONOUNS.includes(nameOf(id))) ? pronouns : [];
    return [...new Set([...two, ...three])];
  }

  const wordAt = (at) => nameOf(place.tokens[place.differ ? at : 0]);
  const isPronoun = () => PRONOUNS.includes(wordAt(0)) && PRONOUNS.includes(wordAt(1));

  /** Puts a vector into the other sentence, or takes it back if it is there or its own place has a strange one. */
  function tap(at, i) {
    const strange = moves.filter(({ to, place }) => !(to === at && place === i));
    if (strange.length < moves.length) return change(strange);
    const there = { to: 1 - at, place: placeIn(sides[at].pieces, sides[1 - at].pieces, i), from: i };
    const others = moves.filter(({ to, place }) => !(to === there.to && place === there.place));
    const isBack = moves.some(({ to, place, from }) => to === there.to && place === there.place && from === i);
    change(isBack ? others : [...others, there]);
  }

  function put(at, from, to) {
    change([...moves.filter((move) => !(move.to === 1 - at && move.place === to)), { to: 1 - at, place: to, from }]);
  }

  // What is drawn -----------------------------------------------------------------------------------------------------

  function drawPrompt() {
    const what = place.differ ? (isPronoun() ? "the pronoun" : "the translation") : "a word";
    prompt.replaceChildren(
      "The encoder makes a vector of each word, and the decoder reads nothing else. ",
      h("strong", {}, `Which one vector, moved into the other sentence, changes ${what}?`),
      " Guess first: drag it there, or tap it.",
    );
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
      const effect = side.effects ? barOf(Math.min(1, side.effects[i])) : null;
      const strip = h(
        "button",
        {
          type: "button",
          class: `vector${move ? " strange" : ""}${isAway ? " away" : ""}`,
          "data-key": `v ${at} ${i}`,
          "aria-pressed": String(Boolean(move) || isAway),
          "aria-label": label + (effect ? `; exchanged, it moves p by ${points(side.effects[i])}` : ""),
          onclick: () => wasDragged || tap(at, i),
          onpointerdown: (event) => drag(event, at, i),
        },
        mosaic(vector, side.largest),
      );
      const word = h("button", { type: "button", class: "word", lang: source, "data-key": `w ${at} ${i}`, onclick: () => open(at, true, i) }, piece);
      const from = move ? h("span", { class: "from", lang: source }, other.pieces[move.from]) : null;
      return h("div", { class: "slot", "data-side": at, "data-place": i }, strip, from, word, effect);
    });
    side.vectors.replaceChildren(...slots);
    rows[2 * at] = slots.map((slot) => slot.querySelector(".vector"));
    rows[2 * at + 1] = slots.map((slot) => slot.querySelector(".word"));
    if (at === 1) reach(rows, [0, 0]);
  }

  function drawGerman(at, text) {
    const own = tokenizer.decode(sides[at].own);
    const marked = markChanges(text, changesOf(at).length ? own : tokenizer.decode(sides[1 - at].own));
    const first = marked.findIndex(([, isNew]) => isNew);
    const isMarked = (isNew, i) => isNew && (changesOf(at).length || i === first);
    sides[at].german.replaceChildren(
      ...marked.flatMap(([word, isNew], i) => [i ? " " : "", isMarked(isNew, i) ? h("mark", {}, word) : word]),
    );
    if (!text) sides[at].german.textContent = "(nothing)";
  }

  function drawChances(at) {
    const { probabilities } = sides[at];
    const last = place.before.length > 1 ? [" after ", em(`…\u00a0${nameOf(place.before.at(-1))}`)] : " at the beginning";
    const bars = place.tokens.map((id) => [
      h("dt", { lang: target }, nameOf(id)),
      h("dd", {}, barOf(probabilities[id]), h("span", {}, percent(probabilities[id]))),
    ]);
    sides[at].chances.replaceChildren(h("p", { class: "label" }, "The next word", last), h("dl", {}, bars));
  }

  /** The last move, and a list of the places to which the vector can go instead. */
  function drawWhere() {
    clear(where);
    const move = moves.at(-1);
    if (!move) return;
    const { to, place: now, from } = move;
    const options = sides[to].pieces.map((piece, i) => [i, `${i + 1}. ${piece}`]);
    const onchange = (next) => change([...moves.slice(0, -1), { to, place: Number(next), from }]);
    const select = choice({ label: "", options, value: now, onchange });
    select.querySelector(".label").append("The vector of ", quoted(sides[1 - to].pieces[from], source), " stands at");
    select.querySelector("select").dataset.key = "where";
    where.append(select);
  }

  const points = (share) => `${number(100 * share, share < 0.1 ? 1 : 2)} points`;

  function sentenceOfPair() {
    if (!place.differ)
      return [
        "The two translations are the same. At their last word the model gives ",
        em(wordAt(0)),
        ` ${percent(sides[0].base[place.tokens[0]])} in the first sentence and ${percent(sides[1].base[place.tokens[0]])} in the second.`,
      ];
    const of = (at) => [em(wordAt(at)), ` ${percent(sides[at].base[place.tokens[at]])}`];
    return ["Where the two translations first differ, the model gives ", of(0), " in the first sentence and ", of(1), " in the second."].flat();
  }

  function sentenceOfMove(before) {
    const { to, place: i, from } = moves.at(-1);
    const side = sides[to];
    const was = changesOf(to).length > 1 ? before[to] : side.base;
    const now = side.probabilities;
    const token = place.tokens[place.differ ? to : 0];
    const rival = place.tokens.reduce((best, id) => (now[id] > now[best] ? id : best));
    const isFlipped = rival !== token && side.base[token] > side.base[rival];
    const own = tokenizer.decode(side.own);
    const moved = (id) => ["p(", em(nameOf(id)), `) goes from ${percent(was[id])} to ${percent(now[id])}`];
    const end = isFlipped
      ? [" and ", moved(rival), `: this vector decides ${isPronoun() ? "the pronoun" : "the word"}.`]
      : [`, and the ${NAMES[to]} sentence’s translation ${tokenizer.decode(side.written) === own ? "stays the same. Not this one: try another." : "changes elsewhere."}`];
    return ["With the vector of ", quoted(sides[1 - to].pieces[from], source), " in the place of ", quoted(side.pieces[i], source), ", ", moved(token), end].flat(3);
  }

  // Dragging ----------------------------------------------------------------------------------------------------------

  /** A vector follows the pointer until it is dropped on a place of the other sentence; a short way is a tap. */
  function drag(down, at, i) {
    if (down.button || !place) return;
    const strip = down.currentTarget;
    let ghost = null;
    let over = null;
    const slotAt = ({ clientX, clientY }) => document.elementFromPoint(clientX, clientY)?.closest(`.slot[data-side="${1 - at}"]`);
    const move = (event) => {
      if (!ghost && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 8) return;
      if (!ghost) {
        ghost = h("div", { class: "ghost sf", "aria-hidden": "true" }, strip.firstChild.cloneNode(true));
        document.body.append(ghost);
      }
      ghost.style.left = `${event.clientX}px`;
      ghost.style.top = `${event.clientY}px`;
      over?.classList.remove("over");
      over = slotAt(event);
      over?.classList.add("over");
    };
    const end = () => {
      for (const [type, listener] of Object.entries(listeners)) strip.removeEventListener(type, listener);
      over?.classList.remove("over");
      ghost?.remove();
    };
    const up = (event) => {
      end();
      wasDragged = Boolean(ghost);
      setTimeout(() => {
        if (wasDragged && over) put(at, i, Number(over.dataset.place));
        wasDragged = false; // its click has come
      });
    };
    const listeners = { pointermove: move, pointerup: up, pointercancel: end };
    strip.setPointerCapture(down.pointerId);
    for (const [type, listener] of Object.entries(listeners)) strip.addEventListener(type, listener);
  }

  // Own words ---------------------------------------------------------------------------------------------------------

  /** Opens or closes the field of a sentence; the word of place i is selected in it. */
  function open(at, isOpen, i = null) {
    const { editor, words, pieces, text } = sides[at];
    editor.hidden = !isOpen;
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
    const offer = (word) =>
      button(
        word,
        () => {
          words.set(value.slice(0, found.index) + word + value.slice(found.index + found[0].length));
          words.field.focus();
          words.field.setSelectionRange(found.index, found.index + word.length);
          drawMenu(at);
          read(at, words.field.value);
        },
        { lang: source },
      );
    const list = similarWords(model, tokenizer, data.words, found[0]);
    menu.append("Instead of ", quoted(found[0], source), ": ", ...list.map(offer));
  }

  // All of them -------------------------------------------------------------------------------------------------------

  /** How far p of a sentence's word moves if one of its vectors is exchanged, for each of them. */
  async function findEffects(mine) {
    for (const [at, side] of sides.entries()) {
      if (side.effects) continue;
      const other = sides[1 - at];
      const token = place.tokens[place.differ ? at : 0];
      const effects = [];
      for (const i of side.pieces.keys()) {
        const move = { place: i, from: placeIn(side.pieces, other.pieces, i) };
        const p = chancesAfter(model, side.ids, place.before, withMoves(side.memory, other.memory, [move]));
        effects.push(Math.abs(p[token] - side.base[token]));
        await new Promise((done) => setTimeout(done));
        if (mine !== turn) return false;
      }
      side.effects = effects;
      drawVectors(at);
    }
    return true;
  }

  async function tryAll() {
    if (!place || isTrying) return;
    isTrying = true;
    const focus = focusOf(root);
    const isDone = await findEffects(turn);
    isTrying = false;
    if (!isDone) return;
    focus();
    const of = ({ effects, pieces }, at) => {
      const best = argmax(effects);
      const rest = Math.max(...effects.filter((_, i) => i !== best));
      return [
        at ? "; in the second, that of " : "In the first sentence, exchanging the vector of ",
        quoted(pieces[best], source),
        at ? " by " : ` moves p(`,
        ...(at ? [] : [em(wordAt(0)), ") by "]),
        `${points(effects[best])}, any other by at most ${points(rest)}`,
      ];
    };
    say(picture.sentence, [...sides.flatMap(of), "."]);
  }

  // Attention ---------------------------------------------------------------------------------------------------------

  async function drawLooked() {
    const mine = turn;
    if (!place) return;
    const figures = h("div", { class: "halves" });
    if (!(await findEffects(mine))) return;
    sides.forEach((side, at) => figures.append(lookedFigure(side, at)));
    lookedPlace.replaceChildren(
      figures,
      h(
        "p",
        {},
        "A weight says where a head looks. What it finds there may be the same in both sentences. The ",
        h("a", { href: "#/attention" }, "Attention view"),
        " shows every head; ",
        lessonLink(page, "00_whole_game"),
        " tells the whole story.",
      ),
    );
  }

  function lookedFigure({ pieces, ids, effects, base }, at) {
    const { attentions } = model.forward(ids, place.before);
    const heads = attentions.filter(({ kind }) => kind === "cross").flatMap(({ heads }) => heads.map((head) => row(head, place.at)));
    const mean = pieces.map((_, j) => heads.reduce((sum, weights) => sum + weights[j], 0) / heads.length);
    const [seen, decisive] = [argmax(mean), argmax(effects)];
    const most = heads.filter((weights) => argmax([...weights]) === seen).length;
    const items = pieces.map((piece, j) =>
      h(
        "li",
        {},
        h("span", { class: j === seen ? "share most" : "share" }, percent(mean[j])),
        h("span", { class: "piece", lang: source }, piece),
        barOf(Math.min(1, effects[j])),
        h("span", { class: j === decisive ? "share most" : "share" }, points(effects[j])),
      ),
    );
    const word = em(wordAt(at));
    const picture = figure(
      data.caption,
      h("p", { class: "label heads" }, h("span", {}, "where the heads look, and their mean"), h("span", {}, "exchanged, it moves p(", word.cloneNode(true), ") by")),
      h("div", { class: "look" }, h("span", { class: "chip", lang: target }, wordAt(at)), threadsOf(heads, pieces.length), h("ol", {}, items)),
    );
    const name = (j) => quoted(pieces[j], source);
    const intro = ["To write ", word, `, ${most} of ${heads.length} heads look most at `, name(seen), `, on average ${percent(mean[seen])}`];
    const end =
      effects[decisive] < 0.1
        ? [". No single vector decides: exchanged, none moves p by more than ", points(effects[decisive]), "."]
        : seen === decisive
          ? [". Here the vector that is looked at most is also the one that decides: it moves p by ", points(effects[decisive]), "."]
          : [`; yet exchanging its vector moves p by ${points(effects[seen])}. `, name(decisive), ` gets ${percent(mean[decisive])} of the weight, and its vector decides: it moves p from ${percent(base[place.tokens[place.differ ? at : 0]])} by ${points(effects[decisive])}.`];
    say(picture.sentence, [...intro, ...end]);
    return picture;
  }

  // The address -------------------------------------------------------------------------------------------------------

  function write() {
    const [first, second] = sides.map(({ text }) => text);
    page.go("transplant", {
      s: first === data.examples[0] ? null : first,
      t: second === partnerOf(data.examples, first) ? null : second,
      moves: moves.length ? moves.map(({ to, place, from }) => [to, place, from].join(".")).join(",") : null,
      ...shared.search,
    });
  }

  const first = currentSentence(page);
  read(0, first);
  const other = page.parameters.get("t") ?? (page.parameters.has("s") ? null : shared.other) ?? partnerOf(data.examples, first);
  read(1, other);
  return () => {
    turn++;
    clearTimeout(timer);
  };
}

export const transplantView = {
  id: "transplant",
  title: "Transplant",
  question: "Which vector decides the pronoun?",
  mount,
};
