/** Training replay: one sentence at several steps of the training, with the loss, the learning rate and one head's map. */

import { button, figure, fitted, h, heatmap, number, percent, plot, range, say } from "../dom.js";
import { matrix } from "../engine/tensor.js";
import { decimal, wordOf } from "./sentence.js";
import { markChanges } from "./sentence.js";

/** The last entry [step, …] of a log that is not after `step`; the first one where all are. */
export function entryAt(log, step) {
  return log.findLast((entry) => entry[0] <= step) ?? log[0];
}

/** An untrained model may write until it is stopped: its first 60 characters are enough. */
function shortened(text) {
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** The largest weight of a row, on average over the rows. */
function sharpest(weights) {
  return weights.reduce((sum, line) => sum + Math.max(...line), 0) / weights.length;
}

function mount(root, page) {
  const { data } = page;
  const { replay, log } = data;
  const language = data.languages.target;
  const { snapshots } = replay;
  const last = snapshots[snapshots.length - 1];
  let at = Math.min(snapshots.length - 1, Math.max(0, Math.round(Number(page.parameters.get("snapshot") ?? snapshots.length - 1)) || 0));
  let timer = 0;

  const slider = range({
    label: "Snapshot",
    min: 0,
    max: snapshots.length - 1,
    value: at,
    show: (i) => `step ${snapshots[i].step}`,
    oninput: (i) => (stop(), to(i)),
  });
  const play = button(
    "Play the training",
    () => {
      if (timer) return stop();
      if (at === snapshots.length - 1) to(0);
      play.textContent = "Pause";
      timer = setInterval(() => (to(at + 1), at === snapshots.length - 1 && stop()), 1100);
    },
    { class: "button main" },
  );
  const lines = snapshots.map((snapshot, i) => {
    const marked = markChanges(shortened(snapshot.translation), last.translation).map(([word, wrong], j) => [
      j ? " " : "",
      wrong ? h("span", { class: "wrong" }, word) : word,
    ]);
    return h(
      "tr",
      {},
      h(
        "td",
        {},
        button(`step ${snapshot.step}`, () => (stop(), to(i))),
      ),
      h("td", { lang: language }, snapshot.translation ? marked : "(nothing)"),
    );
  });
  const measured = snapshots.filter(({ loss }) => loss !== null).map(({ step, loss }) => [step, loss]);
  const validation = { name: "validation loss", role: "value", dashed: true, points: log?.validations.length ? log.validations : measured };
  const training = { name: "training loss", role: "forward", points: log?.steps.map(([step, loss]) => [step, loss]) ?? [] };
  const rates = { name: "learning rate", role: "forward", points: log?.steps.map(([step, , rate]) => [step, rate]) ?? [] };
  /** Curves over the steps, with a line at the snapshot that is shown; null if nothing was logged. */
  const chart = (label, unit, curves) => {
    const series = curves.filter(({ points }) => points.length);
    const draw = (width) =>
      plot({ label, width, x: { label: "step", from: 0 }, y: { label: unit, from: 0 }, series, marker: snapshots[at].step });
    return series.length ? fitted(draw) : null;
  };
  const lossChart = chart("Loss over the steps of training", "loss in nats per piece", [training, validation]);
  const rateChart = chart("Learning rate over the steps of training", "learning rate", [rates]);
  const smoothing =
    "The training loss includes label smoothing (lesson 14) and dropout, where the run uses them; the validation loss includes neither, so it can be lower.";
  const about = h("p", { class: "note" }, smoothing);
  const map = h("div", {});
  const [kind, layer, head] = (replay.attention ?? "").split(".");
  const names = { cross: "cross-attention", encoder: "encoder", decoder: "decoder" };
  const mapTitle = `What head ${Number(head) + 1} of the ${names[kind]} of layer ${Number(layer) + 1} looks at`;
  if (!replay.same_weights)
    root.append(
      h(
        "p",
        { class: "note" },
        "This is a second training with the same settings as that of the model in the other views. It ended with other weights, and its heads have other jobs. The sentence can't be changed: it was recorded while this model was trained.",
      ),
    );
  const view = figure(
    replay.caption,
    h("div", { class: "controls follows" }, play, slider),
    h(
      "dl",
      { class: "given" },
      h("dt", {}, "The sentence"),
      h("dd", { lang: data.languages.source }, replay.sentence),
      replay.reference ? [h("dt", {}, "Reference translation"), h("dd", { lang: language }, replay.reference)] : null,
    ),
    h(
      "div",
      { class: "run" },
      h(
        "div",
        {},
        h("table", { class: "snapshots" }, h("caption", { class: "unseen" }, "The translation at each snapshot"), h("tbody", {}, lines)),
        h("p", { class: "note" }, "Words with a wavy line differ from the translation at the end of training."),
      ),
      h(
        "div",
        {},
        map,
        h(
          "p",
          { class: "note" },
          `${mapTitle}${replay.same_weights ? "" : ", in this second training"}. A row is a piece of the translation, a column a piece that it looks at; each row adds up to 1.`,
        ),
      ),
    ),
    h(
      "div",
      { class: "halves" },
      lossChart ? h("div", {}, h("h2", {}, "Loss"), lossChart, training.points.length ? about : null) : null,
      rateChart ? h("div", {}, h("h2", {}, "Learning rate"), rateChart) : null,
    ),
  );
  root.append(view);

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play the training";
  }

  function to(next) {
    at = Math.min(snapshots.length - 1, Math.max(0, next));
    const { step, loss, translation, weights, rows, columns } = snapshots[at];
    slider.set(at);
    lines.forEach((line, i) => (i === at ? line.setAttribute("aria-current", "step") : line.removeAttribute("aria-current")));
    lossChart?.redraw();
    rateChart?.redraw();
    const table = matrix(weights.length, weights[0].length, Float32Array.from(weights.flat()));
    map.replaceChildren(
      heatmap({
        matrix: table,
        rowLabels: rows.map(wordOf),
        columnLabels: columns.map(wordOf),
        label: `${mapTitle}, at step ${step}`,
        role: "weight",
        largest: 1,
        show: (weight) => String(Math.round(1000 * weight) / 1000), // the record has three decimals
      }),
    );
    const changes = markChanges(translation, last.translation);
    const wrong = changes.filter(([, changed]) => changed).length;
    const parts = [
      log?.steps.length ? `the learning rate is ${decimal(entryAt(log.steps, step)[2], 3, 3)}` : null,
      loss === null ? null : `the validation loss is ${number(loss)} nats`,
    ];
    parts.push(
      at === snapshots.length - 1
        ? "the translation is the last one"
        : `${wrong} of ${changes.length} words differ from the last translation`,
    );
    say(
      view.sentence,
      `At step ${step} ${parts.filter(Boolean).join(", ")}. On average the head gives ${percent(sharpest(weights))} of its attention to a single piece.`,
    );
    page.go("replay", { snapshot: at });
  }

  to(at);
  return stop;
}

export const replayView = {
  id: "replay",
  isPossible: (data) => Boolean(data.replay),
  title: "Training",
  question: "What does the model learn, and when?",
  lead: "The same sentence, translated by a model at several moments of its training. Move through the run, and see how its words change.",
  mount,
};
