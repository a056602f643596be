/** Lesson 06: four words by hand, with the causal mask and without it. */
import { button, h } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { bar, cells, fitted, line, outline, pickOne, picture, pickable, rectangle, short, text } from "./parts.js";

const READS = ["<s>", "the", "animal", "slept"];
const WRITES = ["the", "animal", "slept", "</s>"];
/** e to the score of query t and key s */
const EXPONENTIALS = [[1, 4, 3, 2], [1, 3, 4, 2], [1, 2, 5, 12], [1, 1, 5, 1]];
const VALUES = [0, 4, 8, 20];

/** Row t of the miniature: the exponentials that are left, their sum, the weights, and the result. */
export function attentionRow(t, isMasked) {
  const scores = EXPONENTIALS[t].map((e, s) => (isMasked && s > t ? -Infinity : Math.log(e)));
  const weights = Array.from(softmax(Float32Array.from(scores)));
  const exponentials = scores.map((z) => Math.round(Math.exp(z)));
  const result = weights.reduce((sum, weight, s) => sum + weight * VALUES[s], 0);
  return { exponentials, total: exponentials.reduce((a, b) => a + b), weights, result };
}

const fraction = (above, below) => (above === below ? "1" : `${above}/${below}`);

function mount(root, tell) {
  let row = 2;
  let isMasked = true;
  const drawing = fitted(draw);
  const byHand = h("p", { class: "by-hand" });
  const rowChips = pickOne({ label: "Row", options: READS, selected: row, role: "query", onpick: pick });
  const maskChips = pickOne({ label: "Mask", options: ["on", "off"], onpick: (i) => ((isMasked = i === 0), update()) });
  const next = button("Next row", () => pick((row + 1) % READS.length));
  root.append(h("div", { class: "controls" }, rowChips, next, maskChips), drawing, byHand);

  function pick(t) {
    row = t;
    rowChips.set(t);
    update();
  }

  function update() {
    drawing.redraw();
    const { exponentials, total, weights, result } = attentionRow(row, isMasked);
    const terms = VALUES.flatMap((value, s) => (exponentials[s] ? `${fraction(exponentials[s], total)} · ${value}` : []));
    byHand.textContent = `Row “${READS[row]}”: ${terms.join(" + ")} = ${short(result)}`;
    const [asks, guess] = [h("em", {}, READS[row]), h("em", {}, WRITES[row])];
    if (row === READS.length - 1) tell(["Row ", asks, " may look at all four words. It has to write ", guess, ", which isn’t in the input."]);
    else if (isMasked) tell(["Row ", asks, " has to write ", guess, ". Its weight on ", guess.cloneNode(true), " is exactly ", short(weights[row + 1]), ", and so is every weight further right."]);
    else tell(["Without the mask, row ", asks, " gives ", fraction(exponentials[row + 1], total), " of its weight to ", guess, ", the word that it has to write: it can cheat."]);
  }

  function draw(width) {
    const isWide = width >= 600;
    const query = isWide ? 64 : 54;
    const step = isWide ? Math.min(66, (width - query - 130) / 8) : (width - query - 44) / 4;
    const [wide, high, tall] = [step - 6, isWide ? 66 : 56, isWide ? 76 : 64];
    const left = (s) => query + 12 + (s + 0.5) * step;
    const shift = isWide ? 4 * step + 46 : 0;
    const right = (s) => left(s) + shift;
    const sum = left(3) + step / 2 + (isWide ? 20 : 16);
    const [first, again] = isWide ? [110, 110] : [110, 110 + 4 * tall + 90];
    const result = right(3) + step / 2 + (isWide ? 24 : 16);
    const height = again + 4 * tall - 10;
    const size = isWide ? 14 : 12;
    const parts = [
      text(left(1.5), 14, "scores z", { bold: true }),
      text(right(1.5), again - 96, "weights w", { bold: true }),
      text(sum, first - 14, "sum", { role: "soft", size: 12 }),
      text(result, again - 14, "result", { role: "soft", size: 12 }),
      text(isWide ? sum + 4 : query, again - 46, "value", { role: "soft", size: 12, anchor: isWide ? "middle" : "end" }),
      READS.map((word, s) => [
        cells(left(s), first - 46, [word], "key", { cell: wide, height: 28, size }),
        text(right(s), again - 72, word, { role: "soft", size: 13 }),
        cells(right(s), again - 46, [VALUES[s]], "value", { cell: wide, height: 28, size }),
      ]),
    ];
    READS.forEach((asks, t) => {
      const found = attentionRow(t, isMasked);
      const y = first + 26 + t * tall;
      const yw = again + 26 + t * tall;
      const isPicked = t === row;
      const back = (at, to) => (isPicked ? rectangle(to / 2, at, to, tall - 2, "forward", { filled: 0.1, radius: 8 }) : rectangle(to / 2, at, to, tall, "paper", { filled: 0 }));
      const line_ = [
        back(y, isWide ? width : sum + 16),
        isWide ? null : back(yw, width),
        cells(query / 2 + 3, y, [asks], "query", { cell: query - 4, height: 30, size }),
        isWide ? null : cells(query / 2 + 3, yw, [asks], "query", { cell: query - 4, height: 30, size }),
        text(sum, y, found.total, { bold: isPicked }),
        cells(result, yw, [found.result], "value", { cell: isWide ? 46 : 32, size }),
      ];
      READS.forEach((_, s) => {
        const isHidden = isMasked && s > t;
        const e = EXPONENTIALS[t][s];
        line_.push(
          isHidden ? rectangle(left(s), y, wide, high, "soft", { filled: 0.13 }) : outline(left(s), y, wide, high, "plain", 0),
          text(left(s), y - 15, e === 1 ? "0" : `ln ${e}`, { role: isHidden ? "soft" : "ink", size: size + 1 }),
          isHidden ? line([[left(s) - 18, y - 15], [left(s) + 18, y - 15]], "ink", 1.4) : null,
          text(left(s), y + 13, isHidden ? "−∞" : isWide ? `e^z = ${e}` : e, { role: isHidden ? "ink" : "soft", size }),
          isHidden
            ? [rectangle(right(s), yw, wide, high, "soft", { filled: 0.13 }), text(right(s), yw, "0", { role: "soft" })]
            : [bar(right(s), yw - 9, found.weights[s], { width: wide - 14, height: high - 22 }), text(right(s), yw + high / 2 - 8, fraction(found.exponentials[s], found.total), { role: "soft", size: 12 })],
          s === t + 1 ? rectangleOutline(right(s), yw, wide + 2, high + 2) : null,
        );
      });
      parts.push(pickable(() => pick(t), line_));
    });
    const label = READS.map((asks, t) => `Row ${asks}: weights ${attentionRow(t, isMasked).weights.map((weight) => short(weight)).join(", ")}, result ${short(attentionRow(t, isMasked).result)}.`).join(" ");
    return picture(width, height + 22, label, parts, text(width, height + 12, "dashed: the word to write", { role: "soft", size: 13, anchor: "end" }));
  }

  const rectangleOutline = (x, y, width, height) => {
    const [l, r, u, d] = [x - width / 2, x + width / 2, y - height / 2, y + height / 2];
    return line([[l, u], [r, u], [r, d], [l, d], [l, u]], "ink", 1.4, true);
  };

  update();
}

export const masksWidget = { id: "masks", title: "The causal mask, row by row", mount };
