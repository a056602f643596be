/** Lesson 05: dot products of d_k random numbers, and what softmax makes of them with and without the division. */
import { button, h, number, range } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { arrow, bar, circle, fitted, gradient, line, pickOne, picture, rectangle, short, text } from "./parts.js";

const WORDS = ["the", "street", "animal"];
const WANTED = 1;
const EXPONENTIALS = [1, 2, 5];
const LONGEST = 256;
const WALKS = 500;

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
  return weight > 1e-6 ? weight.toFixed(weight > 1e-3 ? 4 : weight > 1e-4 ? 5 : 6) : number(weight, 2);
}

/** A gradient as on the page: three decimals, five if it is small. */
function slopeText(slope) {
  if (Math.abs(slope) < 1e-6) return "≈ 0";
  return (slope > 0 ? "+" : "−") + Math.abs(slope).toFixed(Math.abs(slope) > 1e-3 ? 3 : 5);
}

function exponential(e) {
  if (e < 0.01) return number(e, 2);
  return e < 1e7 ? Number(e.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: e < 100 ? 2 : 0 }) : number(e, 3);
}

function mount(root, tell) {
  let d_k = 64;
  let isRandom = false;
  let backward = false;
  let seed = 1;
  let walks = randomWalks(WALKS, LONGEST, seed);

  const spread = fitted(drawSpread);
  const panels = fitted(drawPanels);
  const again = button("New random keys", () => ((walks = randomWalks(WALKS, LONGEST, ++seed)), update()));
  const dotChips = pickOne({ label: "Dot products", options: ["of figure 2", "random"], onpick: (i) => ((isRandom = i === 1), update()) });
  const wayChips = pickOne({ label: "Show", options: ["forward", "backward"], onpick: (i) => ((backward = i === 1), update()) });
  const slider = range({ label: "Numbers in a query, d_k", min: 1, max: LONGEST, value: d_k, oninput: (x) => ((d_k = x), update()) });
  root.append(h("div", { class: "controls" }, slider, dotChips, again, wayChips), spread, panels);

  const dots = () => (isRandom ? WORDS.map((_, i) => walks[i][d_k]) : EXPONENTIALS.map((e) => Math.sqrt(d_k) * Math.log(e)));

  function update() {
    again.hidden = !isRandom;
    spread.redraw();
    panels.redraw();
    const [plain, divided] = [1, Math.sqrt(d_k)].map((divisor) => attend(dots(), divisor));
    const best = WORDS[dots().indexOf(Math.max(...dots()))];
    const largest = [plain, divided].map(({ weights }, side) => (side && !isRandom ? "5/8" : share(Math.max(...weights))));
    const pushes = [plain, divided].map(({ slopes }) => (Math.abs(slopes[WANTED]) < 1e-6 ? number(slopes[WANTED], 2) : slopeText(slopes[WANTED]).slice(1)));
    const where = `With d_k = ${d_k}, `;
    tell(
      backward
        ? [where, "the push on the dot product of ", h("em", {}, WORDS[WANTED]), ` is ${pushes[0]} without the division and ${pushes[1]} with it.`]
        : [where, h("em", {}, best), ` takes ${largest[0]} of the weight without the division and ${largest[1]} with it.`],
    );
  }

  function drawSpread(width) {
    const height = 230;
    const right = Math.round(width * 0.7);
    const [top, bottom, left] = [30, height - 24, 34];
    const x = (n) => left + (n / LONGEST) * (right - left);
    const y = (sum) => (top + bottom) / 2 - (sum / 40) * ((bottom - top) / 2);
    const last = walks.map((walk) => walk[d_k]);
    const curve = (sign) => line(Array.from({ length: 65 }, (_, i) => [x(4 * i), y(sign * Math.sqrt(4 * i))]), "ink", 1.2, true);
    const inside = (sum) => Math.abs(sum) <= 40;
    const bins = new Map();
    for (const sum of last) {
      const bin = 4 * Math.round(sum / 4);
      bins.set(bin, (bins.get(bin) ?? 0) + 1);
    }
    const most = Math.max(...bins.values());
    const longest = width - right - 12;
    const size = typicalSize(last);
    const label = `${WALKS} random dot products of ${d_k} numbers: their typical size is ${short(size)}, and the root of ${d_k} is ${short(Math.sqrt(d_k))}.`;
    return picture(
      width,
      height,
      label,
      text(width, 10, `typical: ±${size.toFixed(1)}`, { bold: true, anchor: "end" }),
      circle(left, 10, 4.5, "forward"),
      text(left + 10, 10, "the three words", { role: "soft", size: 13, anchor: "start" }),
      [-32, -16, 0, 16, 32].map((sum) => [line([[left, y(sum)], [width, y(sum)]], "line", sum ? 0.5 : 1.2), text(left - 6, y(sum), short(sum), { role: "soft", size: 12, anchor: "end" })]),
      walks.slice(0, 30).map((walk) => line(walk.slice(0, d_k + 1).filter(inside).map((sum, n) => [x(n).toFixed(1), y(sum).toFixed(1)]), "soft", 0.5)),
      isRandom ? WORDS.map((_, i) => line(walks[i].slice(0, d_k + 1).map((sum, n) => [x(n).toFixed(1), y(sum).toFixed(1)]), "forward", 1.8)) : null,
      curve(1),
      curve(-1),
      line([[x(d_k), top], [x(d_k), bottom]], "soft", 1),
      dots().filter(inside).map((dot) => circle(x(d_k), y(dot), 4.5, "forward")),
      [...bins].filter(([bin]) => inside(bin)).map(([bin, count]) => rectangle(right + 8 + ((count / most) * longest) / 2, y(bin), (count / most) * longest, (y(0) - y(4)) * 0.86, "soft", { filled: 0.9 })),
      text(width, bottom + 14, `${WALKS} pairs`, { role: "soft", size: 12, anchor: "end" }),
      [1, 64, 128, 192, 256].map((n) => text(x(n), bottom + 14, n, { role: "soft", size: 12 })),
    );
  }

  function drawPanels(width) {
    const isWide = width >= 560;
    const panelWidth = isWide ? (width - 70) / 2 : width;
    const rows = { word: 44, dot: 70, push: 92, arrow: 116, score: 142, e: 168, weight: 230, share: 290, height: 304 };
    if (!backward) for (const row of ["arrow", "score", "e", "weight", "share", "height"]) rows[row] -= 20;
    const names = isWide ? 70 : 54;
    const found = [1, Math.sqrt(d_k)].map((divisor) => attend(dots(), divisor));
    const sides = found.map(({ scores, weights, slopes }, side) => {
      const left = isWide ? 70 + side * panelWidth : names;
      const below = isWide ? 0 : side * (rows.height + 12);
      const step = (isWide ? panelWidth - 12 : width - names) / 3;
      const root = Math.sqrt(d_k);
      const factor = side === 0 && root > 1 ? `${root} ` : "";
      const asLog = (i, factor) => (EXPONENTIALS[i] === 1 ? "0" : `${factor}ln ${EXPONENTIALS[i]}`);
      const isRound = !isRandom && Number.isInteger(root);
      const title = side === 0 ? "not divided" : `divided by √${d_k}${Number.isInteger(root) ? ` = ${root}` : ` ≈ ${root.toFixed(2)}`}`;
      return [
        text(left + 1.5 * step, below + 14, title, { bold: true }),
        isWide && side ? null : Object.entries({ dot: "q · k", score: "score z", e: "e^z", weight: "weight" }).map(([row, name]) => text(0, below + rows[row], name, { role: "soft", size: 14, anchor: "start" })),
        backward && (!isWide || !side) ? text(0, below + rows.push, "gradient", { role: "gradient", size: 14, anchor: "start", italic: true }) : null,
        WORDS.map((word, i) => {
          const x = left + (i + 0.5) * step;
          return [
            text(x, below + rows.word, word, { bold: i === WANTED }),
            text(x, below + rows.dot, isRound ? asLog(i, root > 1 ? `${root} ` : "") : short(dots()[i])),
            backward ? gradient(x - 22, below + rows.push, slopes[i], { words: slopeText(slopes[i]), size: 13, largest: 0.03 }) : null,
            arrow([x, below + rows.arrow - 8], [x, below + rows.arrow + 10]),
            side ? text(x + 8, below + rows.arrow, `÷ ${short(Number(root.toFixed(1)))}`, { role: "soft", size: 13, anchor: "start" }) : null,
            text(x, below + rows.score, isRound ? asLog(i, factor) : short(scores[i])),
            text(x, below + rows.e, exponential(Math.exp(scores[i]))),
            bar(x, below + rows.weight, weights[i], { width: 44, height: 90 }),
            text(x, below + rows.share, side && !isRandom ? `${EXPONENTIALS[i]}/8` : share(weights[i])),
          ];
        }),
      ];
    });
    const label = found
      .map(({ weights, slopes }, side) => `${side ? "Divided" : "Not divided"}: ` + WORDS.map((word, i) => `${word} has the weight ${share(weights[i])}${backward ? ` and the gradient ${slopeText(slopes[i])}` : ""}`).join(", "))
      .join(". ");
    const height = isWide ? rows.height : 2 * rows.height + 12;
    return picture(width, height, label, isWide ? line([[70 + panelWidth - 6, 6], [70 + panelWidth - 6, rows.height - 4]]) : null, sides);
  }

  update();
}

export const scalingWidget = { id: "scaling", title: "Why divide by √d_k", mount };
