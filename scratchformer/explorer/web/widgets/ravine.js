/** Lesson 15: three ways down a ravine, from a start and at learning rates that the reader chooses. */
import { button, fitted, h, number, plot, s } from "../dom.js";
import { circle, controls, controlsOf, hundredths, line, note, picture, rectangle, segment, stepper, text } from "./parts.js";

const STEPS = 100;
/** The steps of the lesson's figure, whose paths are seen from the start. */
const IN_FIGURE = 40;
const MILLISECONDS = 80;
/** The map reaches from LOW to HIGH in both directions; its lines join points of equal loss. */
const [LOW, HIGH] = [-1.2, 1.2];
const HEIGHTS = [0.03, 0.2, 2, 8, 20, 38];

/** A way to walk, the colour of its path, its learning rate in the lesson's picture, and the rates to choose from. */
const WAYS = [
  { id: "gradient descent", role: "value", rate: 0.0185, max: 0.025, step: 0.0005 },
  { id: "momentum", role: "key", rate: 0.05, max: 0.5, step: 0.005 },
  { id: "Adam", role: "forward", rate: 0.05, max: 0.5, step: 0.005 },
];

/** The loss 50 a² + b²/2. */
export function loss([a, b]) {
  return 50 * a * a + (b * b) / 2;
}

/** The points (a, b) of a walk, the start among them. `way` is "gradient descent", "momentum" or "Adam". */
export function descend(way, rate, start, steps = STEPS) {
  const [beta1, beta2] = [0.9, 0.98];
  let [w, m, v] = [start, [0, 0], [0, 0]];
  const points = [start];
  for (let t = 1; t <= steps; t++) {
    const g = [100 * w[0], w[1]];
    m = m.map((x, i) => beta1 * x + (1 - beta1) * g[i]);
    v = v.map((x, i) => beta2 * x + (1 - beta2) * g[i] * g[i]);
    const adam = m.map((x, i) => x / (1 - beta1 ** t) / (Math.sqrt(v[i] / (1 - beta2 ** t)) + 1e-9));
    const direction = { "gradient descent": g, momentum: m, Adam: adam }[way];
    w = w.map((x, i) => x - rate * direction[i]);
    points.push(w);
  }
  return points;
}

/** Where a coordinate is: a = 0.47, or a = 3.3e7 when a walk has exploded. */
const place = (name, x) => `${name} = ${Math.abs(x) < 100 ? hundredths(x) : number(x)}`;

function mount(root, tell) {
  const state = { step: 0, a: 1, b: 1, ...Object.fromEntries(WAYS.map(({ id, rate }) => [id, rate])) };
  let walks;
  let timer = 0;
  const maps = fitted((width) => drawMaps(width, walks, state));
  const curves = fitted((width) => drawCurves(width, walks, state));
  const { slide } = controlsOf(state, update);
  const step = slide("step", "Step", 0, STEPS);
  step.addEventListener("input", stop);
  const steps = stepper((by) => (stop(), move(state.step + by)));
  const play = button("Play", () => (timer ? stop() : run()));
  const rates = WAYS.map(({ id, step, max }) => slide(id, id, step, max, step, String));
  const starts = ["a", "b"].map((name) => slide(name, name, -1.1, 1.1, 0.05, hundredths));
  const group = (label, sliders) =>
    h("div", { class: "controls", role: "group", "aria-label": label }, h("span", { class: "label" }, label), sliders);
  root.append(controls(steps, play, step), maps, curves, group("Learning rate of", rates), group("Start at", starts));

  function move(to) {
    state.step = to;
    step.set(to);
    update();
  }

  function run() {
    if (state.step === STEPS) move(0);
    play.textContent = "Stop";
    timer = setInterval(() => (state.step < STEPS ? move(state.step + 1) : stop()), MILLISECONDS);
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  function update() {
    walks = WAYS.map(({ id }) => descend(id, state[id], [state.a, state.b]));
    maps.redraw();
    curves.redraw();
    steps.set(state.step, STEPS);
    const [plain, momentum, adam] = walks.map((walk) => number(loss(walk[state.step])));
    const losses = `the loss of gradient descent is ${plain}, of momentum ${momentum}, and of Adam ${adam}`;
    if (state.step) tell(`After ${state.step} ${state.step === 1 ? "step" : "steps"}, ${losses}.`);
    else tell(`All three start with the loss ${plain}. Grey lines show where their first ${IN_FIGURE} steps lead.`);
  }

  update();
  return stop;
}

/** A map for each way, side by side. */
function drawMaps(width, walks, state) {
  const isWide = width >= 560;
  const gap = isWide ? 14 : 8;
  const wide = (width - 2 * gap) / 3;
  const [top, high] = [42, Math.max(150, wide * 0.95)];
  const size = isWide ? 15 : 12;
  const y = (a) => top + ((HIGH - a) / (HIGH - LOW)) * high;
  const maps = WAYS.map(({ id, role }, i) => {
    const left = i * (wide + gap);
    const middle = left + wide / 2;
    const x = (b) => left + ((b - LOW) / (HIGH - LOW)) * wide;
    const lost = walks[i].findIndex((point) => point.some((coordinate) => Math.abs(coordinate) > 5)); // a walk that explodes
    const points = walks[i].slice(0, lost < 0 ? STEPS + 1 : lost + 1).map(([a, b]) => [x(b).toFixed(1), y(a).toFixed(1)]);
    const walked = points.slice(0, state.step + 1);
    const [a, b] = walks[i][state.step];
    const radii = (height) => ({ rx: x(Math.sqrt(2 * height)) - x(0), ry: y(0) - y(Math.sqrt(height / 50)) });
    const look = { cx: x(0), cy: y(0), fill: "none", stroke: "var(--line)" };
    const map = { x: left, y: top, width: wide, height: high, viewBox: `${left} ${top} ${wide} ${high}` }; // cuts what leaves it
    return [
      rectangle(middle, top + high / 2, wide, high, "soft", { filled: 0.04 }),
      text(Math.max(middle, 47), 10, id, { bold: true, size }),
      note(middle, 29, `rate ${state[id]}`),
      s("svg", map, [
        HEIGHTS.map((height) => s("ellipse", { ...look, ...radii(height) })),
        note(left + 5, top + 11, "a ↑ steep", "start", 12),
        note(left + wide - 5, top + high - 11, "b → shallow", "end", 12),
        segment([x(0) - 6, y(0)], [x(0) + 6, y(0)], "ink", 2),
        segment([x(0), y(0) - 6], [x(0), y(0) + 6], "ink", 2),
        line(points.slice(0, IN_FIGURE + 1), "soft", 0.8),
        line(walked, role, 1.4),
        walked.map(([px, py]) => circle(px, py, isWide ? 2.2 : 1.6, role)),
        circle(...points[0], 4.5, "ink"),
        circle(...walked.at(-1), 4.5, role),
      ]),
      [place("a", a), place("b", b)].map((words, i) => text(middle, top + high + 14 + 17 * i, words, { size: 13 })),
      note(middle, top + high + 49, `loss ${number(loss([a, b]))}`),
    ];
  });
  const said = WAYS.map(({ id }, i) => `${id}, rate ${state[id]}: at ${walks[i][state.step].map(hundredths).join(", ")}.`);
  return picture(width, top + high + 60, `After ${state.step} steps: ${said.join(" ")}`, maps);
}

/** The loss of each way at all steps, and where we are. The axis of the loss has its powers of ten. */
function drawCurves(width, walks, { step }) {
  const [low, high] = [-4, 2];
  const series = WAYS.map(({ id, role }, i) => ({ name: id, role, points: walks[i].map((at, t) => [t, Math.log10(loss(at))]) }));
  series.push({ name: `step ${step}`, role: "ink", points: [[step, low], [step, high]] });
  const y = { label: "loss", from: low, to: high, show: (power) => String(10 ** power) };
  return plot({ label: "The loss at each step", width, height: 170, x: { label: "step", from: 0, to: STEPS }, y, series });
}

export const ravineWidget = { id: "ravine", title: "Three ways down a ravine", mount };
