/** Lesson 20: beam search on a small tree, step by step. */
import { fitted } from "../dom.js";
import { controls, note, pickOne, picture, rectangle, segment, short, stepper, text } from "./parts.js";

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
const byProbability = (one, other) => other.probability - one.probability;
const next = ({ pieces, probability }) =>
  Object.entries(NEXT[nameOf(pieces)] ?? {}).map(([piece, p]) => ({ pieces: [...pieces, piece], probability: probability * p }));
const ROOT = { pieces: [], probability: 1 };

/**
 * The steps of a beam search. Each has `candidates`, the 2·beam likeliest continuations, best first, and what follows
 * from them: `finished`, which end here, and `alive`, at most `beam`. All are { pieces, probability }.
 */
export function beamSteps(beam) {
  let alive = [ROOT];
  return Array.from({ length: STEPS }, () => {
    const candidates = alive.flatMap(next).sort(byProbability).slice(0, 2 * beam);
    const finished = candidates.filter(({ pieces }) => pieces.at(-1) === END);
    alive = candidates.filter(({ pieces }) => pieces.at(-1) !== END).slice(0, beam);
    return { candidates, finished, alive };
  });
}

/** All beginnings of the tree, each with its probability and where it stands: its step and its line from the top. */
function beginnings() {
  const found = [];
  let leaf = 0;
  const visit = (beginning, parent) => {
    const node = { ...beginning, parent, name: nameOf(beginning.pieces), step: beginning.pieces.length };
    found.push(node);
    const children = next(node).map((child) => visit(child, node));
    node.line = children.length ? (children[0].line + children.at(-1).line) / 2 : leaf++ + Math.floor((leaf - 1) / 2) * 0.35;
    return node;
  };
  visit(ROOT, null);
  return found;
}

function mount(root, tell) {
  let beam = 2;
  let step = 0;
  const tree = beginnings();
  const [best] = tree.filter(({ step }) => step === STEPS).sort(byProbability);
  const drawing = fitted((width) => draw(width, tree, beamSteps(beam).slice(0, step)));
  const options = ["1 (greedy)", "2", "3"];
  const beamChips = pickOne({ label: "Beam size K", options, selected: 1, onpick: (i) => ((beam = i + 1), update()) });
  const steps = stepper((by) => ((step += by), update()));
  root.append(controls(beamChips, steps), drawing);

  function update() {
    steps.set(step, STEPS);
    drawing.redraw();
    tell(sentence());
  }

  function sentence() {
    const named = ({ pieces, probability }) => `*${pieces.join(" ")}* (${short(probability)})`;
    const steps = beamSteps(beam);
    const most = beam === 1 ? "likeliest" : `${beam} likeliest`;
    if (step === 0) return `The search begins with the start sign. Each step will keep the ${most}.`;
    const kept = steps[step - 1].alive.map((one, row) => `${named(one)} in row ${row}`).join(", ");
    if (step < STEPS) return `Step ${step} keeps ${kept}: the likeliest has row 0.`;
    const [found] = steps.flatMap(({ finished }) => finished).sort(byProbability);
    const fates = [1, 2, 3].map((t) => fatesOf(tree, steps).get(nameOf(best.pieces.slice(0, t))));
    const lost = 1 + fates.indexOf("dropped");
    const verdict = lost ? `. The likeliest, ${named(best)}, was lost in step ${lost}.` : ", the likeliest of all.";
    return `With K = ${beam}, the best finished sentence is ${named(found)}${verdict}`;
  }

  update();
}

/** Each beginning -> "kept", "finished", "dropped" (its parent was kept), or "unseen", after these steps of a search. */
function fatesOf(tree, steps) {
  const fates = new Map([["", "kept"]]);
  for (const { name, parent, step } of tree.slice(1)) {
    const isIn = (list) => list.some(({ pieces }) => nameOf(pieces) === name);
    const { alive, finished } = steps[step - 1] ?? { alive: [], finished: [] };
    const fate = isIn(alive) ? "kept" : isIn(finished) ? "finished" : "dropped";
    fates.set(name, step <= steps.length && fates.get(parent.name) === "kept" ? fate : "unseen");
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
    const { parent, step } = node;
    const fate = fates.get(node.name);
    const look = ["kept", "finished"].includes(fate) ? ["forward", 2.4] : ["line", 1.2];
    const bend = [left(step) - (isWide ? 30 : 20), y(node)];
    const p = short(node.probability / parent.probability);
    return [
      segment([left(parent.step) + (parent.step ? wide : first), y(parent)], bend, ...look),
      segment(bend, [left(step), y(node)], ...look),
      text(bend[0] + (isWide ? 15 : 9), y(node) - 10, p, { size, role: fate === "unseen" ? "soft" : "ink" }),
    ];
  });

  const nodes = tree.map((node) => {
    const fate = fates.get(node.name);
    const across = node.step ? wide : first;
    const [x, at] = [left(node.step) + across / 2, y(node)];
    const isUnseen = fate === "unseen";
    const isAlone = isUnseen || node.step === 0;
    const isOn = fate === "kept" && node.step > 0;
    const role = isOn ? "forward" : isUnseen ? "line" : "plain";
    const word = [node.pieces.at(-1) ?? "<s>", { size, role: isUnseen ? "soft" : "ink" }];
    const value = [short(node.probability), { size, bold: true }];
    const put = (x, y, [words, look], anchor) => text(x, y, words, { ...look, anchor });
    const row = isOn && steps[node.step - 1].alive.findIndex(({ pieces }) => nameOf(pieces) === node.name);
    const end = { kept: "alive", finished: "finished" }[fate];
    return [
      rectangle(x, at, across, high, "paper", { filled: 1 }),
      rectangle(x, at, across, high, role, { filled: isUnseen ? 0 : 0.13, outlined: true, radius: 4 }),
      isWide && node.step ? put(x - across / 2 + 8, at, word, "start") : put(x, at - (isAlone ? 0 : 8), word),
      isAlone ? null : isWide ? put(x + across / 2 - 8, at, value, "end") : put(x, at + 8, value),
      isWide && isOn && node.step < STEPS && badge(x + 34, at - high / 2 - 1, `row ${row}`),
      fate === "dropped" && segment([x - across / 2 - 4, at + 12], [x + across / 2 + 4, at - 12], "ink", 2),
      isWide && end && node.step === STEPS && note(right + 6, at, end, "start"),
    ];
  });

  const heads = [1, 2, 3].map((t) => {
    const isNow = t === steps.length;
    const look = { role: isNow ? "ink" : "soft", bold: isNow, size: 14 };
    return text(left(t) + wide / 2, 14, isWide ? `step ${t}: y_${t}` : `step ${t}`, look);
  });
  const alive = steps.at(-1)?.alive.map(({ pieces, probability }) => `${pieces.join(" ")} ${short(probability)}`);
  const label = `Alive after step ${steps.length}: ${alive?.join(", ") ?? "the start sign"}.`;
  return picture(width, Math.max(...tree.map(y)) + 30, label, heads, edges, nodes);
}

/** The rank of a hypothesis, on the upper edge of its box. */
function badge(x, y, words) {
  const box = (role, look) => rectangle(x, y, 46, 18, role, look);
  return [box("paper", { filled: 1 }), box("forward", { radius: 9 }), text(x, y, words, { size: 12 })];
}

export const beamWidget = { id: "beam", title: "A beam on a small tree", lang: "de", mount };
