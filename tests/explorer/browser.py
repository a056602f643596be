"""One headless Chromium for a test run, driven with Selenium, and what the tests ask of a page in it."""

import json
import time
from importlib.resources import files

import pytest

from scratchformer.explorer.page import WEB, bundle

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium, which drives a browser")

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--lang=en",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]

# Every figure has its sentence, and for a quarter of a second nothing has changed.
SETTLED = """
if (!window.changed) {
  window.changed = performance.now();
  const note = () => (window.changed = performance.now());
  new MutationObserver(note).observe(document, { subtree: true, childList: true });
}
const texts = (css) => [...document.querySelectorAll(css)].map((one) => one.textContent);
const sentences = texts("main .sentence, [data-widget] .sentence");
const isWaiting = texts("main :is(p, td, dd)").includes("…");
return sentences.length && sentences.every(Boolean) && !isWaiting && performance.now() > window.changed + 250;
"""

# The formulas are drawn, and the widgets are there.
DRAWN = """
const count = (css) => document.querySelectorAll(css).length;
const hasWidgets = count("[data-widget]") === count("[data-widget] .sentence");
return document.readyState === "complete" && count("mjx-container") === count(".math") && hasWidgets;
"""

# How many elements can be operated and are seen; of a group with arrow keys, it is the one that Tab reaches.
OPERABLE = """
const isShown = (element) => element.checkVisibility({ visibilityProperty: true });
const all = document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']");
window.operable = [...all].filter((one) => one.tabIndex >= 0 && !one.disabled && isShown(one));
return window.operable.length;
"""

# Notes what gets the focus, and whether that is seen: by an outline, or by the thick border of a box in Figure 1.
LISTEN_TO_FOCUS = """
document.activeElement.blur();
window.reached = [];
document.addEventListener("focusin", ({ target }) => {
  const { outlineStyle, outlineWidth } = getComputedStyle(target);
  const isOutlined = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
  const isBox = target.localName === "g" && parseFloat(getComputedStyle(target.firstChild).strokeWidth) >= 4;
  window.reached.push([target, isOutlined || isBox]);
});
"""

# What reaches further to the right than the page, without a box of its own that scrolls.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
if (document.scrollingElement.scrollWidth <= width) return [];
const rightOf = (element) => Math.round(element.getBoundingClientRect().right);
const scrolls = (element) => element !== document.body &&
  (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
const found = [...document.body.querySelectorAll("*")].filter(
  (element) => rightOf(element) > width && !scrolls(element.parentElement));
return [`${document.scrollingElement.scrollWidth} of ${width}`, ...found.map((one) => one.outerHTML.slice(0, 100))];
"""

# Text that is seen and smaller than 12 pixels; in a drawing its scale counts.
SMALL_TEXT = """
const scaleOf = (text) => {
  const { a, b, c, d } = text.getScreenCTM();
  return Math.min(Math.hypot(a, b), Math.hypot(c, d));
};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, ({ data, parentElement: parent }) =>
  data.trim() && parent.checkVisibility() && !parent.closest(".unseen, option, noscript") ? 1 : 3);
const found = [];
while (walk.nextNode()) {
  const [parent, drawn] = [walk.currentNode.parentElement, walk.currentNode.parentElement.closest("svg text")];
  const size = parseFloat(getComputedStyle(parent).fontSize) * (drawn ? scaleOf(drawn) : 1);
  if (size < 11.95) found.push(`${size.toFixed(1)} px: ${walk.currentNode.data.trim().slice(0, 60)}`);
}
return found;
"""

# What a finger is meant to touch, and is smaller than 44 pixels. In Attention's map the cells of a row do the same.
SMALL_TARGETS = """
const all = [...document.querySelectorAll("main :is(button, select, input, summary), nav a")];
const boxes = all.filter((one) => one.checkVisibility()).map((one) => [one, one.getBoundingClientRect()]);
const small = boxes.filter(([one, { width, height }]) => (width < 43.5 && !one.closest(".large-map")) || height < 43.5);
return small.map(([one, { width, height }]) => `${Math.round(width)} x ${Math.round(height)}: ${one.outerHTML}`);
"""

# What does not fit its box in the view, and words that are broken, for example where a font is wider than ours.
OVERFLOWING = """
const boxes = [...document.querySelectorAll("main :is(button, p, li, dd, dt, th, h1, h2, h3, .scroll)")];
const seen = boxes.filter((one) => one.checkVisibility() && one.clientWidth && !one.matches(".unseen"));
const wide = seen.filter((one) => one.scrollWidth > one.clientWidth + 1);
const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
const range = document.createRange();
const broken = [];
while (walk.nextNode()) {
  const { currentNode: node } = walk;
  for (const { 0: word, index } of node.data.matchAll(/[\\p{L}\\d]+/gu)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const tops = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
    if (tops.size > 1 && !node.parentElement.closest(".unseen, [scope=col]")) broken.push(word);
  }
}
return [...wide.map((one) => `${one.scrollWidth} of ${one.clientWidth}: ${one.outerHTML.slice(0, 150)}`), ...broken];
"""


def widgets_page(names):
    """A page with these widgets alone, as HTML."""
    style = "".join(path.read_text(encoding="utf-8") for path in (WEB / "parts.css", WEB / "widgets" / "widgets.css"))
    places = "".join(f'<h2>{name}</h2><div class="sf widget" data-widget="{name}"></div>' for name in names)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Widgets</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root { color-scheme: light dark } body { margin: 0 auto; padding: 0 1rem; max-width: 46rem;"
        " font: 16px sans-serif } @media (prefers-color-scheme: dark) { body { background: #131416; color: #cfd0d0 } }"
        f"{style}</style><main><h1>Widgets</h1>{places}</main>"
        f"<script>{bundle(WEB / 'widgets' / 'widgets.js')}</script>"
    )


class Browser:
    """A page at a time. What it logs and requests is collected until `errors()` and `requests()` are asked for."""

    def __init__(self, binary, driver):
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.driver.set_script_timeout(60)

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def open(self, address, until=SETTLED, **features):
        """Load a page anew, in a window of 1280 × 900 pixels, and wait until it is drawn; for `features` see `show`."""
        self.driver.get("about:blank")
        self.show(**features)
        self.size()
        self.driver.get(address)
        self.wait(until)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def go(self, view, parameters=""):
        """Another view of the explorer that is open."""
        self.js("document.querySelector('main h1')?.remove(); location.hash = arguments[0]", f"#/{view}?{parameters}")
        self.wait("return document.querySelector('main h1')")
        self.wait(SETTLED)

    def wait(self, script, *arguments, seconds=60):
        """Until the script returns something true -> that"""
        end = time.monotonic() + seconds
        while not (found := self.js(script, *arguments)):
            assert time.monotonic() < end, f"still not true: {script}"
            time.sleep(0.1)
        return found

    def text(self, css):
        """The text of the one element."""
        [text] = self.texts(css)
        return text

    def texts(self, css):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", css)

    def click(self, css):
        self.js("document.querySelector(arguments[0]).click()", css)

    def press(self, *keys):
        """Keys for what has the focus: names such as "Tab", or text."""
        actions = webdriver.ActionChains(self.driver, duration=0)
        for key in keys:
            actions.send_keys(getattr(webdriver.Keys, key.upper(), key))
        actions.perform()

    def type_over(self, css, *keys):
        """Put these keys in the place of what a field says."""
        self.js("const field = document.querySelector(arguments[0]); field.focus(); field.select()", css)
        self.press(*keys)

    def focus(self, css):
        self.js("document.querySelector(arguments[0]).focus()", css)

    # The window and what its user prefers -----------------------------------------------------------------------------

    def size(self, width=1280, height=900, scale=1, touch=False):
        """In CSS pixels; `scale` device pixels each: 640 with a scale of 2 are 1280 at 200 % zoom.

        With `touch` a finger takes the place of the mouse.
        """
        self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch
        )
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.js("window.changed &&= performance.now()")  # what is drawn to fit is drawn again

    def show(self, **features):
        """Prefer what media features say: show(prefers_color_scheme="dark")."""
        chosen = {"prefers_color_scheme": "light"} | features
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in chosen.items()]
        self.cdp("Emulation.setEmulatedMedia", media="", features=wanted)

    # What went wrong --------------------------------------------------------------------------------------------------

    def forget(self):
        self.errors(), self.requests()

    def errors(self):
        """Warnings and errors that the page has written to the console or thrown."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self):
        """The addresses that the page has asked for, without those of what it has made itself."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [request["url"] for request in sent if not request["url"].startswith(("data:", "blob:"))]

    def axe(self, *rules):
        """Serious and critical findings of axe-core, by these rules or by all -> ["rule: element", ...]"""
        if not self.js("return Boolean(window.axe)"):
            self.js(files("selenium_axe_python").joinpath("axe-core/axe.min.js").read_text(encoding="utf-8"))
        options = {"resultTypes": ["violations"], "preload": False, "iframes": False}
        options |= {"runOnly": rules} if rules else {"rules": {"target-size": {"enabled": True}}}
        found = self.driver.execute_async_script(
            "axe.run(arguments[0]).then((found) => arguments[1](found.violations))", options
        )
        return [
            f"{rule['id']}: {node['html'][:150]} {node['failureSummary'].splitlines()[1].strip()}"
            for rule in found
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]

    def too_wide(self):
        """Elements that make the page scroll sideways."""
        return self.js(TOO_WIDE)

    def small_text(self):
        """Text that is smaller than 12 pixels."""
        return self.js(SMALL_TEXT)

    def small_targets(self):
        """Controls that are too small for a finger."""
        return self.js(SMALL_TARGETS)

    def overflowing(self):
        """Elements that are wider than their box, and words that are broken."""
        return self.js(OVERFLOWING)

    def moving(self):
        """Animations that are running."""
        return self.js("""
            const running = document.getAnimations().filter(({ playState }) => playState === "running");
            return running.map(({ effect }) => effect.target.outerHTML.slice(0, 100));
            """)

    def tab_tour(self):
        """Press Tab through the page -> [what can be operated but was not reached, what does not show its focus]"""
        self.js(LISTEN_TO_FOCUS)
        self.press("\t" * (self.js(OPERABLE) + 5))
        return self.js("""
            const names = (elements) => elements.map((element) => element.outerHTML.slice(0, 100));
            const reached = new Map(window.reached);
            const unseen = window.reached.filter(([, seen]) => !seen).map(([element]) => element);
            return [names(window.operable.filter((element) => !reached.has(element))), names(unseen)];
            """)
