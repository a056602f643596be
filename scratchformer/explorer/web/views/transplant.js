/**
 * Transplant: the encoder's vectors of two sentences. A vector moves into the other sentence, the search runs again with
 * the changed memory, and the translation shows what this vector decides.
 */

import { button, choice, clear, figure, h, percent, reach, roving, s, say } from "../dom.js";
import { translate } from "../engine/beam.js";
import { Pass } from "../engine/model.js";
import { matrix, row } from "../engine/tensor.js";
import { BOS, EOS } from "../engine/tokenizer.js";
import { argmax, barOf, currentSentence, focusOf, idsOf, lessonLink, likeliest, markChanges, partnerOf, quoted, sentenceParameter, sourceIdsOf, wordField, wordOf } from "./sentence.js";
import { beamFold } from "./tree.js";

const PRONOUNS = ["es", "sie", "er"];
const NAMES = ["first", "second"];
const PAUSE_MS = 200; // in the typing, before the page translates

// What is computed ----------------------------------------------------------------------------------------------------

/** The place in another sentence that fits place i of these words: equal beginnings and equal ends fit together. */
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
  let moves = []; // [{ to, place, from }], the last one last: the vector of place `from` of the other sentence
  let place = null; // where the bars are: { at, before, differ, tokens }
  let trial = null; // the exchange of each vector, while it runs and after it
  let wasDragged = false;

  const sides = NAMES.map((name, at) => {
    const [vectors, chances] = ["vectors", "chances"].map((look) => h("div", { class: look }));
    const german = h("p", { class: "german", lang: target });
    const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
    const words = wordField(page, (text) => {
      clearTimeout(timer);
      timer = setTimeout(() => read(at, text), PAUSE_MS);
    });
    words.field.setAttribute("aria-label", `The ${name} sentence`);
    for (const type of ["input", "keyup", "click"]) words.field.addEventListener(type, () => drawMenu(at));
    const menu = h("p", { class: "menu" });
    const copy = button(`Copy it to the ${NAMES[1 - at]} sentence`, () => read(1 - at, words.field.value));
    const editor = h("div", { class: "editor", hidden: true }, words, menu, copy);
    const edit = button("Edit", () => open(at, editor.hidden), { "aria-expanded": "false", "aria-label": `Edit the ${name} sentence` });
    const card = h(
      "section",
      { class: `side side-${at}`, "aria-label": `The ${name} sentence` },
      h("div", {}, vectors, editor, trouble, h("div", { class: "line" }, german, edit)),
      chances,
    );
    return { card, vectors, german, chances, menu, trouble, words, edit, editor, text: "" };
  });
  const prompt = h("p", { class: "prompt" });
  const where = h("span");
  const undo = button("Undo", () => change(moves.slice(0, -1)), { "data-key": "undo" });
  const controls = h("div", { class: "controls" }, button("Try all", tryAll, { "data-key": "try" }), undo, where);
  const cards = h("div", { class: "sides" }, sides.map(({ card }) => card));
  roving(cards, rows);
  const picture = figure(data.caption, prompt, cards, controls);
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
    place = trial = null;
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
    const [a, b] = sides.map(({ own }) => own);
    const at = placeOfBars(a, b, (id) => /^\p{L}/u.test(nameOf(id)));
    place = { at, before: [BOS, ...a.slice(0, at)], differ: a[at] !== b[at] };
    for (const side of sides) side.base = chancesAfter(model, side.ids, place.before, side.memory);
    place.tokens = tokensOfBars();
    drawPrompt();
    change(readMoves(page.parameters.get("moves") ?? ""));
    page.parameters.delete("moves");
    drawLooked();
  }

  /** Moves as they stand in the address: "0.11.11" is to, place and from. */
  function readMoves(text) {
    const numbers = text.split(",").map((part) => part.split(".").map(Number));
    const all = numbers.map(([to, at, from]) => ({ to, place: at, from }));
    return all.filter(({ to, place, from }) => sides[to]?.pieces[place] && sides[1 - to].pieces[from]);
  }

  /** Draws chances and translations of both sentences with these moves. */
  async function change(next) {
    if (!place) return;
    const mine = ++turn;
    moves = next;
    const focus = focusOf(root);
    const memories = sides.map(({ memory }, at) => withMoves(memory, sides[1 - at].memory, changesOf(at)));
    sides.forEach((side, at) => {
      side.now = changesOf(at).length ? chancesAfter(model, side.ids, place.before, memories[at]) : side.base;
      drawVectors(at);
      drawChances(at);
    });
    undo.disabled = !moves.length;
    drawWhere();
    focus();
    write();
    for (const [at, side] of sides.entries()) {
      side.written = tokenizer.decode(side.own);
      if (changesOf(at).length) side.written = (await translate(model, tokenizer, side.text, { ...settings, memory: memories[at] })).text;
      if (mine !== turn) return;
      drawGerman(at);
    }
    say(picture.sentence, moves.length ? sentenceOfMove() : sentenceOfPair());
  }

  /** The words that have bars: those in which the translations differ, and the pronouns if they are among them. */
  function tokensOfBars() {
    if (!place.differ) return likeliest(sides[0].base, 3).map(({ id }) => id);
    const two = sides.map(({ own }) => own[place.at] ?? EOS);
    const pronouns = target === "de" ? PRONOUNS.map((word) => model.pieces.indexOf(`▁${word}`)).filter((id) => id >= 0) : [];
    const three = two.some((id) => pronouns.includes(id)) ? pronouns : [];
    return [...new Set([...two, ...three])];
  }

  const wordAt = (at) => nameOf(tokenOf(at));
  const isPronoun = () => PRONOUNS.includes(wordAt(0)) && PRONOUNS.includes(wordAt(1));

  /** Puts a vector into the other sentence. A vector that is there comes back, and so does the own one of a place. */
  function tap(at, i) {
    const rest = moves.filter(({ to, place, from }) => (to === at ? place : from) !== i);
    if (rest.length < moves.length) change(rest);
    else put(at, i, placeIn(sides[at].pieces, sides[1 - at].pieces, i));
  }

  function put(at, from, there) {
    const others = moves.filter(({ to, place }) => to === at || place !== there);
    change([...others, { to: 1 - at, place: there, from }]);
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
      const effect = i in side.after ? barOf(effectOf(side, i)) : null;
      const strip = h(
        "button",
        {
          type: "button",
          class: `vector${move ? " strange" : ""}${isAway ? " away" : ""}`,
          "data-key": `v ${at} ${i}`,
          "aria-pressed": String(Boolean(move) || isAway),
          "aria-label": label + (effect ? `; exchanged, it moves p by ${points(effectOf(side, i))}` : ""),
          onclick: () => wasDragged || tap(at, i),
          onpointerdown: (event) => drag(event, at, i),
        },
        mosaic(vector),
      );
      const word = h("button", { type: "button", class: "word", lang: source, "data-key": `w ${at} ${i}`, onclick: () => open(at, true, i) }, piece);
      const from = move ? h("span", { class: "from", lang: source }, other.pieces[move.from]) : null;
      return h("div", { class: piece.length > 9 ? "slot long" : "slot", "data-side": at, "data-place": i }, strip, from, word, effect);
    });
    side.vectors.replaceChildren(...slots);
    rows[2 * at] = slots.map((slot) => slot.querySelector(".vector"));
    rows[2 * at + 1] = slots.map((slot) => slot.querySelector(".word"));
    if (at === 1) reach(rows, [0, 0]);
  }

  /** The translation, with what the moves have changed in it; if that is nothing, with the first word that differs. */
  function drawGerman(at) {
    const { own, written, german } = sides[at];
    const isChanged = written !== tokenizer.decode(own);
    const marked = markChanges(written, tokenizer.decode(isChanged ? own : sides[1 - at].own));
    const first = marked.findIndex(([, isNew]) => isNew);
    const mark = ([word, isNew], i) => [i ? " " : "", isNew && (isChanged || i === first) ? h("mark", {}, word) : word];
    german.replaceChildren(...(written ? marked.flatMap(mark) : ["(nothing)"]));
  }

  function drawChances(at) {
    const { now, chances } = sides[at];
    const last = place.before.length > 1 ? [" after ", em(`…\u00a0${nameOf(place.before.at(-1))}`)] : ", the first";
    const bars = place.tokens.map((id) => [h("dt", { lang: target }, nameOf(id)), h("dd", {}, barOf(now[id]), h("span", {}, percent(now[id])))]);
    chances.replaceChildren(h("p", { class: "label" }, "The next word", last), h("dl", {}, bars));
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

  /** The word whose probability counts in a sentence, and how far an exchange of vector i moves it. */
  const tokenOf = (at) => place.tokens[place.differ ? at : 0];
  const effectOf = (side, i) => Math.abs(side.after[i] - side.base[tokenOf(sides.indexOf(side))]);
  const points = (share) => (share < 0.0005 ? "less than 0.1 points" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} points`);

  function sentenceOfPair() {
    const of = (at) => [em(wordAt(at)), ` ${percent(sides[at].base[tokenOf(at)])} in the ${NAMES[at]} sentence`];
    const what = place.differ ? "Where the two translations first differ" : "The two translations are the same. At their last word";
    return [`${what}, the model gives `, of(0), " and ", of(1), "."].flat();
  }

  /** What the last move has changed in the sentence into which it went. */
  function sentenceOfMove() {
    const { to, place: i, from } = moves.at(-1);
    const { base, now, own, ids, memory, pieces, written } = sides[to];
    const other = sides[1 - to];
    const earlier = changesOf(to).slice(0, -1);
    const was = earlier.length ? chancesAfter(model, ids, place.before, withMoves(memory, other.memory, earlier)) : base;
    const token = tokenOf(to);
    const rival = place.tokens.reduce((best, id) => (now[id] > now[best] ? id : best));
    const moved = (id) => {
      const [a, b] = [percent(was[id]), percent(now[id])];
      return ["p(", em(nameOf(id)), a === b ? `) stays at ${a}` : `) goes from ${a} to ${b}`];
    };
    const stays = written === tokenizer.decode(own) ? "stays the same. Not this one: try another." : "changes in another place.";
    const end =
      rival !== token && was[token] > was[rival]
        ? [" and ", moved(rival), `: this vector decides ${isPronoun() ? "the pronoun" : "the word"}.`]
        : rival !== token
          ? [", and ", em(nameOf(rival)), " stays the likeliest."]
          : `, and the translation of the ${NAMES[to]} sentence ${stays}`;
    const vector = ["With the vector of ", quoted(other.pieces[from], source), " in the place of ", quoted(pieces[i], source)];
    return [vector, ", ", moved(token), end].flat(3);
  }

  // Dragging ----------------------------------------------------------------------------------------------------------

  /** A vector follows the pointer until it is dropped on a place of the other sentence; a short way is a tap. */
  function drag(down, at, i) {
    if (down.button || !place) return;
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
    strip.setPointerCapture(down.pointerId);
  }

  // Own words ---------------------------------------------------------------------------------------------------------

  /** Opens or closes the field of a sentence; the word of place i is selected in it. */
  function open(at, isOpen, i = null) {
    const { edit, editor, words, pieces, text } = sides[at];
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

  /** The probability of each sentence's word after the exchange of one vector, for each of them: a bar below each. */
  async function exchangeAll(mine) {
    for (const [at, side] of sides.entries()) {
      for (const i of side.pieces.keys()) {
        const move = { place: i, from: placeIn(side.pieces, sides[1 - at].pieces, i) };
        const memory = withMoves(side.memory, sides[1 - at].memory, [move]);
        side.after[i] = chancesAfter(model, side.ids, place.before, memory)[tokenOf(at)];
        side.vectors.children[i].append(barOf(effectOf(side, i)));
        await new Promise((done) => setTimeout(done));
        if (mine !== trial) return false;
      }
    }
    return true;
  }

  /** Tries all vectors, once for each pair of sentences. -> whether these are still shown at the end */
  function tried() {
    if (!place) return false;
    if (!trial) {
      const mine = (trial = {});
      mine.done = exchangeAll(mine);
    }
    return trial.done;
  }

  async function tryAll() {
    if (!(await tried())) return;
    const of = (side, at) => {
      const effects = side.pieces.map((_, i) => effectOf(side, i));
      const best = argmax(effects);
      const rest = Math.max(...effects.filter((_, i) => i !== best));
      const start = at ? ["; in the second, that of "] : ["In the first sentence, exchanging the vector of "];
      const what = at ? " by " : [" moves p(", em(wordAt(0)), ") by "];
      return [start, quoted(side.pieces[best], source), what, `${points(effects[best])}, any other by ${points(rest)} at most`];
    };
    say(picture.sentence, [...sides.map(of), "."].flat(3));
  }

  // Attention ---------------------------------------------------------------------------------------------------------

  async function drawLooked() {
    if (!looked.open || !(await tried())) return;
    heads.replaceChildren(
      h("div", { class: "halves" }, sides.map(lookedFigure)),
      h(
        "p",
        {},
        "A weight says where a head looks. What it finds there may be the same in both sentences. The ",
        h("a", { href: `#/attention?${new URLSearchParams({ ...sentenceParameter(page, sides[0].text), kind: "cross", q: place.at })}` }, "Attention view"),
        " shows every head; ",
        lessonLink(page, "00_whole_game"),
        " tells the whole story.",
      ),
    );
  }

  function lookedFigure(side, at) {
    const { pieces, ids, base, after } = side;
    const effects = pieces.map((_, j) => effectOf(side, j));
    const { attentions } = model.forward(ids, place.before);
    const weights = attentions.filter(({ kind }) => kind === "cross").flatMap(({ heads }) => heads.map((head) => row(head, place.at)));
    const mean = pieces.map((_, j) => weights.reduce((sum, head) => sum + head[j], 0) / weights.length);
    const [seen, decisive] = [argmax(mean), argmax(effects)];
    const most = weights.filter((head) => argmax([...head]) === seen).length;
    const items = pieces.map((piece, j) =>
      h(
        "li",
        {},
        h("span", { class: j === seen ? "share most" : "share" }, percent(mean[j])),
        h("span", { class: "piece", lang: source }, piece),
        barOf(effects[j]),
        h("span", { class: j === decisive ? "share most" : "share" }, points(effects[j]).replace("less than", "<")),
      ),
    );
    const word = em(wordAt(at));
    const picture = figure(
      data.caption,
      h("p", { class: "label heads" }, h("span", {}, "where the heads look, and their mean"), h("span", {}, "exchanged, it moves p(", word.cloneNode(true), ") by")),
      h("div", { class: "look" }, h("span", { class: "chip", lang: target }, wordAt(at)), threadsOf(weights, pieces.length), h("ol", {}, items)),
    );
    const name = (j) => quoted(pieces[j], source);
    const intro = ["To write ", word, `, ${most} of ${weights.length} heads look most at `, name(seen), `, on average ${percent(mean[seen])}`];
    const end =
      effects[decisive] < 0.1
        ? [". No single vector decides: the one that matters most moves p by ", points(effects[decisive]), "."]
        : seen === decisive
          ? [". Here the vector that is looked at most is also the one that decides: it moves p by ", points(effects[decisive]), "."]
          : [`; yet exchanging its vector moves p by ${points(effects[seen])}. `, name(decisive), ` gets ${percent(mean[decisive])} of the weight, and its vector decides: exchanged, it takes p from ${percent(base[tokenOf(at)])} to ${percent(after[decisive])}.`];
    picture.sentence.append(...intro, ...end);
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
  question: ({ languages }) => `Which vector decides the ${languages.target === "de" ? "pronoun" : "translation"}?`,
  mount,
};
