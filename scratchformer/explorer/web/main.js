/** The explorer's shell: reads the model that the page contains, and shows the view that the address names. */

import { clear, h } from "./dom.js";
import { Model } from "./engine/model.js";
import { tokenizerOf } from "./engine/tokenizer.js";
import { serveTraining } from "./engine/trainer.js";
import { transplantView } from "./views/transplant.js";
import { attentionView } from "./views/attention.js";
import { insideView } from "./views/inside.js";
import { trainView } from "./views/train.js";

const VIEWS = [transplantView, attentionView, insideView, trainView];

/** The views that took the place of those in old links, and what they show then. */
const HEIRS = {
  translate: ["transplant"],
  positions: ["inside"],
  backward: ["inside", ["way", "backward"]],
  schedule: ["train"],
  replay: ["train"],
};

/** What the address's part after # asks for: #/attention?layer=2 is { id: "attention", parameters: Map { layer → "2" } }. */
export function readHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { id: path, parameters: new Map(new URLSearchParams(query)) };
}

/** The address's part after # for a view and its parameters (an object or a Map); null and undefined are left out. */
export function writeHash(id, parameters = {}) {
  const pairs = parameters instanceof Map ? [...parameters] : Object.entries(parameters);
  const query = new URLSearchParams(pairs.filter(([, value]) => value !== null && value !== undefined));
  return `#/${id}${query.size ? `?${query}` : ""}`;
}

/** The weights in base64 as bytes. Raises an error with one plain line where they are damaged. */
export function readWeights(base64) {
  let text;
  try {
    text = atob(base64.trim());
  } catch {
    throw new Error("Its weights are not readable.");
  }
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  if (bytes.length % 4) throw new Error("Its weights are cut off.");
  if (!new Float32Array(bytes.buffer).every(Number.isFinite)) throw new Error("One of its weights is not a number.");
  return bytes.buffer;
}

function readModel() {
  let data;
  try {
    data = JSON.parse(document.getElementById("description").textContent);
  } catch {
    throw new Error("Its description is not readable.");
  }
  if (data.format !== 1) throw new Error(`Its format is ${data.format}, and this page reads format 1.`);
  const model = new Model(data, readWeights(document.getElementById("weights").textContent));
  document.getElementById("weights").remove();
  return { data, model, tokenizer: tokenizerOf(data.tokenizer) };
}

/**
 * A view inside another page: without the shell, with a link to the explorer at the same place (`hash()`). It tells the
 * page around it how high it is, so that its frame can fit.
 */
function embed(hash) {
  document.documentElement.classList.add("embedded");
  const link = h("a", { onclick: () => (link.href = hash()), href: hash() }, "Open the explorer");
  addEventListener("click", ({ target }) => target.closest("a")?.setAttribute("target", "_top"), true);
  document.getElementById("view").after(h("p", { class: "whole" }, link));
  if (parent === window) return;
  const tell = () => parent.postMessage({ explorerHeight: Math.ceil(document.body.getBoundingClientRect().height) }, "*");
  new ResizeObserver(tell).observe(document.body);
}

/** Shows the view of the address, and another one whenever the address changes. */
function start({ data, model, tokenizer }) {
  const root = document.getElementById("view");
  const views = VIEWS.filter(({ isPossible }) => !isPossible || isPossible(data));
  const links = views.map((view) => h("a", { href: writeHash(view.id) }, view.title));
  const shared = { sentence: data.examples[0] };
  const questionOf = ({ question }) => (typeof question === "function" ? question(data) : question);
  const origin = h("span", {}, `The model: ${data.caption}. `);
  const isEmbedded = readHash(location.hash).parameters.has("embed");
  let current = null;
  let written = null;
  let leave = null;

  function go(id, parameters) {
    const hash = writeHash(id, parameters);
    if (id !== current) return void (location.hash = hash);
    written = hash;
    history.replaceState(null, "", hash);
    links[views.findIndex((view) => view.id === id)].href = hash;
  }

  function show() {
    const asked = readHash(location.hash);
    if (location.hash === written) return;
    const first = current === null;
    const named = (id) => views.findIndex((view) => view.id === id);
    const [heir, ...given] = named(asked.id) < 0 ? (HEIRS[asked.id] ?? []) : [];
    for (const [name, value] of given) asked.parameters.set(name, value);
    const index = [named(heir ?? asked.id), 0].find((i) => i >= 0);
    const view = views[index];
    leave?.();
    current = view.id;
    written = null;
    leave = null;
    document.title = `${view.title} · scratchformer explorer`;
    links.forEach((link, i) => (i === index ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
    origin.hidden = Boolean(view.ownModel);
    const heading = h("h1", { tabindex: -1 }, questionOf(view));
    const place = h("div", { class: `view view-${view.id}` });
    const next = views[index + 1];
    clear(root);
    root.append(heading, view.lead ? h("p", { class: "lead" }, view.lead) : "", place);
    if (next)
      root.append(h("a", { class: "next", href: writeHash(next.id) }, h("span", { class: "label" }, `Next: ${next.title}`), questionOf(next)));
    const page = { model, tokenizer, data, parameters: asked.parameters, go, shared };
    try {
      leave = view.mount(place, page);
    } catch (error) {
      place.replaceChildren(h("p", { class: "trouble", role: "alert" }, `This view can't be shown. ${error.message}`));
      console.error(error);
    }
    if (!first) {
      heading.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }

  if (isEmbedded) embed(() => location.hash.replace(/[?&]embed=[^&]*/, ""));
  const navigation = document.getElementById("views");
  navigation.append(...links);
  if (data.lessons) navigation.after(h("a", { class: "course", href: `${data.lessons}../index.html` }, "The course"));
  navigation.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) links[links.indexOf(event.target) + step]?.focus();
  });
  document.getElementById("about").append(h("p", {}, origin, "Everything runs in this page; nothing that you type leaves your machine."));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names a view, not a place in the page
    root.focus();
  });
  addEventListener("hashchange", show);
  show();
}

if (globalThis.document) {
  try {
    start(readModel());
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    document
      .getElementById("view")
      .replaceChildren(
        h(
          "p",
          { class: "trouble", role: "alert" },
          `The model in this page is damaged. ${error.message} Write the page again with “scratchformer explore”.`,
        ),
      );
    console.error(error);
  }
} else if (globalThis.WorkerGlobalScope) {
  serveTraining(globalThis); // this script runs again in a worker of the view Train
}
