/** Lesson 06: four words by hand, with the causal mask and without it. */
import { fitted, h } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { bar, cells, controls, controlsOf, dot, note, outline, pickable, picture } from "./parts.js";
import { rectangle, segment, short, stepper, sum, text } from "./parts.js";

const READS = ["<s>", "the", "animal", "slept"];
const WRITES = ["the", "animal", "slept", "</s>"];
/** e to the score of query t and key s */
const EXPONENTIALS = [[1, 4, 3, 2], [1, 3, 4, 2], [1, 2, 5, 12], [1, 1, 5, 1]];
const VALUES = [0, 4, 8, 20];

/** Row t of the miniature: the exponentials that are left, their sum, the weights, and the result. */
export function attentionRow(t, isMasked) {
  const exponentials = EXPONENTIALS[t].map((e, s) => (isMasked && s > t ? 0 : e));
  const weights = softmax(exponentials.map(Math.log));
  return { exponentials, total: sum(exponentials), weights, result: dot(weights, VALUES) };
}

const fraction = (above, below) => (above === below ? "1" : `${above}/${below}`);

function mount(root, tell) {
  const state = { row: 2, isOff: 0 };
  const drawing = fitted((width) => draw(width, state.row, !state.isOff, choose));
  const byHand = h("p", { class: "by-hand" });
  const { pick } = controlsOf(state, update);
  const rows = pick("row", "Row", READS, "query");
  const steps = stepper((by) => choose(state.row + by));
  root.append(controls(rows, steps, pick("isOff", "Mask", ["on", "off"])), drawing, byHand);

  function choose(t) {
    state.row = t;
    rows.set(t);
    update();
  }

  function update() {
    drawing.redraw();
    const { row, isOff } = state;
    steps.set(row, READS.length - 1);
    const { exponentials, total, weights, result } = attentionRow(row, !isOff);
    const terms = VALUES.flatMap((value, s) => (exponentials[s] ? `${fraction(exponentials[s], total)} · ${value}` : []));
    byHand.textContent = `Row “${READS[row]}”: ${terms.join(" + ")} = ${short(result)}`;
    const [asks, guess, last] = [READS[row], WRITES[row], READS.length - 1];
    const further = row + 1 < last ? ", and so is every weight further right" : "";
    if (row === last) tell(`Row *${asks}* may look at all four words. It has to write *${guess}*, which isn’t in the input.`);
    else if (isOff) {
      const taken = fraction(exponentials[row + 1], total);
      tell(`Without the mask, row *${asks}* gives ${taken} of its weight to *${guess}*, the word that it has to write: it can cheat.`);
    } else tell(`Row *${asks}* has to write *${guess}*. Its weight on *${guess}* is exactly ${short(weights[row + 1])}${further}.`);
  }

  update();
}

/** The picture of the lesson, with one row picked. In a narrow one, the weights stand below the scores. */
function draw(width, row, isMasked, pick) {
  const isWide = width >= 600;
  const asks = isWide ? 70 : 62;
  const end = isWide ? 46 : 36;
  const step = isWide ? (width - asks - 46 - end - 12) / 8 : (width - asks - end - 6) / 4;
  const [high, tall, size] = isWide ? [66, 76, 14] : [46, 52, 12];
  const wide = step - 6;
  const left = (s) => asks + (s + 0.5) * step;
  const total = left(3.5) + (isWide ? 23 : 20);
  const right = (s) => left(s) + (isWide ? 4 * step + 46 : 0);
  const result = width - end / 2 - 1;
  const firstRow = isWide ? 136 : 100;
  const weightsRow = isWide ? firstRow : firstRow + 4 * tall + 84;
  const [keys, values] = [firstRow, weightsRow].map((row) => row - (isWide ? 70 : 48));
  const small = (x, y, words, anchor = "middle") => note(x, y, words, anchor, 12);

  const heads = [
    text(left(1.5), 12, "scores z", { bold: true }),
    text(right(1.5), isWide ? 12 : values - 42, "weights w", { bold: true }),
    small(total, firstRow - (isWide ? 38 : 32), "sum"),
    small(result, weightsRow - (isWide ? 38 : 32), "result"),
    isWide ? small(total, values, "value") : [small(asks - 6, values, "value", "end"), small(asks - 6, keys, "e^z below", "end")],
    READS.map((word, s) => [
      cells(left(s), keys, [word], "key", { cell: wide, height: 28, size }),
      small(right(s), values - 22, word),
      cells(right(s), values, [VALUES[s]], "value", { cell: wide, height: 28, size }),
    ]),
  ];

  const rows = READS.map((word, t) => {
    const { exponentials, total: all, weights, result: y } = attentionRow(t, isMasked);
    const [top, lower] = [firstRow + t * tall, weightsRow + t * tall];
    const [upper, under] = [top - 0.23 * high, top + 0.21 * high];
    const scoreOf = (e, s) => {
      const isHidden = isMasked && s > t;
      return [
        isHidden ? rectangle(left(s), top, wide, high, "soft") : outline(left(s), top, wide, high, "plain", 0),
        text(left(s), upper, e === 1 ? "0" : `ln ${e}`, { role: isHidden ? "soft" : "ink", size: size + 1 }),
        isHidden && segment([left(s) - 18, upper], [left(s) + 18, upper], "ink", 1.4),
        text(left(s), under, isHidden ? "−∞" : isWide ? `e^z = ${e}` : e, { role: isHidden ? "ink" : "soft", size }),
      ];
    };
    const weightOf = (weight, s) => [
      weight === 0
        ? [rectangle(right(s), lower, wide, high, "soft"), text(right(s), lower, "0", { role: "soft" })]
        : [
            bar(right(s), lower - 9, weight, { width: wide - 14, height: high - 22 }),
            small(right(s), lower + high / 2 - 8, fraction(exponentials[s], all)),
          ],
      s === t + 1 && rectangle(right(s), lower, wide, high, "ink", { filled: 0, outlined: true, dashed: true }),
    ];
    return pickable(
      () => pick(t),
      [...new Set([top, lower])].map((at) => [
        rectangle(width / 2, at, width, tall - 4, "forward", { filled: t === row ? 0.1 : 0, radius: 8 }),
        cells((asks - 6) / 2 + 2, at, [word], "query", { cell: asks - 10, height: 30, size }),
      ]),
      EXPONENTIALS[t].map(scoreOf),
      text(total, top, all, { bold: t === row }),
      weights.map(weightOf),
      cells(result - 2, lower, [y], "value", { cell: end - 6, size }),
    );
  });

  const height = weightsRow + 4 * tall - (isWide ? 10 : 2);
  const weightsOf = (t) => attentionRow(t, isMasked).weights.map((weight) => short(weight));
  const shares = READS.map((word, t) => `Row ${word}: weights ${weightsOf(t).join(", ")}.`);
  const dashed = note(width, height - 12, "dashed: the word that the row has to write", "end");
  return picture(width, height, shares.join(" "), rows, heads, dashed);
}

export const masksWidget = { id: "masks", title: "The causal mask, row by row", mount };
