/** Lesson 06: four words by hand, with the causal mask and without it. */
import { button, fitted, h } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { bar, cells, outline, pickable, pickOne } from "./parts.js";
import { picture, rectangle, segment, short, text } from "./parts.js";

const READS = ["<s>", "the", "animal", "slept"];
const WRITES = ["the", "animal", "slept", "</s>"];
/** e to the score of query t and key s */
const EXPONENTIALS = [
  [1, 4, 3, 2],
  [1, 3, 4, 2],
  [1, 2, 5, 12],
  [1, 1, 5, 1],
];
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
  const drawing = fitted((width) => draw(width, { row, isMasked, pick }));
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
    const terms = VALUES.flatMap((value, s) =>
      exponentials[s] ? `${fraction(exponentials[s], total)} · ${value}` : [],
    );
    byHand.textContent = `Row “${READS[row]}”: ${terms.join(" + ")} = ${short(result)}`;
    const [asks, guess] = [h("em", {}, READS[row]), h("em", {}, WRITES[row])];
    if (row === READS.length - 1)
      tell(["Row ", asks, " may look at all four words. It has to write ", guess, ", which isn’t in the input."]);
    else if (isMasked)
      tell([
        "Row ",
        asks,
        " has to write ",
        guess,
        ". Its weight on ",
        guess.cloneNode(true),
        " is exactly ",
        short(weights[row + 1]),
        row + 2 < READS.length ? ", and so is every weight further right." : ".",
      ]);
    else
      tell([
        "Without the mask, row ",
        asks,
        " gives ",
        fraction(exponentials[row + 1], total),
        " of its weight to ",
        guess,
        ", the word that it has to write: it can cheat.",
      ]);
  }

  update();
}

/** The picture of the lesson, with one row picked. In a narrow one, the weights stand below the scores. */
function draw(width, { row, isMasked, pick }) {
  const isWide = width >= 600;
  const asks = isWide ? 70 : 62;
  const end = isWide ? 46 : 36;
  const step = isWide ? (width - asks - 46 - end - 12) / 8 : (width - asks - end - 6) / 4;
  const [high, tall, size] = isWide ? [66, 76, 14] : [56, 64, 12];
  const wide = step - 6;
  const left = (s) => asks + (s + 0.5) * step;
  const sum = left(3.5) + (isWide ? 23 : 20);
  const right = (s) => left(s) + (isWide ? 4 * step + 46 : 0);
  const result = width - end / 2 - 1;
  const firstRow = isWide ? 136 : 112;
  const weightsRow = isWide ? firstRow : firstRow + 4 * tall + 104;
  const [keys, values] = [firstRow - (isWide ? 70 : 56), weightsRow - (isWide ? 70 : 56)];
  const small = (x, y, words, anchor = "middle") => text(x, y, words, { role: "soft", size: 12, anchor });

  const heads = [
    text(left(1.5), 12, "scores z", { bold: true }),
    text(right(1.5), isWide ? 12 : values - 46, "weights w", { bold: true }),
    small(sum, firstRow - 38, "sum"),
    small(result, weightsRow - 38, "result"),
    isWide ? small(sum, values, "value") : small(asks - 6, values, "value", "end"),
    isWide ? null : small(asks - 6, keys, "e^z below", "end"),
    READS.map((word, s) => [
      cells(left(s), keys, [word], "key", { cell: wide, height: 28, size }),
      small(right(s), values - 24, word),
      cells(right(s), values, [VALUES[s]], "value", { cell: wide, height: 28, size }),
    ]),
  ];

  const rows = READS.map((word, t) => {
    const { exponentials, total, weights, result: y } = attentionRow(t, isMasked);
    const [top, lower] = [firstRow + t * tall, weightsRow + t * tall];
    const places = isWide ? [top] : [top, lower];
    const scoreOf = (e, s) => {
      const isHidden = isMasked && s > t;
      return [
        isHidden ? rectangle(left(s), top, wide, high, "soft") : outline(left(s), top, wide, high, "plain", 0),
        text(left(s), top - 15, e === 1 ? "0" : `ln ${e}`, { role: isHidden ? "soft" : "ink", size: size + 1 }),
        isHidden ? segment([left(s) - 18, top - 15], [left(s) + 18, top - 15], "ink", 1.4) : null,
        text(left(s), top + 13, isHidden ? "−∞" : isWide ? `e^z = ${e}` : e, { role: isHidden ? "ink" : "soft", size }),
      ];
    };
    const weightOf = (weight, s) => [
      weight === 0
        ? [rectangle(right(s), lower, wide, high, "soft"), text(right(s), lower, "0", { role: "soft" })]
        : [
            bar(right(s), lower - 9, weight, { width: wide - 14, height: high - 22 }),
            small(right(s), lower + high / 2 - 7, fraction(exponentials[s], total)),
          ],
      s === t + 1 ? rectangle(right(s), lower, wide, high, "ink", { filled: 0, outlined: true, dashed: true }) : null,
    ];
    return pickable(
      () => pick(t),
      places.map((at) => [
        rectangle(width / 2, at, width, tall - 4, "forward", { filled: t === row ? 0.1 : 0, radius: 8 }),
        cells((asks - 6) / 2 + 2, at, [word], "query", { cell: asks - 10, height: 30, size }),
      ]),
      EXPONENTIALS[t].map(scoreOf),
      text(sum, top, total, { bold: t === row }),
      weights.map(weightOf),
      cells(result - 2, lower, [y], "value", { cell: end - 6, size }),
    );
  });

  const height = weightsRow + 4 * tall - 10;
  const shares = READS.map(
    (word, t) =>
      `Row ${word}: weights ${attentionRow(t, isMasked)
        .weights.map((weight) => short(weight))
        .join(", ")}.`,
  );
  return picture(
    width,
    height,
    shares.join(" "),
    rows,
    heads,
    text(width, height - 12, "dashed: the word that the row has to write", { role: "soft", size: 13, anchor: "end" }),
  );
}

export const masksWidget = { id: "masks", title: "The causal mask, row by row", mount };
