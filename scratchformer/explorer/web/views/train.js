/** Train: a small Transformer with random weights learns 64 words in the page, while the reader watches and meddles. */

import { button, choice, figure, fitted, h, number, percent, plot, range, say, words } from "../dom.js";
import { LAST_STEP, RATE, WARMUP, serveTraining } from "../engine/trainer.js";
import { rightWithoutVerb, splitPairs, vocabulary } from "../engine/world.js";

const RATES = [0.0005, 0.001, 0.002, 0.004, RATE, 0.01, 0.02, 0.05];
const PARTS = { mask: "no mask", scale: "no √d_k", positions: "no positions", warmup: "no warm-up" };
const PRONOUNS = ["er", "sie", "es"];
const [DRAW_MS, CALM_MS, SAY_MS] = [120, 500, 5000]; // between two drawings; with reduced motion; between two spoken sentences
const MOST_WORDS = 20;

// What is said --------------------------------------------------------------------------------------------------------

/** A learning rate with two digits that count, without a power of ten. */
export function rateText(rate) {
  return String(Number(rate.toFixed(1 - Math.floor(Math.log10(rate)))));
}

/** Words as a sentence: with a capital, a comma before "weil" and a full stop, which the model neither reads nor writes. */
export function asSentence(list) {
  if (!list.length) return "(nothing)";
  const text = list.join(" ").replaceAll(" weil", ", weil");
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

/** The words of a typed sentence, and those among them that are not in the vocabulary. */
export function readWords(text, known) {
  const typed = text.match(/[\p{L}-]+/gu) ?? [];
  const list = typed.map((word) => [word, word.toLowerCase()].find((spelling) => known.includes(spelling)) ?? word);
  return { list, unknown: list.filter((word) => !known.includes(word)) };
}

/**
 * A run in a sentence or two. `scores` has a test of the held-out sentences every few steps: { step, sentences, others,
 * pronouns }, the numbers of right sentences, of sentences that are right but for the pronoun, and of right pronouns.
 */
export function saidOf({ step, loss, scores, without = [] }, n = 30) {
  const last = scores.at(-1);
  if (!last) return "The model is being made.";
  if (step === 0) return `Before the first step all weights are random, and it writes ${last.sentences} of ${n} held-out sentences right.`;
  if (!Number.isFinite(loss)) return `At step ${step} the loss is not a number any more: the learning rate was too large. Start again.`;
  const now = `At step ${step} the loss is ${number(loss, 2)} nats a word.`;
  const tested = `${step === last.step ? "It writes" : `At step ${last.step} it wrote`} ${last.sentences} of ${n} held-out sentences right`;
  const firstOf = (name) => scores.find((score) => score[name] === n)?.step;
  const [others, all] = [firstOf("others"), firstOf("sentences")];
  const wrong = n - last.sentences;
  const onlyPronoun = last.others - last.sentences;
  let why = ".";
  if (without.includes("mask") && loss < 0.1 && last.sentences <= n / 10)
    why = ". In training it sees the word that it has to predict, and copies it; when it writes, that word is not there yet.";
  else if (all !== undefined && others < all)
    why = `. All other words were right at step ${others}, the pronouns only at step ${all}: they were learned last.`;
  else if (onlyPronoun > 0) why = `. In ${onlyPronoun === wrong ? `all ${wrong}` : `${onlyPronoun} of the ${wrong}`} others, the pronoun is the only mistake.`;
  return `${now} ${tested}${why}${step >= LAST_STEP ? ` Training ends at step ${LAST_STEP}.` : ""}`;
}

// Where it trains -----------------------------------------------------------------------------------------------------

/**
 * Train in a worker that runs this page's own script, or on the page where there are no workers.
 *
 * @returns {{ send: (message: object) => void, stop: () => void }}
 */
function startTraining(message, onreport) {
  let worker = null;
  let scope = null;
  const onPage = () => {
    worker = null;
    scope = { postMessage: (report) => scope && onreport(report) };
    serveTraining(scope);
    scope.onmessage({ data: message });
  };
  const script = document.querySelector("script:not([type])")?.textContent;
  try {
    const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    worker = new Worker(address);
    worker.onerror = onPage;
    worker.onmessage = ({ data }) => {
      URL.revokeObjectURL(address);
      onreport(data);
    };
    worker.postMessage(message);
  } catch {
    setTimeout(onPage);
  }
  return {
    send: (data) => (worker ? worker.postMessage(data) : scope?.onmessage({ data })),
    stop() {
      worker?.terminate();
      scope?.onmessage({ data: { run: false } });
      scope = null;
    },
  };
}

// The view ------------------------------------------------------------------------------------------------------------

function mount(root, page) {
  const { heldOut, training } = splitPairs();
  const first = heldOut.find(({ adjective }) => adjective === "old").source; // an adjective that needs the verb
  const known = vocabulary().slice(4);
  const shortcut = rightWithoutVerb();
  const asked = page.parameters;
  let broken = asked.get("break") in PARTS ? asked.get("break") : "";
  let rate = RATES.includes(Number(asked.get("rate"))) ? Number(asked.get("rate")) : RATE;
  let racing = asked.has("race");
  let sentence = readWords(asked.get("s") ?? "", known);
  sentence = sentence.list.length && !sentence.unknown.length ? sentence.list : first;
  let seed = 1;
  let running = false;
  let runs = [];
  let due = 0;
  let spoken = -Infinity;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  // Controls
  const play = button("Train", () => setRunning(!running), { class: "button main large" });
  const one = button("One step", () => (setRunning(false), send({ step: true })));
  const again = button("Start again", () => (seed++, begin()));
  const rateSlider = range({
    label: "Learning rate, at most",
    min: 0,
    max: RATES.length - 1,
    value: RATES.indexOf(rate),
    show: (i) => String(RATES[i]),
    oninput: (i) => {
      rate = RATES[i];
      runs[0].send({ rate });
      remember();
    },
  });
  const breaking = choice({
    label: "Break something",
    options: [["", "nothing is broken"], ...Object.entries(PARTS)],
    value: broken,
    onchange: (part) => ((broken = part), begin(), remember()),
  });
  const race = button("Race against a whole model", () => ((racing = !racing), begin(), remember()));

  // What is shown
  const now = h("p", { class: "note wide" });
  const reading = h("div", { class: "train-reading" });
  const scoreList = h("ul", { class: "train-scores" });
  const chart = fitted((width) =>
    plot({
      label: "The loss of each step, on a logarithmic scale",
      width,
      x: { label: "step", from: 0, to: Math.max(400, ...runs.map(({ step }) => step)) },
      y: { label: "loss in nats a word", from: -3, to: 1, show: (power) => String(10 ** power) },
      series: runs.map(({ name, points }, i) => ({ name, role: i ? "value" : "forward", dashed: i > 0, points })),
    }),
  );
  const source = `a Transformer in this page, trained on ${training.length} sentence pairs of ${known.length + 4} words`;
  const view = figure(
    source,
    h(
      "div",
      { class: "train" },
      reading,
      h("div", {}, chart, scoreList, h("p", { class: "note" }, `Dashed: who knows nouns and adjectives and ignores the verb gets ${shortcut} pronouns right.`)),
    ),
  );
  const field = h("input", { class: "field", type: "text", lang: "en", autocomplete: "off", value: sentence.join(" ") });
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const examples = choice({
    label: "or a held-out sentence",
    options: [["", "choose a sentence"], ...heldOut.map(({ source }) => [source.join(" "), asSentence(source)])],
    value: "",
    onchange: (text) => (examples.set(""), text && submit(text)),
  });
  const form = h(
    "form",
    { class: "sentence-form", onsubmit: (event) => (event.preventDefault(), submit(field.value)) },
    h("label", { class: "sentence-field" }, h("span", { class: "label" }, "A sentence of these words, at any step"), field),
    h("button", { type: "submit", class: "button" }, "Translate"),
    examples,
    trouble,
  );
  root.append(
    h("div", { class: "controls" }, play, one, again, rateSlider, breaking, race),
    now,
    view,
    form,
    h("details", {}, h("summary", {}, `The ${known.length} words`), h("p", {}, known.join(" "))),
    h(
      "p",
      { class: "note" },
      "What “it” stands for takes the verb and the adjective: an animal can be too small, old or light to pull or push a thing, but whoever does not enter or like a thing finds the thing too small, old or light. Only “tired” and “heavy” need no verb.",
    ),
  );

  function submit(text) {
    const { list, unknown } = readWords(text, known);
    let reason = "";
    if (!list.length) reason = "Type a sentence first.";
    else if (unknown.length) reason = `It does not know ${unknown.map((word) => `“${word}”`).join(", ")}; its words are listed below.`;
    else if (list.length > MOST_WORDS) reason = `The sentence has ${list.length} words, and at most ${MOST_WORDS} are possible.`;
    trouble.hidden = !reason;
    trouble.textContent = reason;
    if (reason) return;
    sentence = list;
    field.value = list.join(" ");
    send({ sentence });
    remember();
  }

  function remember() {
    const s = sentence === first ? null : sentence.join(" ");
    page.go("train", { break: broken || null, rate: rate === RATE ? null : rate, race: racing ? 1 : null, s });
  }

  function send(message) {
    for (const run of runs) run.send(message);
  }

  function setRunning(on) {
    running = on;
    play.textContent = on ? "Pause" : "Train";
    send({ run: on });
  }

  /** New random weights, in each run the same. */
  function begin() {
    for (const run of runs) run.stop();
    const whole = { seed, rate: RATE, without: [] };
    const mine = { seed, rate, without: broken ? [broken] : [] };
    if (racing && !broken && rate === RATE) whole.seed = seed + 1000;
    const named = [[PARTS[broken] ?? "this model", mine], ...(racing ? [["whole", whole]] : [])];
    runs = named.map(([name, settings]) => {
      const run = { name, without: settings.without, step: 0, points: [], scores: [], losses: [], reading: null };
      return Object.assign(run, startTraining({ start: settings, sentence }, (report) => take(run, report)));
    });
    race.setAttribute("aria-pressed", String(racing));
    spoken = -Infinity;
    setRunning(false);
  }

  function take(run, { losses, score, ...report }) {
    if (!runs.includes(run)) return;
    Object.assign(run, report);
    run.losses.push(...losses.map(([, loss]) => loss));
    run.points.push(...losses.filter(([, loss]) => loss > 0).map(([step, loss]) => [step, Math.log10(loss)]));
    if (score) run.scores.push({ step: report.step, ...score });
    if (running && runs.every(({ step, losses: all }) => step >= LAST_STEP || (all.length && !Number.isFinite(all.at(-1))))) setRunning(false);
    if (!due) due = setTimeout(draw, running ? (calm ? CALM_MS : DRAW_MS) : 0);
  }

  function draw() {
    due = 0;
    const [run] = runs;
    if (!run.reading || !run.scores.length) return;
    const recent = run.losses.slice(-10);
    const text = saidOf({ ...run, loss: recent.reduce((a, b) => a + b, 0) / recent.length });
    if (running && performance.now() - spoken < SAY_MS) view.sentence.replaceChildren(text);
    else {
      say(view.sentence, text);
      spoken = performance.now();
    }
    const shape = run.without.includes("warmup") ? "without warm-up it begins highest" : `it grows to ${rate} in ${WARMUP} steps, then falls`;
    now.textContent = `Learning rate of the next step: ${rateText(run.rate)}; ${shape}.`;
    reading.replaceChildren(...readingOf(run.reading));
    scoreList.replaceChildren(...runs.flatMap(scoresOf));
    chart.redraw();
  }

  /** The sentence with its attention, what should be written and what is, and the three pronouns. */
  function readingOf({ source, target, written, weights, chances, pronoun }) {
    const chips = words(source, { label: "The sentence" });
    chips.classList.add("train-looked");
    if (weights)
      [...chips.children].forEach((chip, i) => {
        chip.style.setProperty("--shade", weights[i].toFixed(3));
        chip.append(h("span", { class: "label" }, percent(weights[i])));
      });
    const isNew = heldOut.some((pair) => pair.source.join(" ") === source.join(" "));
    const marked = written.map((word, i) => [i ? " " : "", target && word !== target[i] ? h("span", { class: "wrong" }, word) : word]);
    return [
      h("p", { class: "label" }, isNew ? "A held-out sentence, which no step trains on" : "Your sentence"),
      chips,
      weights ? h("p", { class: "note" }, "Shaded: where the heads look for the word after ", h("em", { lang: "de" }, "weil"), ", on average.") : null,
      h("p", { class: "label" }, "It writes"),
      h("p", { class: "train-written", lang: "de" }, written.length ? marked : "(nothing)"),
      target ? h("p", { class: "note" }, "Right: ", h("span", { lang: "de" }, asSentence(target))) : null,
      chances ? h("p", { class: "label" }, "The word after ", h("em", { lang: "de" }, "weil"), target ? ", with the right words before it" : "") : null,
      chances
        ? h(
            "ul",
            { class: "bars" },
            PRONOUNS.map((word, i) => {
              const bar = h("span", { class: "bar" });
              bar.style.setProperty("--share", chances[i].toFixed(4));
              return h("li", { class: word === pronoun ? "right" : null }, h("span", {}, "p(", h("span", { lang: "de" }, word), ")", word === pronoun ? ", right" : ""), bar, percent(chances[i]));
            }),
          )
        : null,
    ].filter(Boolean);
  }

  /** Right pronouns and right sentences of a run, as bars. */
  function scoresOf({ name, scores }, i) {
    const score = scores.at(-1) ?? { pronouns: 0, sentences: 0 };
    return ["pronouns", "sentences"].map((what) => {
      const bar = h("span", { class: `bar${what === "pronouns" ? " with-mark" : ""}${i ? " rival" : ""}` });
      bar.style.setProperty("--share", (score[what] / heldOut.length).toFixed(4));
      bar.style.setProperty("--mark", (shortcut / heldOut.length).toFixed(4));
      return h("li", {}, h("span", {}, `Right ${what}${racing ? `, ${name}` : ""}`), bar, `${score[what]} of ${heldOut.length}`);
    });
  }

  begin();
  return () => {
    clearTimeout(due);
    for (const run of runs) run.stop();
    runs = [];
  };
}

export const trainView = {
  id: "train",
  ownModel: true, // not that of the page
  title: "Train",
  question: "How does a Transformer learn?",
  lead: "Its 31,360 weights are random, and it writes nonsense. Train it here, in less than a minute, and watch a sentence that it never sees come right.",
  mount,
};
