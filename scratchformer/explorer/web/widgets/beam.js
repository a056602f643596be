/** Lesson 20: beam search on a small tree, step by step. */
import { button, h } from "../dom.js";
import { fitted, line, pickOne, picture, rectangle, short, text } from "./parts.js";

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
    const all = alive.flatMap(({ pieces, probability }) => Object.entries(NEXT[nameOf(pieces)]).map(([piece, p]) => ({ pieces: [...pieces, piece], probability: probability * p })));
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
    const children = Object.entries(NEXT[node.name] ?? {}).map(([piece, p]) => visit([...pieces, piece], probability * p));
    node.line = children.length ? (children[0].line + children.at(-1).line) / 2 : leaf++ + Math.floor((leaf - 1) / 2) * 0.35;
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
  const drawing = fitted(draw);
  const beamChips = pickOne({ label: "Beam size K", options: ["1 (greedy)", "2", "3"], selected: 1, onpick: (i) => ((beam = i + 1), update()) });
  const back = button("Step back", () => ((step = Math.max(0, step - 1)), update()));
  const next = button("Next step", () => ((step = step === STEPS ? 0 : step + 1), update()));
  root.append(h("div", { class: "controls" }, beamChips, back, next), drawing);

  function update() {
    next.textContent = step === STEPS ? "From the start" : "Next step";
    back.disabled = step === 0;
    drawing.redraw();
    if (step === 0) return tell(["The search begins with the start sign and keeps at most ", String(beam), beam === 1 ? " hypothesis." : " hypotheses."]);
    const steps = beamSteps(beam);
    const { alive } = steps[step - 1];
    const done = steps.slice(0, step).flatMap(({ finished }) => finished).sort((one, other) => other.probability - one.probability);
    const named = ({ pieces, probability }) => [h("em", {}, pieces.join(" ")), ` (${short(probability)})`];
    if (step < STEPS) return tell([`Step ${step} keeps `, alive.map((one, i) => [i ? ", " : "", named(one)]), "."].flat(Infinity));
    const found = [`With K = ${beam}, the best finished sentence is `, named(done[0])];
    const lost = steps.findIndex(({ candidates, alive }) => ![...candidates.filter(({ pieces }) => pieces.at(-1) === END), ...alive].some(({ pieces }) => best.name.startsWith(nameOf(pieces))));
    if (lost < 0) tell([...found, ", the likeliest of all."].flat(Infinity));
    else tell([...found, ". The likeliest, ", named(best), `, was lost in step ${lost + 1}.`].flat(Infinity));
  }

  function draw(width) {
    const isWide = width >= 600;
    const high = 34;
    const small = isWide ? 40 : 30;
    const right = isWide ? width - 70 : width - 2;
    const wide = isWide ? Math.min(132, (width - 190) / 3.6) : Math.min(70, (right - small) / 3 - 26);
    const gap = (right - small - 3 * wide) / 3;
    const left = (t) => (t === 0 ? 0 : small + gap * t + wide * (t - 1));
    const y = ({ line }) => 60 + line * 40;
    const steps = beamSteps(beam).slice(0, step);
    const find = (list, { name }) => list.findIndex(({ pieces }) => nameOf(pieces) === name);
    const fate = (node) => {
      if (node.step === 0) return "kept";
      if (node.step > step) return "ahead";
      const { alive, finished } = steps[node.step - 1];
      if (find(alive, node) >= 0) return "kept";
      if (find(finished, node) >= 0) return "finished";
      const parent = tree.find(({ name }) => name === nameOf(node.pieces.slice(0, -1)));
      return fate(parent) === "kept" ? "dropped" : "never";
    };
    const edges = tree.slice(1).map((node) => {
      const parent = tree.find(({ name }) => name === nameOf(node.pieces.slice(0, -1)));
      const start = left(parent.step) + (parent.step ? wide : small);
      const isOn = ["kept", "finished"].includes(fate(node));
      const bend = left(node.step) - (isWide ? 30 : 20);
      return [
        line([[start, y(parent)], [bend, y(node)], [left(node.step), y(node)]], isOn ? "forward" : "line", isOn ? 2.4 : 1.2),
        text(left(node.step) - (isWide ? 15 : 11), y(node) - 10, short(node.probability / parent.probability), { size: isWide ? 14 : 12, role: fate(node) === "never" || fate(node) === "ahead" ? "soft" : "ink" }),
      ];
    });
    const nodes = tree.map((node) => {
      const state = fate(node);
      const [x, w] = [left(node.step), node.step ? wide : small];
      const isOn = state === "kept" && node.step > 0;
      const isFaint = state === "ahead" || state === "never";
      const size = isWide ? 14 : 12;
      const word = node.pieces.at(-1) ?? "<s>";
      const value = short(node.probability);
      return [
        rectangle(x + w / 2, y(node), w, high, "paper", { filled: 1 }),
        rectangle(x + w / 2, y(node), w, high, isOn ? "forward" : isFaint ? "line" : "plain", { filled: isFaint ? 0 : 0.13, outlined: true, radius: 4 }),
        node.step === 0
          ? text(x + w / 2, y(node), word, { size })
          : isWide
            ? [text(x + 8, y(node), word, { size, anchor: "start", role: isFaint ? "soft" : "ink" }), isFaint ? null : text(x + w - 8, y(node), value, { size, anchor: "end", bold: true })]
            : [text(x + w / 2, y(node) - (isFaint ? 0 : 8), word, { size, role: isFaint ? "soft" : "ink" }), isFaint ? null : text(x + w / 2, y(node) + 8, value, { size, bold: true })],
        isWide && isOn && node.step < STEPS ? rowBadge(x + w / 2 + 34, y(node) - high / 2 - 1, find(steps[node.step - 1].alive, node)) : null,
        state === "dropped" ? line([[x - 4, y(node) + 12], [x + w + 4, y(node) - 12]], "ink", 2) : null,
        isWide && node.step === STEPS && ["kept", "finished"].includes(state) ? text(x + w + 6, y(node), state === "kept" ? "alive" : "finished", { role: "soft", size: 13, anchor: "start" }) : null,
      ];
    });
    const heads = [1, 2, 3].map((t) => text(left(t) + wide / 2, 14, isWide ? `step ${t}: y_${t}` : `step ${t}`, { role: t === step ? "ink" : "soft", bold: t === step, size: 14 }));
    const height = y({ line: Math.max(...tree.map(({ line }) => line)) }) + 30;
    const kept = steps.at(-1)?.alive.map(({ pieces, probability }) => `${pieces.join(" ")} ${short(probability)}`).join(", ");
    return picture(width, height, `Step ${step}. Alive: ${kept ?? "the start sign"}.`, heads, edges, nodes);
  }

  update();
}

/** The rank of a hypothesis, on the upper edge of its box. */
function rowBadge(x, y, rank) {
  return [rectangle(x, y, 46, 18, "paper", { filled: 1 }), rectangle(x, y, 46, 18, "forward", { radius: 9 }), text(x, y, `row ${rank}`, { size: 12 })];
}

export const beamWidget = { id: "beam", title: "A beam on a small tree", mount };
