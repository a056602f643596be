/** Lesson 17: byte-pair encoding of four words, one merge at a time, and a word of the reader's. */
import { button, h, words } from "../dom.js";
import { controls, sum } from "./parts.js";

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

/** All merges of a text, the most frequent pair each time, until no pair is left. */
export function learnMerges(text = TEXT) {
  const merges = [];
  for (let cut = Object.keys(text).map((word) => [...word]); ; cut = cut.map((pieces) => merge(pieces, merges.at(-1)))) {
    const [best] = countPairs(cut, Object.values(text));
    if (!best) return merges;
    merges.push(best.pair);
  }
}

function mount(root, tell) {
  const all = learnMerges();
  let step = 1;
  const back = button("One back", () => ((step -= 1), update()));
  const next = button("Merge the next pair", () => ((step += 1), update()));
  const field = h("input", { class: "field", value: YOURS, maxlength: 24, lang: "de", spellcheck: "false", oninput: update });
  const yours = h("label", { class: "choice" }, h("span", { class: "label" }, "A word of yours"), field);
  const shown = h("div", { class: "merging" });
  root.append(controls(next, back), shown, controls(yours));

  function update() {
    const merges = all.slice(0, step);
    const cutBy = (merges) => Object.keys(TEXT).map((word) => encode(word, merges));
    const cut = cutBy(merges);
    const newest = step ? joined(merges.at(-1)) : null;
    const typed = field.value.trim().replace(/\s+/g, "▁");
    const own = encode(`▁${typed}`, merges).map((piece) => (isKnown(piece) ? piece : "<unk>"));
    const vocabulary = [...CHARACTERS, ...merges.map(joined)];
    const pairs = countPairs(cut, COUNTS);
    const frequent = pairs.slice(0, 4).map(({ pair, count }) => `${pair.join(" + ")}: ${count}`);
    const row = (label, list, selected = list.indexOf(newest)) => {
      const chips = words(list, { label, selected: selected < 0 ? null : selected });
      return [h("span", { class: "label" }, label), h("div", { lang: "de" }, chips)];
    };
    back.disabled = step === 0;
    next.disabled = step === all.length;
    shown.replaceChildren(
      ...cut.flatMap((pieces, i) => row(`${COUNTS[i]} times`, pieces)),
      ...row("Pairs now", pairs.length ? frequent : ["none"], 0),
      ...row(`List, ${vocabulary.length}`, vocabulary),
      ...row("Yours", own),
    );
    const size = (cut) => sum(cut.map((pieces, i) => pieces.length * COUNTS[i]));
    const ending = ` Your word has ${own.length} ${own.length === 1 ? "piece" : "pieces"} now.`;
    const ended = pairs.length ? "" : " No pair is left.";
    const single = `each is one of ${CHARACTERS.length} characters`;
    if (step === 0) return tell(`Without merges the text has ${size(cut)} pieces, and ${single}.${ending}`);
    const before = cutBy(all.slice(0, step - 1));
    const [first, second] = countPairs(before, COUNTS);
    const named = ({ pair }) => `*${pair.join("* and *")}*`;
    const rival = second?.count === first.count && `; so do ${named(second)}, but in a tie the shorter piece wins, then Unicode order`;
    const change = `The text has ${size(cut)} pieces, not ${size(before)}, and the list ${vocabulary.length}, not ${vocabulary.length - 1}`;
    tell(`Merge ${step} joins ${named(first)}, which stand side by side ${first.count} times${rival || ""}. ${change}.${ended}${ending}`);
  }

  update();
}

/** Whether all characters of a piece are in the text. */
function isKnown(piece) {
  return [...piece].every((character) => CHARACTERS.includes(character));
}

export const mergesWidget = { id: "merges", title: "Merges, one by one", lang: "de", mount };
