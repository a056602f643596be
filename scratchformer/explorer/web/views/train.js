/** Train: a small Transformer with random weights learns 60 words in the page, while the reader watches and meddles. */

import { button, choice, figure, fitted, h, percent, plot, range, say, table } from "../dom.js";
import { KEPT, LAST_STEP, RATE, WARMUP, serveTraining } from "../engine/trainer.js";
import { PRONOUNS, englishOf, nounsOf, pairOf, rightWithoutVerb, splitPairs, vocabulary } from "../engine/world.js";
import { barOf, lessonLink } from "./sentence.js";

const RATES = [0.0005, 0.001, 0.002, 0.004, RATE, 0.01, 0.02, 0.05];
/** What can be missing: its name, the rate then, what was measured with seeds 1, 2 and 3, tested every 25 steps, and its lesson. */
const PARTS = {
  "": ["Nothing is broken", RATE],
  mask: ["No mask", RATE, "no sentence was right at step 500", "06_masks"],
  scale: ["No √d_k", RATE, "all 30 sentences were right first at step 325, 375 and 300; with √d_k at step 175, 225 and 225", "05_scaling"],
  positions: ["No positions", RATE, "17, 16 and 14 sentences were right at step 500", "09_positions"],
  warmup: ["No warm-up", 0.02, "5, 7 and 6 sentences were right at step 500; with warm-up 30, 29 and 26", "15_adam_and_warmup"],
};
const RULE =
  "with pull or push, “it” is the first noun (too old to pull); with enter or like, the second (too old to be liked). But “tired” always speaks of the first, and “heavy” of the second.";
const [VERBS, ADJECTIVES] = [["pull", "push", "enter", "like"], ["small", "old", "light", "heavy", "tired"]];
const [DRAW_MS, CALM_MS, SAY_MS] = [120, 500, 5000]; // between two drawings; with reduced motion; between two spoken sentences
const MOST_WORDS = 20;
const PLACES = ["article", "noun", "verb", "article", "noun", "nicht", "weil", "pronoun", "zu", "adjective", "war"]; // of each translation
const { heldOut, training } = splitPairs();
const N = heldOut.length;
const known = vocabulary().slice(4);
const shortcut = rightWithoutVerb();
/** The sentence shown first: it needs the verb and the order, and "sie", which the models without a mask do not predict. */
const first = heldOut.find(({ adjective, isThing, pronoun }) => adjective === "old" && !isThing && pronoun === "sie").source;

/** A positive number with two digits that count, without a power of ten. */
export function plain(x) {
  return String(Number(x.toFixed(Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(x)))))));
}

/** Words as in a sentence, each after what separates it from the last one; the model neither reads nor writes punctuation. */
function spelled(list) {
  return list.map((word, i) => (i ? [word === "weil" ? ", " : " ", word] : ["", word[0].toUpperCase() + word.slice(1)]));
}

export function asSentence(list) {
  return list.length ? `${spelled(list).flat().join("")}.` : "(nothing)";
}

/** The words of a typed sentence, and those among them that are not in the vocabulary. */
export function readWords(text) {
  const typed = text.match(/[\p{L}-]+/gu) ?? [];
  const list = typed.map((word) => [word, word.toLowerCase()].find((spelling) => known.includes(spelling)) ?? word);
  return { list, unknown: list.filter((word) => !known.includes(word)) };
}

/**
 * A run in a sentence or two. `scores` has a test of the held-out sentences every few steps: its step, and what
 * Trainer.test() counts.
 */
export function saidOf({ step, loss, scores, without = [] }) {
  const last = scores.at(-1);
  if (!last) return "The model is being made.";
  if (step === 0) return `Before the first step nearly all weights are random, and it writes ${last.sentences} of ${N} held-out sentences right.`;
  if (!Number.isFinite(loss)) return `At step ${step} the loss is not a number any more: the learning rate was too large. Start again.`;
  const [is, are] = step === last.step ? ["is", "are"] : ["was", "were"];
  const tested = `${are === "are" ? ", and" : `; at step ${last.step},`} ${last.sentences} of ${N} held-out sentences ${are} right.`;
  const wrong = N - last.sentences;
  let why = "";
  if (without.includes("mask") && loss < 0.1 && last.sentences <= N / 10)
    why = " In training it sees the word that it has to predict; when it writes, that word is not there yet.";
  else if (wrong) {
    const pronoun = [last.others - last.sentences, `the pronoun ${is} the only mistake`];
    const more = N - last.others;
    const other = last.exchanged > more / 2 ? [last.exchanged, `the two nouns ${are} exchanged`] : [more, `a word other than the pronoun ${is} wrong`];
    const [count, mistake] = other[0] > pronoun[0] ? other : pronoun;
    why = ` In ${wrong === 1 ? "the wrong one" : `${count === wrong ? "all" : `${count} of the`} ${wrong} wrong ones`}, ${mistake}.`;
  } else {
    const [others, all] = ["others", "sentences"].map((name) => scores.find((score) => score[name] === N).step);
    if (others < all) why = ` The pronouns came last, at step ${all}; all else was right at step ${others}.`;
  }
  return `At step ${step} the loss is ${plain(loss)} nats a word${tested}${why}${step >= LAST_STEP ? ` Training ends at step ${LAST_STEP}.` : ""}`;
}

/** The points of a run's curve: step, and the power of ten that is its loss. */
const powersOf = ({ losses }) => losses.map((loss, i) => [i + 1, Math.log10(loss)]).filter(([, power]) => Number.isFinite(power));

/** Train in a worker that runs this page's own script, or on the page where there are no workers -> { send(message), stop() }. */
function startTraining(message, onreport) {
  let worker = null;
  let scope = null;
  const onPage = () => {
    worker = null;
    scope = { postMessage: onreport };
    serveTraining(scope);
    scope.onmessage({ data: message });
  };
  const script = document.querySelector("script:not([type])")?.textContent;
  try {
    const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    worker = new Worker(address);
    worker.onerror = onPage;
    worker.onmessage = ({ data }) => (URL.revokeObjectURL(address), onreport(data));
    worker.postMessage(message);
  } catch {
    setTimeout(onPage);
  }
  return {
    send: (data) => (worker ? worker.postMessage(data) : scope?.onmessage({ data })),
    stop: () => (worker ? worker.terminate() : scope?.onmessage({ data: { run: false } })),
  };
}

function mount(root, page) {
  const asked = page.parameters;
  let broken = Object.hasOwn(PARTS, asked.get("break")) ? asked.get("break") : "";
  let rate = RATES.find((rate) => rate === Number(asked.get("rate"))) ?? PARTS[broken][1];
  let racing = asked.has("race");
  const { list, unknown } = readWords(asked.get("s") ?? "");
  let sentence = list.length && !unknown.length ? list : first;
  let [seed, runs, running, due, spoken] = [1, [], false, 0, -Infinity];
  let look = null; // the step that is shown, or null for the last one
  const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_MS : DRAW_MS;

  // Controls
  const hasEnded = () => runs.every((run) => run.hasEnded);
  const play = button("Train", () => (hasEnded() ? (seed++, begin(true)) : setRunning(!running)), { class: "button main large" });
  const one = button("One step", () => ((look = null), setRunning(false), send({ step: true })));
  const timeline = range({
    label: "Step shown", min: 0, max: LAST_STEP, step: KEPT, value: 0,
    show: (i) => (look === null ? String(runs[0]?.step ?? 0) : `${i} of ${runs[0].step}`),
    oninput: (i) => ((look = i < runs[0].step ? i : null), timeline.set(look ?? runs[0].step), send({ look })),
  });
  const rateSlider = range({
    label: "Learning rate, at most", min: 0, max: RATES.length - 1, value: RATES.indexOf(rate),
    show: (i) => plain(RATES[i]),
    oninput: (i) => ((rate = RATES[i]), (broken ? runs : [runs[0]]).forEach((run) => run.send({ rate })), remember()),
  });
  const breaking = choice({
    label: "Break something",
    options: Object.entries(PARTS).map(([part, [name]]) => [part, name]),
    value: broken,
    onchange: (part) => ((rate = rate === PARTS[broken][1] ? PARTS[part][1] : rate), (broken = part), begin(), remember()),
  });
  const race = button("Race against a whole model", () => ((racing = !racing), begin(racing), remember()));

  // What is shown
  const [now, right, effect] = [0, 1, 2].map(() => h("p", { class: "note" }));
  const reading = h("div", { class: "train-reading" });
  const shown = h("p", { class: "train-source" });
  const kind = h("span", { class: "label" });
  const send = (message) => runs.forEach((run) => run.send(message));
  const put = (place) => (word) => [word, () => sentence.map((old, i) => (i === place ? word : old))];
  const turn = () => sentence.map((_, i) => sentence[{ 1: 6, 6: 1 }[i] ?? i]);
  const groups = [["Verb", VERBS.map(put(4))], ["Adjective", ADJECTIVES.map(put(11))], ["Order", [["exchange the nouns", turn]]]];
  const chip = ([text, change]) => Object.assign(button(text, () => submit(change().join(" "))), { change });
  const swaps = h("div", { class: "train-swaps" }, h("p", { class: "label" }, "Exchange a word, and predict “it”"),
    groups.map(([name, list]) => h("div", { role: "group", "aria-label": name }, list.map(chip))));
  const places = h("div", { class: "train-places" });
  const dashed = `, when the words before it are right. Dashed line: the score of a reader who ignores the verb, ${shortcut} of ${N}.`;
  const note = h("p", { class: "note" }, "Percentages: the model's probability of each pronoun after ", h("em", { lang: "de" }, "weil"), dashed);
  const chart = fitted((width) =>
    plot({
      label: "The loss of each step, on a logarithmic scale", width, height: 230,
      x: { label: "step", from: 0, to: LAST_STEP, mark: runs[0]?.reading?.step },
      y: { label: "training loss in nats a word", from: Math.floor(Math.min(-2, ...runs.flatMap(powersOf).map(([, y]) => y))), to: 1, show: (power) => String(10 ** power) },
      series: runs.map((run, i) => ({ name: run.name, role: i ? "value" : "forward", points: powersOf(run) })),
    }),
  );
  const source = `a Transformer in this page, trained on ${training.length} sentence pairs of ${known.length} words`;
  const parts = [[kind, shown, right, reading], [chart, h("div", { class: "train-time" }, timeline), places, effect], [swaps, note], [h("div", { class: "controls" }, rateSlider, breaking, race), now]];
  const view = figure(source, h("div", { class: "train" }, parts.map((part) => h("div", {}, part))));
  const field = h("input", { class: "field", type: "text", lang: "en", autocomplete: "off", value: sentence.join(" ") });
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const examples = choice({
    label: "or a held-out sentence",
    options: [["", "choose a sentence"], ...heldOut.map(({ source }) => [source.join(" "), asSentence(source)])],
    value: "",
    onchange: (text) => (examples.set(""), text && submit(text)),
  });
  const form = h("form", { class: "sentence-form", onsubmit: (event) => (event.preventDefault(), submit(field.value)) },
    h("label", { class: "sentence-field" }, h("span", { class: "label" }, "A sentence of these words, at any step"), field),
    h("button", { type: "submit", class: "button" }, "Translate"), examples, trouble);
  root.append(
    h("div", { class: "controls" }, play, one, button("Start again", () => (seed++, begin()))),
    h("p", { class: "note wide" }, h("strong", {}, "The rule: "), RULE),
    view,
    form,
    h("details", {}, h("summary", {}, `The ${known.length} words`), h("p", {}, known.join(" "))),
  );

  function submit(text) {
    const { list, unknown } = readWords(text);
    let reason = list.length ? "" : "Type a sentence first.";
    if (unknown.length) reason = `It does not know ${unknown.map((word) => `“${word}”`).join(", ")}; its words are listed below.`;
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
    page.go("train", { break: broken || null, rate: rate === PARTS[broken][1] ? null : rate, race: racing ? 1 : null, s });
  }

  function setRunning(on) {
    running = on;
    if (on) look = null;
    send({ run: on, look });
    nameButtons();
  }

  function nameButtons() {
    one.disabled = now.hidden = hasEnded();
    play.textContent = running ? "Pause" : one.disabled ? "Train a new one" : "Train";
  }

  /** New random weights, in each run the same. */
  function begin(startsNow = false) {
    for (const run of runs) run.stop();
    const [name, usual, measured, lesson] = PARTS[broken];
    const mine = { seed, rate, without: broken ? [broken] : [] };
    const whole = { seed: broken || rate !== RATE ? seed : seed + 1000, rate: broken ? rate : RATE, without: [] };
    const named = [[broken ? name : "This model", mine], ...(racing ? [["Whole", whole]] : [])];
    runs = named.map(([name, settings]) => {
      const run = { name, without: settings.without, step: 0, scores: [], losses: [], reading: null };
      return Object.assign(run, startTraining({ start: settings, sentence, run: startsNow }, (report) => take(run, report)));
    });
    rateSlider.set(RATES.indexOf(rate));
    race.setAttribute("aria-pressed", String(racing));
    effect.replaceChildren(...(measured ? [`Measured with three seeds, at the rate ${usual}: ${measured}. `, lessonLink(page, lesson), "."] : []));
    spoken = -Infinity;
    look = null;
    setRunning(startsNow);
  }

  function take(run, { losses, score, ...report }) {
    if (!runs.includes(run)) return;
    Object.assign(run, report);
    run.losses.push(...losses);
    if (score) run.scores.push({ step: report.step, ...score });
    if (running && hasEnded()) setRunning(false);
    if (!due) due = setTimeout(draw, running ? pause : 0);
  }

  function draw() {
    due = 0;
    const [run] = runs;
    if (!run.reading || !run.scores.length) return;
    nameButtons();
    timeline.set(look ?? run.step);
    const { step } = run.reading;
    const recent = run.losses.slice(Math.max(0, step - 10), step);
    const scores = run.scores.filter((score) => score.step <= step);
    const text = saidOf({ ...run, step, scores, loss: recent.reduce((a, b) => a + b, 0) / recent.length });
    if (running && performance.now() - spoken < SAY_MS) view.sentence.replaceChildren(text);
    else (say(view.sentence, text), (spoken = performance.now()));
    const shape = run.without.includes("warmup") ? `it is ${rate} for` : `it grows to ${rate} in`;
    now.textContent = `Learning rate of the next step: ${plain(run.rate)}; ${shape} ${WARMUP} steps, then falls.`;
    const pair = pairOf(run.reading.source);
    kind.textContent = heldOut.includes(pair) ? "A held-out sentence, which no step trains on" : pair ? "A sentence of the training text" : "Your sentence";
    shown.textContent = asSentence(run.reading.source);
    right.replaceChildren(...(pair ? ["Right: ", h("span", { lang: "de" }, asSentence(pair.target))] : []));
    swaps.hidden = !pairOf(sentence);
    for (const chip of swaps.querySelectorAll("button")) {
      chip.disabled = !pairOf(chip.change());
      if (chip.change !== turn) chip.setAttribute("aria-pressed", String(chip.change().join() === sentence.join()));
    }
    drawPlaces(scores.at(-1).places);
    reading.replaceChildren(...runs.filter((run) => run.reading).map(readingOf));
    chart.redraw();
  }

  /** Without a mask: how often each place is right with the whole translation before it, and with the right words before it. */
  function drawPlaces(counts) {
    places.hidden = !counts;
    if (!counts) return;
    const title = `How many of the ${N} held-out translations have the right word at each place when the model`;
    const rows = ["sees the whole translation, as in training", "sees only the right words before"];
    const lines = rows.map((name, i) => [name, ...counts.map((place) => String(place[i]))]);
    places.replaceChildren(h("p", { class: "label" }, title), table(title, ["", ...PLACES], lines));
  }

  /** What a run writes, the three pronouns, and its right pronouns and sentences. */
  function readingOf({ name, scores: all, reading: { source, written, chances, step } }) {
    const last = all.findLast((score) => score.step <= step);
    const { target, pronoun } = pairOf(source) ?? {};
    const marked = spelled(written).map(([before, text], i) => {
      const german = h("span", { class: target && written[i] !== target[i] ? "wrong" : null }, text);
      return [before, h("span", { class: "glossed" }, german, h("small", { lang: "en" }, englishOf(written[i])))];
    });
    const meant = (word) => nounsOf(source, word).map((noun) => ` the ${noun}`).join() || " no noun here";
    const named = (word) => [h("span", { lang: "de" }, word), h("small", {}, meant(word))];
    const line = (label, share, value, isRight = false) => h("li", { class: isRight ? "right" : null }, h("span", {}, label), barOf(share), value);
    const score = (what) => line(`Right ${what}`, last[what] / N, `${last[what]} of ${N}`);
    const pronouns = score("pronouns");
    pronouns.children[1].classList.add("with-mark");
    pronouns.children[1].style.setProperty("--mark", (shortcut / N).toFixed(4));
    return h("section", {}, h("p", { class: "label" }, racing ? `${name}, at step ${step}` : "It writes"),
      h("p", { class: "train-written", lang: "de" }, marked.length ? [marked, "."] : "(nothing)"),
      h("ul", { class: "bars" }, chances && PRONOUNS.map((word, i) => line(named(word), chances[i], percent(chances[i]), word === pronoun)), pronouns, score("sentences")));
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
  lead: "Nearly all of its 23,040 weights are random. Train them, and a sentence that it never sees comes right.",
  mount,
};
