/** Schedule: the learning rate of the paper's equation 3, with the run's own beside it. */

import { button, choice, figure, fitted, h, plot, range, say } from "../dom.js";
import { decimal, lessonLink } from "./sentence.js";

/** Equation 3: factor · d_model^−0.5 · min(step^−0.5, step · warmup^−1.5), for steps from 1. */
export function learningRate(step, { d_model: width, warmup, lr_factor: factor = 1 }) {
  return factor * width ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);
}

function curve(schedule, until) {
  const steps = [...Array.from({ length: 240 }, (_, i) => 1 + (i * (until - 1)) / 239), Math.min(schedule.warmup, until)].sort(
    (a, b) => a - b,
  );
  return steps.map((step) => [step, learningRate(step, schedule)]);
}

function mount(root, page) {
  const { data } = page;
  const own = data.schedule;
  const asked = (name, fallback) => Math.round(Number(page.parameters.get(name))) || fallback;
  const mine = {
    ...own,
    warmup: Math.min(10000, Math.max(10, asked("warmup", own.warmup))),
    d_model: Math.min(4096, Math.max(8, asked("d_model", own.d_model))),
  };
  const logged = data.log?.steps.map(([step, , rate]) => [step, rate]) ?? [];
  const widths = [...new Set([32, 64, 128, 256, 512, 1024, own.d_model, mine.d_model])].sort((a, b) => a - b);
  const stops = [
    ...new Set([10, 20, 50, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 10000, own.warmup, mine.warmup]),
  ].sort((a, b) => a - b);
  const warmup = range({
    label: "Warm-up",
    min: 0,
    max: stops.length - 1,
    value: stops.indexOf(mine.warmup),
    show: (i) => String(stops[i]),
    unit: "steps",
    oninput: (i) => ((mine.warmup = stops[i]), draw()),
  });
  const width = choice({
    label: "d_model (numbers per vector)",
    options: widths.map((value) => [value, String(value)]),
    value: mine.d_model,
    onchange: (value) => ((mine.d_model = Number(value)), draw()),
  });
  const use = (schedule) => () => {
    Object.assign(mine, schedule);
    warmup.set(stops.indexOf(mine.warmup));
    width.set(mine.d_model);
    draw();
  };
  const chart = fitted((space) => {
    const until = Math.max(own.steps, 4 * mine.warmup);
    const series = [{ name: isOwn() ? "this run's schedule" : "your schedule", role: "forward", points: curve(mine, until) }];
    if (!isOwn()) series.push({ name: "this run's schedule", role: "value", dashed: true, points: curve(own, until) });
    const where = data.replay?.same_weights === false ? "a second training" : "training";
    if (logged.length) series.push({ name: `logged in ${where}`, role: "ink", dots: true, points: logged });
    return plot({
      label: "Learning rate over the steps of training",
      width: space,
      height: 320,
      x: { label: "step", from: 0, to: until },
      y: { label: "learning rate", from: 0 },
      series,
      marker: mine.warmup,
      dot: [mine.warmup, learningRate(mine.warmup, mine)],
    });
  });
  const view = figure(
    data.caption,
    h(
      "div",
      { class: "controls" },
      warmup,
      width,
      button("This run's own", use({ warmup: own.warmup, d_model: own.d_model, lr_factor: own.lr_factor })),
      button("The paper's (512, 4000 steps)", use({ warmup: 4000, d_model: 512, lr_factor: 1 })),
    ),
    chart,
  );
  root.append(view);
  root.append(
    h(
      "p",
      { class: "note" },
      "Equation 3 of the paper: the rate grows in proportion to the step until warm-up ends, then it falls as one over the square root of the step. A wider model has a smaller rate. The upright line marks the end of warm-up, the dot the peak. The chart shows the rate only: what it does to the loss, and why one warms up at all, is measured in ",
      lessonLink(page, "15_adam_and_warmup"),
      ".",
    ),
  );
  if (!logged.length)
    root.append(h("p", { class: "note" }, "This run comes without a log of its training, so the chart shows formulas only."));

  function isOwn() {
    return mine.warmup === own.warmup && mine.d_model === own.d_model && mine.lr_factor === own.lr_factor;
  }

  function draw() {
    chart.redraw();
    const peak = learningRate(mine.warmup, mine);
    const later = 4 * mine.warmup;
    say(
      view.sentence,
      `The learning rate rises to its peak of ${decimal(peak, 3, 3)} at step ${mine.warmup}; at step ${later}, four times as far, it is half as large.` +
        (isOwn()
          ? " This is the schedule of the run."
          : ` This run's own peak is ${decimal(learningRate(own.warmup, own), 3, 3)} at step ${own.warmup}.`),
    );
    page.go("schedule", { warmup: mine.warmup, d_model: mine.d_model });
  }
  draw();
}

export const scheduleView = {
  id: "schedule",
  title: "Schedule",
  question: "How large a step does the optimizer take?",
  lead: "The learning rate is not constant: it warms up from almost nothing, then falls slowly. Change the length of the warm-up and the width of the model.",
  mount,
};
