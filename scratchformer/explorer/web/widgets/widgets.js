/**
 * The frame of the lessons' widgets. A widget is a module that exports
 *
 *     { id, title, lang, mount(root, tell) }
 *
 * `mount` fills the empty element `root`, calls `tell(sentence)` once and after every change with one sentence from its
 * numbers, and may return a function that ends what it has started, such as a timer. In a sentence, *words between
 * stars* are emphasised, and are in the language `lang` if that is given. Reset mounts the widget again.
 */
import { button, clear, h, say } from "../dom.js";
import { beamWidget } from "./beam.js";
import { masksWidget } from "./masks.js";
import { mergesWidget } from "./merges.js";
import { normWidget } from "./norm.js";
import { positionsWidget } from "./positions.js";
import { ravineWidget } from "./ravine.js";
import { ropeWidget } from "./rope.js";
import { scalingWidget } from "./scaling.js";
import { softLookupWidget } from "./soft_lookup.js";

const WIDGETS = [softLookupWidget, scalingWidget, masksWidget, positionsWidget, normWidget];
WIDGETS.push(ravineWidget, mergesWidget, beamWidget, ropeWidget);

/** Mounts a widget into every element of the page with a data-widget that names one. */
export function mountWidgets(page) {
  for (const container of page.querySelectorAll("[data-widget]")) {
    const widget = WIDGETS.find(({ id }) => id === container.dataset.widget);
    if (!widget) continue;
    frame(container, widget);
    if (!page.getElementById("sf-live")) container.append(h("p", { id: "sf-live", class: "unseen", role: "status" }));
  }
}

/** One widget with its title, its Reset button and its sentence. An error in it ends only this widget. */
function frame(container, widget) {
  const still = [...container.childNodes]; // the lesson's figure, where the widget stands in its place
  const root = h("div", { class: "widget-body" });
  const sentence = h("p", { class: "sentence" });
  let isNew = true;
  let end = null;
  const tell = (words) => {
    const parts = words.split("*").map((part, i) => (i % 2 ? h("em", { lang: widget.lang }, part) : part));
    isNew ? sentence.replaceChildren(...parts) : say(sentence, parts);
  };
  const mount = () => {
    clear(root);
    try {
      end?.();
      end = widget.mount(root, tell);
    } catch (error) {
      root.replaceChildren(h("p", {}, `This widget could not start (${error.message}).`), ...still);
      sentence.replaceChildren();
    }
  };
  const reset = button("Reset", mount, { "aria-label": `Reset: ${widget.title}` });
  const head = h("div", { class: "widget-head" }, h("p", { class: "widget-title" }, widget.title), reset);
  container.replaceChildren(h("section", { "aria-label": `Try it: ${widget.title}` }, head, root, sentence));
  mount();
  isNew = false;
}

if (typeof document !== "undefined") {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => mountWidgets(document));
  else mountWidgets(document);
}
