/** Lesson 05: dot products of d_k random numbers, and what softmax makes of them with and without the division. */
import { button, fitted } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { arrow, bar, circle, controls, controlsOf, gradient, line, note, picture } from "./parts.js";
import { rectangle, segment, share, short, slope, staying, sum, text } from "./parts.js";

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
  return Math.sqrt(sum(numbers.map((x) => x * x)) / numbers.length);
}

/** Dot products and a divisor -> the scores, the weights, and the gradient of weight `wanted` by each dot product. */
export function attend(dots, divisor, wanted = WANTED) {
  const scores = dots.map((dot) => dot / divisor);
  const weights = softmax(scores);
  const slopes = weights.map((weight, i) => (weight * ((i === wanted) - weights[wanted])) / divisor);
  return { scores, weights, slopes };
}

/** A gradient as on the page: three decimals, five if it is small. */
function slopeText(slope) {
  if (Math.abs(slope) < 1e-6) return "≈ 0";
  return (slope > 0 ? "+" : "−") + Math.abs(slope).toFixed(Math.abs(slope) > 1e-3 ? 3 : 5);
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
  const state = { d_k: 64, isRandom: 0, isBackward: 0 };
  let seed = 1;
  let walks = randomWalks(WALKS, LONGEST, seed);
  /** Those of figure 2 for any d_k, or the first three walks. */
  const dots = () => EXPONENTIALS.map((e, i) => (state.isRandom ? walks[i][state.d_k] : Math.sqrt(state.d_k) * Math.log(e)));

  const sides = fitted((width) => drawSides(width, state, dots()));
  const spread = fitted((width) => drawSpread(width, state, dots(), walks));
  const again = button("New random keys", () => ((walks = randomWalks(WALKS, LONGEST, ++seed)), update()));
  const { pick, slide } = controlsOf(state, update);
  const kinds = pick("isRandom", "Dot products", ["of figure 2", "random"]);
  const ways = pick("isBackward", "Show", ["Forward", "Backward"]);
  root.append(controls(kinds, again, ways), staying(slide("d_k", "Numbers in a query, d_k", 1, LONGEST)), sides, spread);

  function update() {
    const { d_k, isRandom, isBackward } = state;
    again.hidden = !isRandom;
    sides.redraw();
    spread.redraw();
    const largest = Math.max(...dots());
    const best = WORDS.filter((_, i) => dots()[i] === largest).join(" and ");
    const [first, second] = [1, Math.sqrt(d_k)].map((divisor) => {
      const { weights, slopes } = attend(dots(), divisor);
      if (isBackward) return slopes[WANTED] < 1e-6 ? "less than 0.000001" : slopeText(slopes[WANTED]).slice(1);
      return !isRandom && (divisor > 1 || d_k === 1) ? "5/8" : share(Math.max(...weights));
    });
    const what = isBackward ? `the push on the dot product of *${WORDS[WANTED]}*` : `the largest weight, of *${best}*,`;
    const end = isRandom ? "" : " The dot products are √d_k times 0, ln 2 and ln 5: they grow as typical ones do.";
    tell(`With d_k = ${d_k}, ${what} is ${first} without the division and ${second} with it.${end}`);
  }

  update();
}

/** Random walks up to d_k, the curves ±√n, the three dot products as dots, and how often each dot product comes up. */
function drawSpread(width, { d_k, isRandom }, dots, walks) {
  const [left, right, top, bottom] = [34, Math.round(width * 0.7), 30, width < 560 ? 170 : 206];
  const x = (n) => left + (n / LONGEST) * (right - left);
  const y = (height) => (top + bottom) / 2 - (height / HIGHEST) * ((bottom - top) / 2);
  const isInside = (height) => Math.abs(height) <= HIGHEST;
  const points = (walk) => walk.slice(0, d_k + 1).flatMap((height, n) => (isInside(height) ? [[x(n), y(height)]] : []));
  const curve = (sign) => Array.from({ length: 65 }, (_, i) => [x(4 * i), y(sign * Math.sqrt(4 * i))]);

  const sums = walks.map((walk) => walk[d_k]);
  const counts = new Map();
  for (const bin of sums.map((height) => 4 * Math.round(height / 4))) counts.set(bin, (counts.get(bin) ?? 0) + 1);
  const unit = (width - right - 12) / Math.max(...counts.values());
  const bars = [...counts].map(([bin, count]) => {
    const where = [right + 8 + (unit * count) / 2, y(bin), unit * count, 0.86 * (y(0) - y(4))];
    return isInside(bin) && rectangle(...where, "soft", { filled: 0.9 });
  });

  const size = typicalSize(sums);
  const lines = [-32, -16, 0, 16, 32];
  return picture(
    width,
    bottom + 24,
    `${WALKS} random dot products of ${d_k} numbers: their typical size is ${short(size)}, and √${d_k} is ${short(Math.sqrt(d_k))}.`,
    circle(left, 10, 4.5, "forward"),
    note(left + 10, 10, "the three words", "start"),
    text(width, 10, `typical: ±${size.toFixed(1)}`, { bold: true, anchor: "end" }),
    lines.map((height) => segment([left, y(height)], [width, y(height)], "line", height ? 0.5 : 1.2)),
    lines.map((height) => note(left - 6, y(height), short(height), "end", 12)),
    walks.slice(0, 30).map((walk) => line(points(walk), "soft", 0.5)),
    isRandom ? walks.slice(0, 3).map((walk) => line(points(walk), "forward", 1.8)) : null,
    [1, -1].map((sign) => line(curve(sign), "ink", 1.2, true)),
    segment([x(d_k), top], [x(d_k), bottom], "soft", 1),
    dots.filter(isInside).map((dot) => circle(x(d_k), y(dot), 4.5, "forward")),
    bars,
    [1, 64, 128, 192, 256].map((n) => note(x(n), bottom + 14, n, "middle", 12)),
    note(width, bottom + 14, `${WALKS} pairs`, "end", 12),
  );
}

/** The picture of the lesson: softmax without the division and with it, side by side, or one below the other. */
function drawSides(width, { d_k, isRandom, isBackward }, dots) {
  const isWide = width >= 560;
  const names = isWide ? 70 : 54;
  const across = isWide ? (width - names) / 2 : width - names;
  const step = (across - 12) / 3;
  const [high, row] = isWide ? [90, 24] : [44, 20];
  const below = (rows, gap = 0) => 18 + row * (rows + (rows > 2 && isBackward)) + gap;
  const y = { word: 18 + row, dot: below(2), push: below(3) - (isBackward ? row : 0), arrow: below(3), score: below(4), e: below(5) };
  y.weight = below(5, high / 2 + 14);
  const tall = y.weight + high / 2 + 30;
  const root = Math.sqrt(d_k);
  const isRound = !isRandom && Number.isInteger(root);
  const logarithm = (i, factor) => (i === 0 ? "0" : `${factor === 1 ? "" : `${factor} `}ln ${EXPONENTIALS[i]}`);
  const both = [1, root].map((divisor) => attend(dots, divisor));

  const sides = both.map(({ scores, weights, slopes }, side) => {
    const [left, top] = isWide ? [names + side * across, 0] : [names, side * tall];
    const title = side ? `divided by √${d_k} ${Number.isInteger(root) ? `= ${root}` : `≈ ${root.toFixed(2)}`}` : "not divided";
    const column = (word, i) => {
      const x = left + (i + 0.5) * step;
      return [
        text(x, top + y.word, word, { bold: i === WANTED }),
        text(x, top + y.dot, isRound ? logarithm(i, root) : short(dots[i])),
        isBackward ? gradient(x - 22, top + y.push, slopes[i], { words: slopeText(slopes[i]), largest: 0.03 }) : null,
        arrow([x, top + y.arrow - 8], [x, top + y.arrow + 10]),
        side ? note(x + 8, top + y.arrow, `÷ ${short(Math.round(10 * root) / 10)}`, "start") : null,
        text(x, top + y.score, isRound ? logarithm(i, side ? 1 : root) : short(scores[i])),
        text(x, top + y.e, exponential(Math.exp(scores[i]))),
        bar(x, top + y.weight, weights[i], { width: 44, height: high }),
        text(x, top + y.weight + high / 2 + 14, !isRandom && (side || d_k === 1) ? `${EXPONENTIALS[i]}/8` : share(weights[i])),
      ];
    };
    const rows = [["q · k", y.dot], ["score z", y.score], ["e^z", y.e], ["weight", y.weight]];
    return [
      text(left + 1.5 * step, top + 14, title, { bold: true }),
      isWide && side ? null : rows.map(([words, at]) => note(0, top + at, words, "start")),
      isBackward && !(isWide && side) ? slope(0, top + y.push, "gradient", "start") : null,
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
