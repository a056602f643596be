/** Lesson 15: three ways down a ravine, from a start and at learning rates that the reader chooses. */
import { button, fitted, h, range } from "../dom.js";
import { circle, line, pickable, picture, rectangle, segment, text } from "./parts.js";

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
  let w = start;
  let [m, v] = [
    [0, 0],
    [0, 0],
  ];
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
  if (Math.abs(x) < 100) return `${name} = ${rounded(x)}`;
  return x > 0 ? `${name} > 100` : `${name} < −100`;
}

/** Two decimals, a true minus sign, and no −0.00. */
function rounded(x) {
  return x
    .toFixed(2)
    .replace("-", "−")
    .replace(/^−(0\.00)$/, "$1");
}

/** The step of a walk at which its loss was smallest, among the first `until`. */
export function lowest(points, until) {
  const losses = points.slice(0, until + 1).map(loss);
  return losses.indexOf(Math.min(...losses));
}

function mount(root, tell) {
  let start = [1, 1];
  const rates = WAYS.map(({ rate }) => rate);
  let step = STEPS;
  let walks;
  let timer = 0;

  const drawing = fitted((width) => draw(width, { walks, rates, step, onstart: setStart }));
  const stepSlider = range({ label: "Step", min: 0, max: STEPS, value: step, oninput: (x) => (stop(), move(x)) });
  const play = button("Play", () => (timer ? stop() : run()));
  const next = button("One step", () => (stop(), move(step < STEPS ? step + 1 : 1)));
  const rateSliders = WAYS.map(({ id, rate, step, max }, i) =>
    range({ label: id, min: step, max, step, value: rate, oninput: (x) => ((rates[i] = x), update()) }),
  );
  const startSliders = ["a", "b"].map((name, i) =>
    range({
      label: name,
      min: -1.1,
      max: 1.1,
      step: 0.05,
      value: start[i],
      show: (x) => rounded(Number(x)),
      oninput: (x) => ((start[i] = x), update()),
    }),
  );
  root.append(
    drawing,
    h("div", { class: "controls" }, stepSlider, play, next),
    group("Learning rate of", rateSliders),
    group("Start at", startSliders),
  );

  function group(label, sliders) {
    return h(
      "div",
      { class: "controls", role: "group", "aria-label": label },
      h("span", { class: "label" }, label),
      sliders,
    );
  }

  function setStart(point) {
    start = point.map((x) => Math.max(-1.1, Math.min(1.1, x)));
    startSliders.forEach((slider, i) => slider.set(start[i]));
    update();
  }

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
    walks = WAYS.map(({ id }, i) => descend(id, rates[i], [...start]));
    drawing.redraw();
    const places = WAYS.map(
      ({ id }, i) => `${id} at ${place("a", walks[i][step][0])}, ${place("b", walks[i][step][1])}`,
    );
    tell(`After ${step} ${step === 1 ? "step" : "steps"}, ${places.join("; ")}.${overshoot()}`);
  }

  /** Adam's path runs past the minimum: where it was nearest, and where it is now. */
  function overshoot() {
    const adam = walks[2];
    const best = lowest(adam, step);
    const [then, now] = [best, step].map((t) => loss(adam[t]));
    if (best === 0 || now < 2 * then) return "";
    return ` Adam's loss was smallest after step ${best}, ${then.toFixed(3)}. Then it ran past the minimum, and now the loss is ${now.toFixed(3)}.`;
  }

  update();
  return () => clearInterval(timer);
}

/** A map for each way. A click on one sets the start. */
function draw(width, { walks, rates, step, onstart }) {
  const columns = width >= 560 ? 3 : width >= 340 ? 2 : 1;
  const gap = 14;
  const wide = (width - gap * (columns - 1)) / columns;
  const high = columns === 1 ? 190 : Math.max(180, wide * 0.95);
  const tall = high + 94;
  const maps = WAYS.map(({ id }, i) => {
    const [left, above] = [(i % columns) * (wide + gap), Math.floor(i / columns) * tall];
    const x = (b) => left + ((b - LOW) / (HIGH - LOW)) * wide;
    const y = (a) => above + 42 + ((HIGH - a) / (HIGH - LOW)) * high;
    const points = walks[i].slice(0, step + 1);
    const outside = points.findIndex((point) => point.some((coordinate) => coordinate < LOW || coordinate > HIGH));
    const inside = (outside < 0 ? points : points.slice(0, outside)).map(([a, b]) => [
      x(b).toFixed(1),
      y(a).toFixed(1),
    ]);
    const [a, b] = points.at(-1);
    const pick = (event) => {
      const { top, left: corner } = event.currentTarget.ownerSVGElement.getBoundingClientRect();
      const to = (share) => Math.round(20 * (LOW + share * (HIGH - LOW))) / 20;
      onstart([to(1 - (event.clientY - top - y(HIGH)) / high), to((event.clientX - corner - left) / wide)]);
    };
    return pickable(
      pick,
      rectangle(left + wide / 2, y(HIGH) + high / 2, wide, high, "soft", { filled: 0.04 }),
      text(left + wide / 2, above + 10, id, { bold: true }),
      text(left + wide / 2, above + 29, `rate ${rates[i]}`, { role: "soft", size: 13 }),
      HEIGHTS.map((height) => contour(height, x, y)),
      text(left + 5, y(HIGH) + 11, "a ↑ steep", { role: "soft", size: 12, anchor: "start" }),
      text(left + wide - 5, y(LOW) - 11, "b → shallow", { role: "soft", size: 12, anchor: "end" }),
      segment([x(0) - 6, y(0)], [x(0) + 6, y(0)], "ink", 2),
      segment([x(0), y(0) - 6], [x(0), y(0) + 6], "ink", 2),
      line(inside, "forward", 1.4),
      inside.map(([px, py]) => circle(px, py, 2.2, "forward")),
      outside < 0 ? circle(...inside.at(-1), 4.5, "forward") : null,
      circle(...inside[0], 4.5, "ink"),
      text(
        left + wide / 2,
        y(LOW) + 14,
        outside < 0 ? `${place("a", a)}, ${place("b", b)}` : `leaves the map at step ${outside}`,
        { size: 13 },
      ),
      text(left + wide / 2, y(LOW) + 32, loss([a, b]) < 1e4 ? `loss ${loss([a, b]).toFixed(3)}` : "loss above 10,000", {
        role: "soft",
        size: 13,
      }),
    );
  });
  const label = WAYS.map(
    ({ id }, i) =>
      `${id}, rate ${rates[i]}: after ${step} steps at ${place("a", walks[i][step][0])}, ${place("b", walks[i][step][1])}.`,
  ).join(" ");
  return picture(width, Math.ceil(WAYS.length / columns) * tall, label, maps);
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
