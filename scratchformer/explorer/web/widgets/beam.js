/** Lesson 20: beam search on a small tree, step by step. */
import { button, fitted, h } from "../dom.js";
import { pickOne, picture, rectangle, segment, short, text } from "./parts.js";

const END = "</s>";
/** A beginning, its pieces joined by "/" -> the probability of each piece to come next. */
const NEXT = {
  "": { schläft: 0.6, schlafen: 0.4 },
  schläft: { "die Kuh": 0.5, "die Kühe": 0.4, "das Kalb": 0.1 },
  schlafen: { "die Kühe": 0.9, "die Kuh": 0.1 },
  "schläft/die Kuh": { [END]: 0.6, heute: 0.4 },
  "schläft/die Kühe": { [END]: 0.3, heute: 0.7 },
  "schläft/das Kalb": { [END]: 0.6, heute: 0.4 },
  "schlafen/die Kühe": { [END]: 0.8, heute: 0.2 },
  "schlafen/die Kuh": { [END]: 0.5, heute: 0.5 },
};
const STEPS = 3;

const nameOf = (pieces) => pieces.join("/");

/**
 * The steps of a beam search. Each has `candidates`, the 2·beam likeliest continuations, best first, and what follows
 * from them: `finished`, which end here, and `alive`, at most `beam`. All are { pieces, probability }.
 */
export function beamSteps(beam) {
  const steps = [];
  let alive = [{ pieces: [], probability: 1 }];
  for (let t = 0; t < STEPS; t++) {
    const all = alive.flatMap(({ pieces, probability }) =>
      Object.entries(NEXT[nameOf(pieces)]).map(([piece, p]) => ({
        pieces: [...pieces, piece],
        probability: probability * p,
      })),
    );
    const candidates = all.sort((one, other) => other.probability - one.probability).slice(0, 2 * beam);
    const finished = candidates.filter(({ pieces }) => pieces.at(-1) === END);
    alive = candidates.filter(({ pieces }) => pieces.at(-1) !== END).slice(0, beam);
    steps.push({ candidates, finished, alive });
  }
  return steps;
}

/** All beginnings of the tree, each with its probability and where it stands: its step and its line from the top. */
function beginnings() {
  const found = [];
  let leaf = 0;
  const visit = (pieces, probability) => {
    const node = { pieces, name: nameOf(pieces), probability, step: pieces.length };
    found.push(node);
    const children = Object.entries(NEXT[node.name] ?? {}).map(([piece, p]) =>
      visit([...pieces, piece], probability * p),
    );
    node.line = children.length
      ? (children[0].line + children.at(-1).line) / 2
      : leaf++ + Math.floor((leaf - 1) / 2) * 0.35;
    return node;
  };
  visit([], 1);
  return found;
}

function mount(root, tell) {
  let beam = 2;
  let step = STEPS;
  const tree = beginnings();
  const best = tree.filter(({ step }) => step === STEPS).sort((one, other) => other.probability - one.probability)[0];
  const drawing = fitted((width) => draw(width, tree, beamSteps(beam).slice(0, step)));
  const beamChips = pickOne({
    label: "Beam size K",
    options: ["1 (greedy)", "2", "3"],
    selected: 1,
    onpick: (i) => ((beam = i + 1), update()),
  });
  const back = button("Step back", () => ((step = Math.max(0, step - 1)), update()));
  const next = button("Next step", () => ((step = step === STEPS ? 0 : step + 1), update()));
  root.append(h("div", { class: "controls" }, beamChips, back, next), drawing);

  function update() {
    next.textContent = step === STEPS ? "From the start" : "Next step";
    back.disabled = step === 0;
    drawing.redraw();
    tell(sentence().flat(Infinity));
  }

  function sentence() {
    const named = ({ pieces, probability }) => [h("em", {}, pieces.join(" ")), ` (${short(probability)})`];
    const steps = beamSteps(beam);
    if (step === 0) return [`The search begins with the start sign and keeps at most ${beam}.`];
    if (step < STEPS)
      return [`Step ${step} keeps `, steps[step - 1].alive.map((one, i) => [i ? ", " : "", named(one)]), "."];
    const [found] = steps.flatMap(({ finished }) => finished).sort((one, other) => other.probability - one.probability);
    const fates = [1, 2, 3].map((t) => fatesOf(tree, steps).get(nameOf(best.pieces.slice(0, t))));
    const lost = 1 + fates.indexOf("dropped");
    const verdict = lost
      ? [". The likeliest, ", named(best), `, was lost in step ${lost}.`]
      : ", the likeliest of all.";
    return [`With K = ${beam}, the best finished sentence is `, named(found), verdict];
  }

  update();
}

/** Each beginning -> "kept", "finished", "dropped" (its parent was kept), or "unseen", after these steps of a search. */
function fatesOf(tree, steps) {
  const fates = new Map([["", "kept"]]);
  for (const { name, pieces, step } of tree.slice(1)) {
    const isIn = (list) => list.some((one) => nameOf(one.pieces) === name);
    const { alive, finished } = steps[step - 1] ?? { alive: [], finished: [] };
    const fate = isIn(alive) ? "kept" : isIn(finished) ? "finished" : "dropped";
    fates.set(name, step <= steps.length && fates.get(nameOf(pieces.slice(0, -1))) === "kept" ? fate : "unseen");
  }
  return fates;
}

/** The tree of the lesson, with what the search has kept, finished and struck out. */
function draw(width, tree, steps) {
  const isWide = width >= 600;
  const size = isWide ? 14 : 12;
  const high = 34;
  const first = isWide ? 40 : 30;
  const right = isWide ? width - 70 : width - 2;
  const wide = isWide ? Math.min(132, (width - 190) / 3.6) : Math.min(70, (right - first) / 3 - 26);
  const gap = (right - first - 3 * wide) / 3;
  const left = (t) => (t === 0 ? 0 : first + gap * t + wide * (t - 1));
  const y = ({ line }) => 60 + line * 40;
  const fates = fatesOf(tree, steps);

  const edges = tree.slice(1).map((node) => {
    const parent = tree.find(({ name }) => name === nameOf(node.pieces.slice(0, -1)));
    const fate = fates.get(node.name);
    const isOn = fate === "kept" || fate === "finished";
    const [role, thick] = isOn ? ["forward", 2.4] : ["line", 1.2];
    const bend = [left(node.step) - (isWide ? 30 : 20), y(node)];
    const start = [left(parent.step) + (parent.step ? wide : first), y(parent)];
    const p = short(node.probability / parent.probability);
    return [
      segment(start, bend, role, thick),
      segment(bend, [left(node.step), y(node)], role, thick),
      text(bend[0] + (isWide ? 15 : 9), y(node) - 10, p, { size, role: fate === "unseen" ? "soft" : "ink" }),
    ];
  });

  const nodes = tree.map((node) => {
    const fate = fates.get(node.name);
    const across = node.step ? wide : first;
    const [x, at] = [left(node.step) + across / 2, y(node)];
    const isUnseen = fate === "unseen";
    const isOn = fate === "kept" && node.step > 0;
    const role = isOn ? "forward" : isUnseen ? "line" : "plain";
    const word = (x, y, anchor) =>
      text(x, y, node.pieces.at(-1) ?? "<s>", { size, anchor, role: isUnseen ? "soft" : "ink" });
    const value = (x, y, anchor) => text(x, y, short(node.probability), { size, anchor, bold: true });
    const isAlone = isUnseen || node.step === 0;
    const row = isOn && steps[node.step - 1].alive.findIndex(({ pieces }) => nameOf(pieces) === node.name);
    const end = { kept: "alive", finished: "finished" }[fate];
    return [
      rectangle(x, at, across, high, "paper", { filled: 1 }),
      rectangle(x, at, across, high, role, { filled: isUnseen ? 0 : 0.13, outlined: true, radius: 4 }),
      isWide && node.step ? word(x - across / 2 + 8, at, "start") : word(x, at - (isAlone ? 0 : 8), "middle"),
      isAlone ? null : isWide ? value(x + across / 2 - 8, at, "end") : value(x, at + 8, "middle"),
      isWide && isOn && node.step < STEPS ? badge(x + 34, at - high / 2 - 1, `row ${row}`) : null,
      fate === "dropped" ? segment([x - across / 2 - 4, at + 12], [x + across / 2 + 4, at - 12], "ink", 2) : null,
      isWide && end && node.step === STEPS
        ? text(right + 6, at, end, { role: "soft", size: 13, anchor: "start" })
        : null,
    ];
  });

  const heads = [1, 2, 3].map((t) => {
    const isNow = t === steps.length;
    const look = { role: isNow ? "ink" : "soft", bold: isNow, size: 14 };
    return text(left(t) + wide / 2, 14, isWide ? `step ${t}: y_${t}` : `step ${t}`, look);
  });
  const height = Math.max(...tree.map(y)) + 30;
  const kept = steps.at(-1)?.alive.map(({ pieces, probability }) => `${pieces.join(" ")} ${short(probability)}`);
  return picture(
    width,
    height,
    `Alive after step ${steps.length}: ${kept?.join(", ") ?? "the start sign"}.`,
    heads,
    edges,
    nodes,
  );
}

/** The rank of a hypothesis, on the upper edge of its box. */
function badge(x, y, words) {
  return [
    rectangle(x, y, 46, 18, "paper", { filled: 1 }),
    rectangle(x, y, 46, 18, "forward", { radius: 9 }),
    text(x, y, words, { size: 12 }),
  ];
}

export const beamWidget = { id: "beam", title: "A beam on a small tree", mount };
