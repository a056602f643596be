/** Lesson 17: byte-pair encoding of four words, one merge at a time, and a word of the reader's. */
import { h, words } from "../dom.js";
import { controls, stepper, sum } from "./parts.js";

/** The text of the lesson: how often each word occurs. */
const TEXT = { "▁Hund": 5, "▁hundert": 3, "▁und": 6, "▁rund": 2 };
const COUNTS = Object.values(TEXT);
const CHARACTERS = [...new Set(Object.keys(TEXT).join(""))];
const YOURS = "Hunde";

const joined = (pair) => pair.join("");
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** The pairs of neighbours in words (lists of pieces), as { pair, count }: the one to be merged next comes first. */
export function countPairs(cut, counts) {
  const found = new Map();
  cut.forEach((pieces, i) =>
    pieces.slice(1).forEach((right, k) => {
      const pair = [pieces[k], right];
      const count = (found.get(pair.join(" "))?.count ?? 0) + counts[i];
      found.set(pair.join(" "), { pair, count });
    }),
  );
  const order = ({ pair: a, count: m }, { pair: b, count: n }) =>
    n - m || joined(a).length - joined(b).length || compare(joined(a), joined(b)) || a[0].length - b[0].length;
  return [...found.values()].sort(order);
}

/** Joins the pair wherever it occurs, from left to right. */
export function merge(pieces, [left, right]) {
  const merged = [];
  for (let i = 0; i < pieces.length; i++) {
    const isPair = pieces[i] === left && pieces[i + 1] === right;
    merged.push(isPair ? left + right : pieces[i]);
    if (isPair) i++;
  }
  return merged;
}

/** The pieces of a word: its characters, after these merges in order. */
export function encode(word, merges) {
  return merges.reduce(merge, [...word]);
}

const cutBy = (merges) => Object.keys(TEXT).map((word) => encode(word, merges));
const size = (merges) => sum(cutBy(merges).map((pieces, i) => pieces.length * COUNTS[i]));
const named = (pair) => `*${pair.join("* and *")}*`;
/** The pairs in the text after these merges. */
export const pairsAfter = (merges) => countPairs(cutBy(merges), COUNTS);

function mount(root, tell) {
  const merges = [];
  const steps = stepper((by) => (by < 0 ? merges.pop() : merges.push(pairsAfter(merges)[0].pair), update()));
  const field = h("input", { class: "field", value: YOURS, maxlength: 24, lang: "de", spellcheck: "false", oninput: update });
  const yours = h("label", { class: "choice" }, h("span", { class: "label" }, "A word of yours"), field);
  const shown = h("div", { class: "merging" });
  root.append(controls(steps), shown, controls(yours));

  function update() {
    const cut = cutBy(merges);
    const newest = merges.length ? joined(merges.at(-1)) : null;
    const typed = field.value.trim().replace(/\s+/g, "▁");
    const own = encode(`▁${typed}`, merges).map((piece) => (isKnown(piece) ? piece : "<unk>"));
    const vocabulary = [...CHARACTERS, ...merges.map(joined)];
    const pairs = pairsAfter(merges);
    const row = (label, chips) => [h("span", { class: "label" }, label), h("div", { lang: "de" }, chips)];
    /** A row of pieces: the newest is dark, and a line below the pair that comes next. */
    const pieces = (label, list, isText = true) => {
      const element = words(list, { label });
      const isNext = (i) => joined(list.slice(i, i + 2)) === joined(pairs[0]?.pair ?? []) && list[i] === pairs[0].pair[0];
      list.forEach((piece, i) => {
        element.children[i].classList.toggle("selected", piece === newest);
        element.children[i].classList.toggle("coming", isText && (isNext(i) || (i > 0 && isNext(i - 1))));
      });
      return row(label, element);
    };
    const choose = (i) => {
      merges.push(pairs[i].pair);
      update();
      (shown.querySelector("button") ?? steps.querySelector("button")).focus();
    };
    const counted = pairs.map(({ pair, count }) => `${pair.join(" + ")}: ${count}`);
    shown.replaceChildren(
      ...cut.flatMap((list, i) => pieces(`${COUNTS[i]} × in the text`, list)),
      ...(pairs.length ? row("Merge a pair", words(counted, { label: "Merge a pair", onpick: choose })) : []),
      ...pieces(`List, ${vocabulary.length}`, vocabulary, false),
      ...pieces("Yours", own),
    );
    for (const chip of shown.querySelectorAll("button")) chip.removeAttribute("aria-pressed");
    shown.querySelector("button")?.classList.add("coming");
    steps.set(merges.length, pairs.length ? null : merges.length);
    const ending = ` Your word has ${own.length} ${own.length === 1 ? "piece" : "pieces"} now.`;
    const [before, n] = [merges.slice(0, -1), vocabulary.length];
    const change = `the text has ${size(merges)} pieces, not ${size(before)}, and the list ${n}, not ${n - 1}`;
    const beginning = `Without merges the text has ${size([])} pieces, and each is one of ${n} characters.`;
    const last = merges.length ? `Merge ${merges.length} joined ${named(merges.at(-1))}: ${change}.` : beginning;
    tell(`${last} ${pairs.length ? coming(pairs) : "No pair is left."}${ending}`);
  }

  update();
}

/** Which pair comes next, and why. */
function coming([first, second]) {
  const rival = `; so do ${named(second?.pair ?? [])}, but in a tie the shorter piece wins, then Unicode order`;
  const isTie = second?.count === first.count;
  return `Next come ${named(first.pair)}, which stand side by side ${first.count} times${isTie ? rival : ""}.`;
}

/** Whether all characters of a piece are in the text. */
function isKnown(piece) {
  return [...piece].every((character) => CHARACTERS.includes(character));
}

export const mergesWidget = { id: "merges", title: "Merges, one by one", lang: "de", mount };
