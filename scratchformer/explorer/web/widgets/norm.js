/** Lesson 12: one number of a vector goes far out, and LayerNorm brings it back. */
import { fitted } from "../dom.js";
import { softmax } from "../engine/tensor.js";
import { arrow, bar, cells, controls, controlsOf, hundredths, note, pickable, picture } from "./parts.js";
import { rectangle, share, short, staying, sum, text } from "./parts.js";

/** The vector of the lesson, with its last number gone far out. */
const Z = [1, 1, 5, 100];
const ORDINALS = ["1st", "2nd", "3rd", "4th"];
const EPSILON = 1e-6;

const mean = (numbers) => sum(numbers) / numbers.length;

/** y = γ n + β, with n = (z − mean) / s; all that the lesson names. */
export function layerNorm(z, gamma = z.map(() => 1), beta = z.map(() => 0)) {
  const middle = mean(z);
  const c = z.map((x) => x - middle);
  const s = Math.sqrt(mean(c.map((x) => x * x)) + EPSILON);
  const n = c.map((x) => x / s);
  return { mean: middle, c, s, n, y: n.map((x, j) => gamma[j] * x + beta[j]) };
}

/** At most two decimals, and no zeros at their end. */
const rounded = (x) => hundredths(x).replace(/\.?0+$/, "");

function mount(root, tell) {
  const [z, gamma, beta] = [[...Z], [1, 1, 1, 1], [0, 0, 0, 0]];
  const state = { j: 3, z: Z[3], gamma: 1, beta: 0 };
  let j = state.j;
  const { pick, slide } = controlsOf(state, update);
  const number = pick("j", "Number", ORDINALS);
  const sliders = [slide("z", "Its z", -200, 200), slide("gamma", "Its γ", -3, 3, 0.1), slide("beta", "Its β", -3, 3, 0.1)];
  const drawing = fitted((width) => draw(width, { j, z, gamma, beta }, (i) => (number.set(i), (state.j = i), update())));
  root.append(controls(number), staying(sliders), drawing);

  /** Takes over what a slider says; or, when another number was picked, sets the sliders to it. */
  function update() {
    if (j === state.j) [z[j], gamma[j], beta[j]] = [state.z, state.gamma, state.beta];
    j = state.j;
    Object.assign(state, { z: z[j], gamma: gamma[j], beta: beta[j] });
    sliders.forEach((slider, i) => slider.set([z[j], gamma[j], beta[j]][i]));
    drawing.redraw();
    const { s, n, y, mean: middle } = layerNorm(z, gamma, beta);
    const [plain, normal] = [z, y].map((numbers) => share(softmax(numbers)[j]));
    const becomes = `so its ${ORDINALS[j]} number, ${short(z[j])}, becomes n = ${rounded(n[j])}`;
    const weights = `Its weight in a softmax of z is ${plain}, and in a softmax of y ${normal}`;
    const bound = "However far one of four numbers goes out, its n stays between −√3 and √3 = 1.732";
    const isPlain = gamma.every((x) => x === 1) && beta.every((x) => x === 0);
    const scaled = isPlain ? "" : ` and, with γ and β, y = ${rounded(y[j])}`;
    const first = `z has mean ${rounded(middle)} and standard deviation ${rounded(s)}, ${becomes}${scaled}`;
    tell(`${first}. ${weights}.${Math.abs(n[j]) > 1.6 ? ` ${bound}.` : ""}`);
  }

  update();
}

/** The drawing of the lesson from z on, and beside z and y what a softmax would make of them. */
function draw(width, { j, z, gamma, beta }, pick) {
  const { mean: middle, c, s, n, y } = layerNorm(z, gamma, beta);
  const names = width >= 560 ? 96 : 58;
  const cell = Math.min(62, (width - names - 84) / 4);
  const [left, right] = [names + 2 * cell, names + 4 * cell];
  const rows = [["z", z], ["z − mean", c], ["n", n], ["y", y]];
  const steps = [`− ${rounded(middle)}`.replace("− −", "+ "), `÷ ${rounded(s)}`, "· γ + β"];
  const at = (row) => 46 + 76 * row;
  const column = (i) => names + (i + 0.5) * cell;
  const [start, across] = [right + (names < 90 ? 14 : 40), Math.min(46, (width - right - 14) / 4)];
  const weighed = [["softmax of z", z, 0], ["softmax of y", y, 3]].map(([words, numbers, row]) => {
    const weights = softmax(numbers);
    return [
      note(start + 2 * across, at(row) - 38, words, "middle", 12),
      weights.map((weight, i) => bar(start + (i + 0.5) * across, at(row), weight, { width: across - 4, height: 60 })),
      text(start + 2 * across, at(row) + 42, `${ORDINALS[j]}: ${share(weights[j])}`, { size: 12 }),
    ];
  });
  const said = rows.map(([name, numbers]) => `${name}: ${numbers.map(rounded).join(", ")}.`).join(" ");
  return picture(
    width,
    at(3) + 56,
    `${said} Softmax of z: ${softmax(z).map(share).join(", ")}; of y: ${softmax(y).map(share).join(", ")}.`,
    z.map((_, i) => {
      const look = { filled: i === j ? 0.14 : 0, radius: 8 };
      return pickable(() => pick(i), rectangle(column(i), at(1.5), cell, at(3) - at(0) + 56, "forward", look));
    }),
    rows.map(([name, numbers], row) => [
      text(0, at(row), name, { bold: true, anchor: "start", size: names < 90 ? 12 : 15 }),
      cells(left, at(row), numbers.map(rounded), "plain", { cell, size: cell < 55 ? 13 : 15 }),
    ]),
    steps.map((words, row) => [
      arrow([left, at(row) + 18], [left, at(row + 1) - 18]),
      note(left + 12, at(row + 0.5), words, "start"),
    ]),
    weighed,
  );
}

export const normWidget = { id: "norm", title: "An outlier against LayerNorm", mount };
