/** Lesson 15: three ways down a ravine, from a start and at learning rates that the reader chooses. */
import { button, h, range } from "../dom.js";
import { circle, fitted, line, picture, short, text } from "./parts.js";

const STEPS = 40;
const MILLISECONDS = 120;

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
export function descend(way, rate, start, steps = STEPS, beta1 = 0.9, beta2 = 0.98) {
  let w = start;
  let [m, v] = [[0, 0], [0, 0]];
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

/** Where a coordinate is, in words: explosions are not written out. */
const place = (x) => (Math.abs(x) < 100 ? x.toFixed(2).replace("-", "−").replace(/^−(0\.00)$/, "$1") : x > 0 ? "> 100" : "< −100");

function mount(root, tell) {
  const start = [1, 1];
  const rates = WAYS.map(({ rate }) => rate);
  let step = STEPS;
  let timer = 0;

  const drawing = fitted(draw);
  const stepSlider = range({ label: "Step", min: 0, max: STEPS, value: step, oninput: (x) => (stop(), (step = x), update()) });
  const play = button("Play", () => (timer ? stop() : run()));
  const forward = button("One step", () => (stop(), move((step % STEPS) + 1)));
  const rateSliders = WAYS.map(({ id, max, step, rate }, i) => range({ label: `Learning rate, ${id}`, min: 0, max, step, value: rate, show: (x) => String(x), oninput: (x) => ((rates[i] = x), update()) }));
  const startSliders = ["a (steep)", "b (shallow)"].map((name, i) => range({ label: `Start, ${name}`, min: -1, max: 1.1, step: 0.05, value: start[i], show: (x) => place(x), oninput: (x) => ((start[i] = x), update()) }));
  root.append(drawing, h("div", { class: "controls" }, stepSlider, play, forward), h("div", { class: "controls" }, rateSliders, startSliders));

  function move(to) {
    step = to;
    stepSlider.set(to);
    update();
  }
  function run() {
    if (step === STEPS) move(0);
    play.textContent = "Stop";
    timer = setInterval(() => (step < STEPS ? move(step + 1) : stop()), MILLISECONDS);
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  function update() {
    drawing.redraw();
    const ends = WAYS.map(({ id }, i) => descend(id, rates[i], [...start])[step]);
    const places = ends.map(([a, b], i) => `${WAYS[i].id} is at a = ${place(a)}, b = ${place(b)}`);
    tell(`After ${step} ${step === 1 ? "step" : "steps"}, ${places[0]}; ${places[1]}; ${places[2]}.`);
  }

  function draw(width) {
    const columns = width >= 560 ? 3 : width >= 340 ? 2 : 1;
    const gap = 14;
    const wide = (width - gap * (columns - 1)) / columns;
    const high = columns === 1 ? 200 : Math.max(190, wide * 0.95);
    const [low, top] = [[-1.15, -0.7], [1.2, 1.2]];
    const panels = WAYS.map(({ id }, i) => {
      const [left, above] = [(i % columns) * (wide + gap), Math.floor(i / columns) * (high + 74)];
      const x = (b) => left + ((b - low[1]) / (top[1] - low[1])) * wide;
      const y = (a) => above + 28 + ((top[0] - a) / (top[0] - low[0])) * high;
      const points = descend(id, rates[i], [...start]).slice(0, step + 1);
      const isInside = ([a, b]) => a > low[0] && a < top[0] && b > low[1] && b < top[1];
      const left_ = points.findIndex((point) => !isInside(point));
      const drawn = (left_ < 0 ? points : points.slice(0, left_)).map(([a, b]) => [x(b).toFixed(1), y(a).toFixed(1)]);
      const now = points.at(-1);
      const lines = [0.03, 0.2, 2, 8, 20, 38].map((height) => contour(height, x, y, low, top));
      return [
        text(left + wide / 2, above + 12, `${id}, rate ${short(rates[i]) === "0" ? rates[i] : rates[i]}`, { size: 14, bold: true }),
        lines,
        line([[left, y(low[0])], [left + wide, y(low[0])]], "soft", 1),
        line([[left, y(low[0])], [left, y(top[0])]], "soft", 1),
        text(left + 4, y(top[0]) + 10, "a, steep", { role: "soft", size: 12, anchor: "start" }),
        text(left + wide, y(low[0]) - 10, "b, shallow", { role: "soft", size: 12, anchor: "end" }),
        line([[x(0) - 6, y(0)], [x(0) + 6, y(0)]], "ink", 2),
        line([[x(0), y(0) - 6], [x(0), y(0) + 6]], "ink", 2),
        line(drawn, "forward", 1.4),
        drawn.map(([px, py]) => circle(px, py, 2.2, "forward")),
        circle(x(start[1]), y(start[0]), 4.5, "ink"),
        left_ < 0 && drawn.length ? circle(...drawn.at(-1), 4.5, "forward") : null,
        text(left + wide / 2, y(low[0]) + 16, left_ < 0 ? `a ${place(now[0])}   b ${place(now[1])}` : `leaves the map at step ${left_}`, { size: 13 }),
        text(left + wide / 2, y(low[0]) + 34, `loss ${loss(now) < 1e4 ? short(loss(now)) : "> 10,000"}`, { role: "soft", size: 13 }),
      ];
    });
    const rows = Math.ceil(WAYS.length / columns);
    const label = WAYS.map(({ id }, i) => `${id}, rate ${rates[i]}: after ${step} steps at a = ${place(descend(id, rates[i], [...start])[step][0])}, b = ${place(descend(id, rates[i], [...start])[step][1])}.`).join(" ");
    return picture(width, rows * (high + 74), label, panels);
  }

  update();
  return () => clearInterval(timer);
}

/** The points of one height: an ellipse, cut where it leaves the map. */
function contour(height, x, y, low, top) {
  const [wide, high] = [Math.sqrt(2 * height), Math.sqrt(height / 50)];
  const parts = [[]];
  for (let i = 0; i <= 120; i++) {
    const [a, b] = [high * Math.sin((i * Math.PI) / 60), wide * Math.cos((i * Math.PI) / 60)];
    if (b >= low[1] && b <= top[1]) parts.at(-1).push([x(b).toFixed(1), y(a).toFixed(1)]);
    else if (parts.at(-1).length) parts.push([]);
  }
  return parts.filter((part) => part.length > 1).map((part) => line(part, "line", 1));
}

export const ravineWidget = { id: "ravine", title: "Three ways down a ravine", mount };
