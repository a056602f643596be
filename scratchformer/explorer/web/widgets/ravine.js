/** Lesson 15: three ways down a ravine, from a start and at learning rates that the reader chooses. */
import { button, fitted, h } from "../dom.js";
import { circle, controls, controlsOf, hundredths, line, note, pickable, picture, rectangle, segment, text } from "./parts.js";

const STEPS = 40;
const MILLISECONDS = 120;
/** The map reaches from LOW to HIGH in both directions; its lines join points of equal loss. */
const [LOW, HIGH] = [-1.2, 1.2];
const HEIGHTS = [0.03, 0.2, 2, 8, 20, 38];

/** A way to walk, its learning rate in the lesson's picture, and the rates to choose from. */
const WAYS = [
  { id: "gradient descent", rate: 0.0185, max: 0.025, step: 0.0005 },
  { id: "momentum", rate: 0.05, max: 0.5, step: 0.005 },
  { id: "Adam", rate: 0.05, max: 0.5, step: 0.005 },
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

/** Where a coordinate is: a = 0.47, or a > 100 when a walk has exploded. */
function place(name, x) {
  if (Math.abs(x) < 100) return `${name} = ${hundredths(x)}`;
  return x > 0 ? `${name} > 100` : `${name} < −100`;
}

const placeOf = ([a, b]) => `${place("a", a)}, ${place("b", b)}`;

/** The step of a walk at which its loss was smallest, among the first `until`. */
export function lowest(points, until) {
  const losses = points.slice(0, until + 1).map(loss);
  return losses.indexOf(Math.min(...losses));
}

function mount(root, tell) {
  const state = { step: STEPS, a: 1, b: 1, ...Object.fromEntries(WAYS.map(({ id, rate }) => [id, rate])) };
  let walks;
  let timer = 0;
  const drawing = fitted((width) => draw(width, walks, state, setStart));
  const { slide } = controlsOf(state, update);
  const step = slide("step", "Step", 0, STEPS);
  step.addEventListener("input", stop);
  const play = button("Play", () => (timer ? stop() : run()));
  const next = button("One step", () => (stop(), move(state.step < STEPS ? state.step + 1 : 1)));
  const rates = WAYS.map(({ id, step, max }) => slide(id, id, step, max, step, String));
  const starts = ["a", "b"].map((name) => slide(name, name, -1.1, 1.1, 0.05, hundredths));
  const group = (label, sliders) =>
    h("div", { class: "controls", role: "group", "aria-label": label }, h("span", { class: "label" }, label), sliders);
  root.append(drawing, controls(step, play, next), group("Learning rate of", rates), group("Start at", starts));

  function setStart(point) {
    [state.a, state.b] = point.map((x) => Math.max(-1.1, Math.min(1.1, x)));
    starts.forEach((slider, i) => slider.set([state.a, state.b][i]));
    update();
  }

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
    drawing.redraw();
    const places = WAYS.map(({ id }, i) => `${id} at ${placeOf(walks[i][state.step])}`).join("; ");
    tell(`After ${state.step} ${state.step === 1 ? "step" : "steps"}, ${places}.${overshoot(walks[2], state.step)}`);
  }

  update();
  return stop;
}

/** Adam's path runs past the minimum: where it was nearest, and where it is now. */
function overshoot(adam, step) {
  const best = lowest(adam, step);
  const [then, now] = [best, step].map((t) => loss(adam[t]));
  if (best === 0 || now < 2 * then) return "";
  const past = `Then it ran past the minimum, and now the loss is ${now.toFixed(3)}`;
  return ` Adam's loss was smallest after step ${best}, ${then.toFixed(3)}. ${past}.`;
}

/** A map for each way, side by side. A click on one sets the start. */
function draw(width, walks, state, onstart) {
  const isWide = width >= 560;
  const gap = isWide ? 14 : 8;
  const wide = (width - 2 * gap) / 3;
  const [top, high] = [42, Math.max(150, wide * 0.95)];
  const size = isWide ? 15 : 12;
  const y = (a) => top + ((HIGH - a) / (HIGH - LOW)) * high;
  const maps = WAYS.map(({ id }, i) => {
    const left = i * (wide + gap);
    const middle = left + wide / 2;
    const x = (b) => left + ((b - LOW) / (HIGH - LOW)) * wide;
    const points = walks[i].slice(0, state.step + 1);
    const outside = points.findIndex((point) => point.some((coordinate) => coordinate < LOW || coordinate > HIGH));
    const inside = (outside < 0 ? points : points.slice(0, outside)).map(([a, b]) => [x(b).toFixed(1), y(a).toFixed(1)]);
    const last = points.at(-1);
    const height = loss(last);
    const below = outside < 0 ? [place("a", last[0]), place("b", last[1])] : ["leaves the map", `at step ${outside}`];
    const pick = (event) => {
      const box = event.currentTarget.ownerSVGElement.getBoundingClientRect();
      const to = (share) => Math.round(20 * (LOW + share * (HIGH - LOW))) / 20;
      onstart([to(1 - (event.clientY - box.top - top) / high), to((event.clientX - box.left - left) / wide)]);
    };
    return pickable(
      pick,
      rectangle(middle, top + high / 2, wide, high, "soft", { filled: 0.04 }),
      text(Math.max(middle, 47), 10, id, { bold: true, size }),
      note(middle, 29, `rate ${state[id]}`),
      HEIGHTS.map((height) => contour(height, x, y)),
      note(left + 5, top + 11, "a ↑ steep", "start", 12),
      note(left + wide - 5, top + high - 11, "b → shallow", "end", 12),
      segment([x(0) - 6, y(0)], [x(0) + 6, y(0)], "ink", 2),
      segment([x(0), y(0) - 6], [x(0), y(0) + 6], "ink", 2),
      line(inside, "forward", 1.4),
      inside.map(([px, py]) => circle(px, py, isWide ? 2.2 : 1.6, "forward")),
      outside < 0 && circle(...inside.at(-1), 4.5, "forward"),
      circle(...inside[0], 4.5, "ink"),
      below.map((words, i) => text(middle, top + high + 14 + 17 * i, words, { size: 13 })),
      note(middle, top + high + 49, height < 1e4 ? `loss ${height.toFixed(3)}` : "loss > 10,000"),
    );
  });
  const said = WAYS.map(({ id }, i) => `${id}, rate ${state[id]}: after ${state.step} steps at ${placeOf(walks[i][state.step])}.`);
  return picture(width, top + high + 60, said.join(" "), maps);
}

/** The points of one height: an ellipse, cut where it leaves the map. */
function contour(height, x, y) {
  const [wide, high] = [Math.sqrt(2 * height), Math.sqrt(height / 50)];
  const parts = [[]];
  for (let i = 0; i <= 360; i++) {
    const [a, b] = [high * Math.sin((i * Math.PI) / 180), wide * Math.cos((i * Math.PI) / 180)];
    if (b >= LOW && b <= HIGH) parts.at(-1).push([x(b).toFixed(1), y(a).toFixed(1)]);
    else if (parts.at(-1).length) parts.push([]);
  }
  return parts.filter((part) => part.length > 1).map((part) => line(part, "line", 1));
}

export const ravineWidget = { id: "ravine", title: "Three ways down a ravine", mount };
