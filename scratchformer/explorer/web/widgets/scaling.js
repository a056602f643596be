/** Lesson 05: dot products of d_k random numbers, and what softmax makes of them with and without the division. */
import { button, fitted, h, range } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { arrow, bar, circle, gradient, line } from "./parts.js";
import { pickOne, picture, rectangle, segment, short, text } from "./parts.js";

const WORDS = ["the", "street", "animal"];
const WANTED = 1;
const EXPONENTIALS = [1, 2, 5];
const LONGEST = 256;
const WALKS = 500;
/** The largest sum that is drawn. */
const HIGHEST = 40;

/** Random walks of steps +1 and −1: the sums after 0, 1, …, `length` steps. The same seed gives the same walks. */
export function randomWalks(count, length, seed) {
  let state = seed * 2654435761 + 1;
  const coin = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state < 0 ? -1 : 1;
  };
  return Array.from({ length: count }, () => {
    const walk = [0];
    for (let n = 1; n <= length; n++) walk.push(walk[n - 1] + coin());
    return walk;
  });
}

/** The root mean square of numbers: their typical size. */
export function typicalSize(numbers) {
  return Math.sqrt(numbers.reduce((sum, x) => sum + x * x, 0) / numbers.length);
}

/** Dot products and a divisor -> the scores, the weights, and the gradient of weight `wanted` by each dot product. */
export function attend(dots, divisor, wanted = WANTED) {
  const scores = dots.map((dot) => dot / divisor);
  const weights = Array.from(softmax(Float32Array.from(scores)));
  const slopes = weights.map((weight, i) => (weight * ((i === wanted) - weights[wanted])) / divisor);
  return { scores, weights, slopes };
}

/** A weight as on the page: four decimals, more if it is small. Only 1 itself looks like 1. */
function share(weight) {
  if (weight >= 0.99995 && weight < 1) return "> 0.9999";
  return weight > 1e-6 ? weight.toFixed(weight > 1e-3 ? 4 : weight > 1e-4 ? 5 : 6) : "< 0.000001";
}

/** A gradient as on the page: three decimals, five if it is small. */
function slopeText(slope) {
  if (Math.abs(slope) < 1e-6) return "≈ 0";
  return (slope > 0 ? "+" : "−") + Math.abs(slope).toFixed(Math.abs(slope) > 1e-3 ? 3 : 5);
}

/** How strong the push is; a tiny one is not rounded away. */
function push(slope) {
  return slope < 1e-6 ? "less than 0.000001" : slopeText(slope).slice(1);
}

/** An exponential: 390,625, 153 billion, 1.1·10^{26}, 0.018, < 0.000001. */
export function exponential(e) {
  if (e < 0.1) return e < 1e-6 ? "< 0.000001" : e.toPrecision(2);
  if (e >= 1e12) return e.toExponential(1).replace("e+", "·10^{").concat("}");
  if (e >= 1e9) return `${(e / 1e9).toPrecision(3)} billion`;
  if (e >= 1e7) return `${(e / 1e6).toPrecision(3)} million`;
  return Number(e.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: e < 100 ? 2 : 0 });
}

function mount(root, tell) {
  let d_k = 64;
  let isRandom = false;
  let isBackward = false;
  let seed = 1;
  let walks = randomWalks(WALKS, LONGEST, seed);

  const spread = fitted((width) => drawSpread(width, walks, d_k, dots(), isRandom));
  const sides = fitted((width) => drawSides(width, d_k, dots(), isRandom, isBackward));
  const slider = range({
    label: "Numbers in a query, d_k",
    min: 1,
    max: LONGEST,
    value: d_k,
    oninput: (x) => ((d_k = x), update()),
  });
  const kinds = pickOne({
    label: "Dot products",
    options: ["of figure 2", "random"],
    onpick: (i) => ((isRandom = i === 1), update()),
  });
  const again = button("New random keys", () => ((walks = randomWalks(WALKS, LONGEST, ++seed)), update()));
  const ways = pickOne({
    label: "Show",
    options: ["forward", "backward"],
    onpick: (i) => ((isBackward = i === 1), update()),
  });
  root.append(h("div", { class: "controls" }, slider, kinds, again, ways), spread, sides);

  /** Those of figure 2 for any d_k, or the first three walks. */
  function dots() {
    return WORDS.map((_, i) => (isRandom ? walks[i][d_k] : Math.sqrt(d_k) * Math.log(EXPONENTIALS[i])));
  }

  function update() {
    again.hidden = !isRandom;
    spread.redraw();
    sides.redraw();
    const both = [1, Math.sqrt(d_k)].map((divisor) => attend(dots(), divisor));
    const largest = Math.max(...dots());
    const best = WORDS.filter((_, i) => dots()[i] === largest).join(" and ");
    const [first, second] = both.map(({ weights, slopes }, side) => {
      if (isBackward) return push(slopes[WANTED]);
      return !isRandom && (side || d_k === 1) ? "5/8" : share(Math.max(...weights));
    });
    const what = isBackward
      ? ["the push on the dot product of ", h("em", {}, WORDS[WANTED]), " is "]
      : ["the largest weight, of ", h("em", {}, best), ", is "];
    const growth = isRandom
      ? ""
      : " For each d_k the three dot products are √d_k times 0, ln 2 and ln 5, so that they grow as typical ones do; the division takes this growth away.";
    tell([`With d_k = ${d_k}, `, ...what, `${first} without the division and ${second} with it.${growth}`]);
  }

  update();
}

/** Random walks up to d_k, the curves ±√n, the three dot products as dots, and how often each dot product comes up. */
function drawSpread(width, walks, d_k, dots, isRandom) {
  const [left, right, top, bottom] = [34, Math.round(width * 0.7), 30, 206];
  const x = (n) => left + (n / LONGEST) * (right - left);
  const y = (sum) => (top + bottom) / 2 - (sum / HIGHEST) * ((bottom - top) / 2);
  const isInside = (sum) => Math.abs(sum) <= HIGHEST;
  const small = (x, y, words, anchor = "middle") => text(x, y, words, { role: "soft", size: 12, anchor });
  const points = (walk) => walk.slice(0, d_k + 1).flatMap((sum, n) => (isInside(sum) ? [[x(n), y(sum)]] : []));
  const curve = (sign) => Array.from({ length: 65 }, (_, i) => [x(4 * i), y(sign * Math.sqrt(4 * i))]);

  const sums = walks.map((walk) => walk[d_k]);
  const counts = new Map();
  for (const bin of sums.map((sum) => 4 * Math.round(sum / 4))) counts.set(bin, (counts.get(bin) ?? 0) + 1);
  const unit = (width - right - 12) / Math.max(...counts.values());
  const bars = [...counts].map(([bin, count]) => {
    const long = unit * count;
    return (
      isInside(bin) && rectangle(right + 8 + long / 2, y(bin), long, 0.86 * (y(0) - y(4)), "soft", { filled: 0.9 })
    );
  });

  const size = typicalSize(sums);
  const label = `${WALKS} random dot products of ${d_k} numbers: their typical size is ${short(size)}, and the root of ${d_k} is ${short(Math.sqrt(d_k))}.`;
  return picture(
    width,
    230,
    label,
    circle(left, 10, 4.5, "forward"),
    text(left + 10, 10, "the three words", { role: "soft", size: 13, anchor: "start" }),
    text(width, 10, `typical: ±${size.toFixed(1)}`, { bold: true, anchor: "end" }),
    [-32, -16, 0, 16, 32].map((sum) => segment([left, y(sum)], [width, y(sum)], "line", sum ? 0.5 : 1.2)),
    [-32, -16, 0, 16, 32].map((sum) => small(left - 6, y(sum), short(sum), "end")),
    walks.slice(0, 30).map((walk) => line(points(walk), "soft", 0.5)),
    isRandom && walks.slice(0, 3).map((walk) => line(points(walk), "forward", 1.8)),
    [1, -1].map((sign) => line(curve(sign), "ink", 1.2, true)),
    segment([x(d_k), top], [x(d_k), bottom], "soft", 1),
    dots.filter(isInside).map((dot) => circle(x(d_k), y(dot), 4.5, "forward")),
    bars,
    [1, 64, 128, 192, 256].map((n) => small(x(n), bottom + 14, n)),
    small(width, bottom + 14, `${WALKS} pairs`, "end"),
  );
}

/** The picture of the lesson: softmax without the division and with it, side by side, or one below the other. */
function drawSides(width, d_k, dots, isRandom, isBackward) {
  const isWide = width >= 560;
  const names = isWide ? 70 : 54;
  const across = isWide ? (width - names) / 2 : width - names;
  const step = (across - 12) / 3;
  const push = isBackward ? 22 : 0;
  const y = { word: 44, dot: 70, push: 92, arrow: 96 + push, score: 122 + push, e: 148 + push, weight: 210 + push };
  const tall = y.weight + 78;
  const root = Math.sqrt(d_k);
  const isRound = !isRandom && Number.isInteger(root);
  const logarithm = (i, factor) => (i === 0 ? "0" : `${factor === 1 ? "" : `${factor} `}ln ${EXPONENTIALS[i]}`);
  const both = [1, root].map((divisor) => attend(dots, divisor));
  const about = Number.isInteger(root) ? `= ${root}` : `≈ ${root.toFixed(2)}`;

  const sides = both.map(({ scores, weights, slopes }, side) => {
    const [left, top] = isWide ? [names + side * across, 0] : [names, side * tall];
    const title = side ? `divided by √${d_k} ${about}` : "not divided";
    const name = (words, at, role = "soft") =>
      text(0, top + at, words, { role, size: 14, anchor: "start", italic: role === "gradient" });
    const column = (word, i) => {
      const x = left + (i + 0.5) * step;
      const divisor =
        side &&
        text(x + 8, top + y.arrow, `÷ ${short(Math.round(10 * root) / 10)}`, {
          role: "soft",
          size: 13,
          anchor: "start",
        });
      const slope = { words: slopeText(slopes[i]), size: 13, largest: 0.03 };
      return [
        text(x, top + y.word, word, { bold: i === WANTED }),
        text(x, top + y.dot, isRound ? logarithm(i, root) : short(dots[i])),
        isBackward && gradient(x - 22, top + y.push, slopes[i], slope),
        arrow([x, top + y.arrow - 8], [x, top + y.arrow + 10]),
        divisor || null,
        text(x, top + y.score, isRound ? logarithm(i, side ? 1 : root) : short(scores[i])),
        text(x, top + y.e, exponential(Math.exp(scores[i]))),
        bar(x, top + y.weight, weights[i], { width: 44, height: 90 }),
        text(x, top + y.weight + 60, !isRandom && (side || d_k === 1) ? `${EXPONENTIALS[i]}/8` : share(weights[i])),
      ];
    };
    return [
      text(left + 1.5 * step, top + 14, title, { bold: true }),
      isWide && side
        ? null
        : [name("q · k", y.dot), name("score z", y.score), name("e^z", y.e), name("weight", y.weight)],
      isBackward && !(isWide && side) && name("gradient", y.push, "gradient"),
      WORDS.map(column),
    ];
  });
  const said = both.map(({ weights, slopes }, side) => {
    const of = (word, i) => `${word} ${share(weights[i])}${isBackward ? `, gradient ${slopeText(slopes[i])}` : ""}`;
    return `Weights ${side ? "divided" : "not divided"}: ${WORDS.map(of).join("; ")}.`;
  });
  const between = isWide && segment([names + across - 6, 6], [names + across - 6, tall - 8]);
  return picture(width, isWide ? tall : 2 * tall, said.join(" "), between, sides);
}

export const scalingWidget = { id: "scaling", title: "Why divide by √d_k", mount };
