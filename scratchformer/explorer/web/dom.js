/** What every view and widget is drawn with: elements, numbers as text, native controls, heat maps, rows of words. */

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * An HTML element. A function is listened to (onclick), `true` writes an empty attribute, `null` and `false` write none.
 * Children are nodes, strings (as text), arrays, or null.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Removes the children of an element. */
export function clear(element) {
  element.replaceChildren();
}

/** A number as text with a true minus sign: 3 digits that count, whole numbers as they are, 2.1e−5 for tiny ones. */
export function number(x, digits = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "not a number" : x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  let text;
  if (Number.isInteger(x) && size < 1e6) text = String(size);
  else if (size < 1e-3 || size >= 1e6) text = size.toExponential(Math.max(0, digits - 2)).replace("e+", "e");
  else text = size >= 10 ** digits - 0.5 ? size.toFixed(0) : size.toPrecision(digits);
  return (x < 0 ? "−" : "") + text.replace("e-", "e−");
}

/** A number as text with so many decimal places and a true minus sign; one that rounds to 0 has no sign. */
export function fixed(x, places = 4) {
  const text = Math.abs(x).toFixed(places);
  return (x < 0 && Number(text) ? "−" : "") + text;
}

/** A probability as text: 62 %. Near 0 and near 1 with one decimal place, so that only an exact 0 or 1 looks like one. */
export function percent(x) {
  const hundred = 100 * x;
  if (hundred > 0 && hundred < 0.05) return "< 0.1\u00a0%";
  if (hundred < 100 && hundred >= 99.95) return "> 99.9\u00a0%";
  const near = (hundred > 0 && hundred < 1) || (hundred > 99 && hundred < 100);
  return `${hundred.toFixed(near ? 1 : 0)}\u00a0%`;
}

/** A button with a text. */
export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", class: "button", onclick, ...attributes }, text);
}

/**
 * A slider with its label, its value and its unit. `show(value)` gives the text of the value; `oninput(value)` gets a
 * number. The element's `set(value)` moves the slider without calling `oninput`.
 */
export function range({ label, min, max, step = 1, value, unit = "", show = String, oninput }) {
  const shown = h("output", { class: "range-value" });
  const input = h("input", { type: "range", min, max, step, oninput: () => (write(), oninput?.(Number(input.value))) });
  const write = () => {
    shown.textContent = show(Number(input.value)) + (unit && `\u00a0${unit}`);
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  const element = h("label", { class: "range" }, h("span", { class: "label" }, label), shown, input);
  element.set = (next) => ((input.value = next), write());
  element.set(value);
  return element;
}

/** A native select with its label. `options` are pairs of value and text; `onchange(value)` gets the value's text. */
export function choice({ label, options, value, onchange }) {
  const select = h("select", { onchange: () => onchange?.(select.value) });
  for (const [key, text] of options) select.append(h("option", { value: key, selected: String(key) === String(value) }, text));
  const element = h("label", { class: "choice" }, h("span", { class: "label" }, label), select);
  element.set = (next) => (select.value = next);
  return element;
}

/** The largest size in a list of numbers, and 1 where all are 0. */
export function largestOf(values) {
  let largest = 0;
  for (const value of values) largest = Math.max(largest, Math.abs(value));
  return largest || 1;
}

/**
 * A vector as a row of cells: positive ones are blue and in the upper half, negative ones orange and in the lower half;
 * the stronger the colour, the larger the number (`largest` has the full colour).
 */
export function strip(vector, { label, largest } = {}) {
  const most = largest ?? largestOf(vector);
  const cells = Array.from(vector, (value, i) =>
    s("rect", {
      x: i,
      y: value < 0 ? 8 : 0,
      width: 1,
      height: 8,
      fill: value < 0 ? "var(--negative)" : "var(--positive)",
      "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(3),
    }),
  );
  const box = { class: "strip", viewBox: `0 0 ${vector.length} 16`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return s("svg", box, cells);
}

/** Only the button at [row, column] is reached by Tab. */
export function reach(rows, current) {
  rows.forEach((buttons, i) => buttons.forEach((one, j) => (one.tabIndex = i === current[0] && j === current[1] ? 0 : -1)));
}

/** Arrow keys, Home and End move among `rows` of buttons. */
export function roving(container, rows) {
  container.addEventListener("keydown", (event) => {
    const i = rows.findIndex((buttons) => buttons.includes(event.target));
    if (i < 0) return;
    const j = rows[i].indexOf(event.target);
    const next = {
      ArrowLeft: [i, j - 1],
      ArrowRight: [i, j + 1],
      ArrowUp: [i - 1, j],
      ArrowDown: [i + 1, j],
      Home: [i, 0],
      End: [i, rows[i].length - 1],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const to = rows[next[0]]?.[next[1]];
    if (!to) return;
    event.target.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
}

/** A box that scrolls sideways, so that what is wide doesn't make the page scroll. */
export function scrolling(label, ...children) {
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, ...children);
}

/**
 * A table in a box that scrolls. `rows` are lists of texts or elements, of which the first names the row; a list with
 * `strong: true` is emphasised.
 */
export function table(caption, heads, rows, look = "numbers") {
  const line = (cells) => {
    const [name, ...values] = cells;
    return h("tr", { class: cells.strong ? "strong" : null }, h("th", { scope: "row" }, name), values.map((value) => h("td", {}, value)));
  };
  const top = heads.map((head) => h("th", { scope: "col" }, head));
  return scrolling(
    caption,
    h(
      "table",
      { class: `plain-table ${look}` },
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, top)),
      h("tbody", {}, rows.map(line)),
    ),
  );
}

/**
 * A matrix as a table of shaded buttons that scrolls inside its own box. The shade is the size of a number.
 *
 * matrix       { rows, cols, data }
 * rowLabels, columnLabels   one text each
 * label        what the matrix is, for people who don't see it
 * role         whose colour the cells have: "weight" or "gradient"
 * selected     [row, column] of the cell with an outline; a column of null outlines the row, and a row of null the column
 * onpick       called with (row, column); arrow keys move among the cells
 * largest      the number that has the full colour
 */
export function heatmap({ matrix, rowLabels, columnLabels, label, role, selected, onpick, largest }) {
  const { rows, cols, data } = matrix;
  const lines = [];
  const heads = columnLabels.map((text) => h("th", { scope: "col" }, h("span", {}, text)));
  const body = h("tbody");
  for (let i = 0; i < rows; i++) {
    const line = [];
    const tr = h("tr", {}, h("th", { scope: "row" }, rowLabels[i]));
    for (let j = 0; j < cols; j++) {
      const value = data[i * cols + j];
      const full = `${rowLabels[i]}, ${columnLabels[j]}: ${number(value)}`;
      const cell = h("button", { type: "button", title: full, "aria-label": full, onclick: () => onpick(i, j) });
      cell.style.setProperty("--shade", Math.min(1, Math.abs(value) / largest || 0).toFixed(3));
      const isSelected = [null, i].includes(selected[0]) && [null, j].includes(selected[1]);
      cell.setAttribute("aria-pressed", String(isSelected));
      tr.append(h("td", { class: isSelected ? "cell selected" : "cell" }, cell));
      line.push(cell);
    }
    body.append(tr);
    lines.push(line);
  }
  const map = h(
    "table",
    { class: `heatmap role-${role}` },
    h("caption", { class: "unseen" }, label),
    h("thead", {}, h("tr", {}, h("td"), heads)),
    body,
  );
  const element = scrolling(label, map);
  element.removeAttribute("tabindex"); // its buttons scroll it
  roving(map, lines);
  reach(lines, selected.map((at) => at ?? 0));
  return element;
}

/**
 * A sentence as a row of chips. With `onpick(i)` they are buttons, and the left and right arrow keys move among them.
 * `role` ("query", "key", "plain") gives the chips their colour and shape. The element's `select(i)` moves the mark and
 * keeps the focus where it is.
 */
export function words(list, { label, selected, onpick, role = "plain" } = {}) {
  const chips = list.map((word, i) => {
    const attributes = { class: `chip role-${role}`, type: onpick ? "button" : null, onclick: onpick ? () => onpick(i) : null };
    return h(onpick ? "button" : "span", attributes, word);
  });
  const element = h("div", { class: "words", role: onpick ? "toolbar" : "group", "aria-label": label }, chips);
  element.select = (chosen) => {
    chips.forEach((chip, i) => {
      chip.classList.toggle("selected", i === chosen);
      if (onpick) chip.setAttribute("aria-pressed", String(i === chosen));
    });
    if (onpick) reach([chips], [0, chosen ?? 0]);
  };
  if (onpick) roving(element, [chips]);
  element.select(selected);
  return element;
}

/**
 * A figure: what is drawn, then one sentence from its data (write it with `say(figure.sentence, …)`), then `source`,
 * which says whose weights these are (page.data.caption).
 */
export function figure(source, ...children) {
  const sentence = h("p", { class: "sentence" });
  const caption = h("figcaption", {}, sentence, source ? h("p", { class: "source" }, source) : null);
  const element = h("figure", {}, ...children, caption);
  element.sentence = sentence;
  return element;
}

let timer = 0;

/**
 * Writes a view's one sentence (text, or a list of texts and elements such as <em>) where it is seen, and a moment
 * later into the page's live region, where a screen reader hears it. Without a live region the sentence's own place is one.
 */
export function say(region, sentence) {
  region.replaceChildren(...[sentence].flat());
  const live = document.getElementById("sf-live");
  if (!live) return region.setAttribute("aria-live", "polite");
  clearTimeout(timer);
  timer = setTimeout(() => (live.textContent = region.textContent), 400);
}

/** About `count` round numbers (steps of 1, 2 or 5 times a power of ten) between `from` and `to`. */
export function ticks(from, to, count = 5) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= 0.7 * rough);
  const first = Math.ceil(from / step - 1e-9);
  const last = Math.floor(to / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** A round number of an axis: 0.0005 in full, without zeros at the end. */
const tickText = (value) => String(value).replace("-", "−");

/**
 * A line chart as SVG with a legend.
 *
 * label        what it shows, for people who don't see it
 * x, y         { label, from, to }: the axes; from and to come from the points where they are left out; y.show writes a tick
 * x.mark       where a vertical line stands
 * series       [{ name, points: [[x, y]…], role }]: lines in the colour of a role ("forward", "value", "soft", …)
 */
export function plot({ label, width, height = 260, x, y, series }) {
  const bounds = (axis, place) => {
    let from = axis.from ?? Infinity;
    let to = axis.to ?? -Infinity;
    for (const { points } of series) {
      for (const point of points) {
        if (axis.from === undefined) from = Math.min(from, point[place]);
        if (axis.to === undefined) to = Math.max(to, point[place]);
      }
    }
    return to > from ? [from, to] : [from - 1, from + 1];
  };
  const [left, right, top, bottom] = [54, 14, 26, 40];
  const [x0, x1] = bounds(x, 0);
  const [y0, y1] = bounds(y, 1);
  const acrossX = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
  const upY = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "plot" });
  for (const value of ticks(y0, y1, 4)) {
    svg.append(
      s("line", {
        x1: left,
        x2: width - right,
        y1: upY(value),
        y2: upY(value),
        stroke: "var(--line)",
        "stroke-width": 0.5,
      }),
    );
    svg.append(s("text", { x: left - 8, y: upY(value) + 4, "text-anchor": "end", class: "tick" }, (y.show ?? tickText)(value)));
  }
  for (const value of ticks(x0, x1, Math.max(2, Math.floor(width / 110)))) {
    const isLast = acrossX(value) > width - right - 16; // its text must not be cut at the edge
    svg.append(s("line", { x1: acrossX(value), x2: acrossX(value), y1: height - bottom, y2: height - bottom + 5, stroke: "var(--soft)" }));
    const place = isLast ? { x: width, "text-anchor": "end" } : { x: acrossX(value), "text-anchor": "middle" };
    svg.append(s("text", { ...place, y: height - bottom + 19, class: "tick" }, tickText(value)));
  }
  svg.append(s("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, stroke: "var(--soft)" }));
  svg.append(s("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle", class: "axis" }, x.label));
  svg.append(s("text", { x: 0, y: 12, class: "axis" }, y.label));
  if (x.mark !== undefined) svg.append(s("line", { x1: acrossX(x.mark), x2: acrossX(x.mark), y1: top, y2: height - bottom, stroke: "var(--soft)" }));
  const look = (line) => ({
    fill: "none",
    stroke: `var(--${line.role})`,
    "stroke-width": 2.2,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
  });
  for (const line of series) {
    const path = line.points
      .map(([a, b], i) => `${i ? "L" : "M"}${acrossX(a).toFixed(1)} ${upY(Math.min(y1, Math.max(y0, b))).toFixed(1)}`)
      .join("");
    if (path) svg.append(s("path", { d: path, ...look(line) }));
  }
  const names = series.map((line) =>
    h("li", {}, s("svg", { width: 28, height: 10, "aria-hidden": "true" }, s("path", { d: "M2 5H26", ...look(line) })), line.name),
  );
  return h("div", {}, svg, series.length > 1 ? h("ul", { class: "legend" }, names) : null);
}

/** A box that holds what `draw(width)` returns, drawn again when the width changes; its `redraw()` draws it now. */
export function fitted(draw) {
  const element = h("div", { class: "fitted" });
  let width = 0;
  element.redraw = () => width && element.replaceChildren(draw(width));
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    requestAnimationFrame(element.redraw);
  }).observe(element);
  return element;
}
