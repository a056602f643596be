"""The explorer, the widgets and the site in a real browser: what a reader sees, and what she can do without a mouse."""

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import fixtures
import numpy as np
import pytest
from browser import DRAWN, SETTLED, widgets_page

from scratchformer.decoding.search import length_penalty, search
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.loss import cross_entropy
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"
PAIR = [f"The animal did not cross the street because it was too {word}." for word in ("tired", "narrow")]

# A view, and keys that change what it says: the element that gets the focus, and what is pressed then.
VIEWS = {
    "translate": ("input[type=range]", "Arrow_Left"),
    "attention": (".map:not([aria-pressed=true])", "Enter"),
    "inside": ("[data-key=next]", "Enter"),
    "backward": ("[role=toolbar] [tabindex='0']", "Arrow_Left", "Enter"),
    "positions": ("input[type=range]", "Arrow_Right"),
    "schedule": ("input[type=range]", "Arrow_Right"),
    "replay": ("input[type=range]", "Arrow_Left"),
}

# A link to a state of each view.
LINKS = {
    "translate": "s=The+dog+sleeps.&beam=2&alpha=1",
    "attention": "kind=encoder&layer=1&head=3&q=4",
    "inside": "step=encoder.0.ff.hidden&source=2&target=5&head=2",
    "backward": "word=3&nudge=2",
    "positions": "pos=20",
    "schedule": "warmup=1000&d_model=256",
    "replay": "snapshot=3",
}

# How the line below a figure begins, which says whose numbers these are.
SOURCES = ("weights of tiny_model, ", "recorded in a second run", "the paper's formula")

# The keys for each widget, after what its sentence says first: numbers that the lesson works out by hand.
WIDGETS = {
    "soft_lookup": ("5/8, on animal, and the answer is (1.375, 1.5)", "input[type=range]", "Arrow_Right"),
    "scaling": ("of animal, is 0.9993 without the division and 5/8 with it", "input[type=range]", "Arrow_Left"),
    "masks": ("its weight on slept is exactly 0", "[role=toolbar] [tabindex='0']", "Arrow_Left", "Enter"),
    "positions": ("cos 270° + cos 135° = −0.707", "input[type=range]", "Arrow_Right"),
    "ravine": ("gradient descent at a = 0.00, b = 0.47", "input[type=range]", "Arrow_Left"),
    "beam": ("schlafen die Kühe </s> (0.288)", "[role=toolbar] [tabindex='0']", "Arrow_Left", "Enter"),
}

pytestmark = pytest.mark.browser
slow = pytest.mark.slow


def near(shown, value):
    """Compare a text such as "−1.29" or "62 %" with a value, rounded; single precision may change it by 1e-4."""
    text = shown.replace("−", "-").replace("\u00a0", " ")
    scale = 100 if text.endswith(" %") else 1
    digits, _, exponent = text.removesuffix(" %").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(text.removesuffix(" %")) - scale * value) <= 0.5 * unit + 1e-4 * scale


@pytest.fixture(scope="module")
def translator():
    return load_run(TINY_MODEL)


@pytest.fixture(scope="module")
def reading(translator):
    """Results of NumPy for a model that reads a sentence and writes its own translation: stages, attention weights."""
    model, source = translator.model, np.array([[*translator.tokenizer.encode([PAIR[0]])[0], EOS]])
    [[best]] = search(model, source, extra_length=translator.extra_length)
    with fixtures.listening(model) as heard:
        logits, cache = model.forward(source, np.array([[BOS, *best.ids]]))
        weights = attention_weights(cache)
        model.backward(cross_entropy(logits, np.array([[*best.ids, EOS]]))[2], cache)
    layers = range(model.config.N)
    names = [f"encoder.{n}" for n in layers] + [f"{kind}.{n}" for n in layers for kind in ("decoder", "cross")]
    stages = {name: value[0] for name, value, _ in fixtures.stages(model.config, heard)}
    return stages, {name: heads[0] for name, heads in zip(names, weights)}


# The page -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("served", [False, pytest.param(True, marks=slow)])
def test_one_changed_word_changes_the_pronoun(browser, explorer, translator, served):
    address = explorer[served]
    browser.open(address)
    sentences = browser.texts(".pair .english")
    es, sie, *_ = translations = translator.translate(sentences)
    assert sentences[:2] == PAIR and " es " in es and " sie " in sie
    assert browser.texts(".pair .german") == translations
    assert browser.text(".output") == es
    assert browser.requests() == [address]


# Every view -----------------------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_needs_no_mouse_and_no_motion(browser, explorer, view):
    browser.open(f"{explorer[0]}#/{view}", prefers_reduced_motion="reduce")
    assert browser.tab_tour() == [[], []]
    before = browser.js("return location.hash"), browser.texts("main .sentence, main .note")
    css, *keys = VIEWS[view]
    browser.focus(f"main {css}")
    browser.press(*keys)
    assert browser.moving() == []
    browser.wait(
        """
        const said = [...document.querySelectorAll("main .sentence, main .note")].map((one) => one.textContent);
        return location.hash !== arguments[0] && said.join() !== arguments[1].join();
        """,
        *before,
    )
    assert browser.js("return document.activeElement !== document.body"), "the focus is lost"
    if view == "backward":
        assert any(re.fullmatch(r"(\d+) of \1 boxes", label) for label in browser.texts(".controls .label"))


@slow
@pytest.mark.parametrize("view, link", LINKS.items())
def test_a_view_opens_by_its_link_and_suits_everybody(browser, explorer, view, link):
    browser.open(f"{explorer[0]}#/{view}?{link}")
    assert browser.requests() == [explorer[0]]
    assert browser.js("return location.hash") == f"#/{view}?{link}"
    assert browser.text("nav [aria-current=page]") + " · scratchformer explorer" == browser.driver.title
    assert browser.text("h1").endswith("?")
    figures = browser.js("return document.querySelectorAll('main figure').length")
    sources = browser.texts("main figure figcaption .source")
    assert len(sources) == figures > 0 and all(source.startswith(SOURCES) for source in sources), sources
    assert all(re.search(r"\d", sentence) for sentence in browser.texts("main figure .sentence"))
    assert browser.wait("return document.querySelector('#sf-live').textContent") in browser.texts(".sentence")
    require_access(browser)


@slow
@pytest.mark.parametrize("view", VIEWS)
def test_text_can_be_read_and_controls_touched(browser, explorer, view):
    """Text of 12 pixels and more on a desk, on a wide screen and on a phone, and targets of 44 pixels there."""
    browser.open(f"{explorer[0]}#/{view}")
    for width in 1280, 1920:
        browser.size(width, 1080)
        browser.wait(SETTLED)
        assert browser.small_text() == []
    browser.size(390, 844, touch=True)
    browser.wait(SETTLED)
    assert browser.small_text() == [] and browser.too_wide() == []
    assert browser.small_targets() == []


def require_access(browser):
    """axe finds nothing, in light and dark; no sideways scrolling in a small window or at 200 % zoom; no motion."""
    assert browser.axe() == []
    browser.show(prefers_color_scheme="dark")
    assert browser.axe("color-contrast") == []
    browser.show(prefers_reduced_motion="reduce")
    for width, scale in (320, 1), (640, 2):
        browser.size(width, 800, scale)
        assert browser.too_wide() == []
        assert browser.moving() == []


@slow
def test_the_views_are_a_walk(browser, explorer):
    """The first Tab stops at the link that skips the views; arrow keys move among them; a new view gets the focus."""
    browser.open(explorer[0])
    browser.press("Tab")
    assert browser.js("return document.activeElement.className") == "skip"
    browser.press("Enter")
    assert browser.js("return document.activeElement.id") == "view"
    browser.focus("nav a")
    browser.press("Arrow_Right", "Enter")
    browser.wait("return document.activeElement.localName === 'h1' && location.hash.startsWith('#/attention')")
    browser.driver.back()
    browser.wait("return document.querySelector('nav [aria-current=page]').textContent === 'Translate'")
    browser.go("no-such-view")
    assert browser.text("nav [aria-current=page]") == "Translate"


@slow
@pytest.mark.parametrize("width", [1280, 390])
def test_attention_has_room_for_a_wide_font(browser, explorer, width):
    """On a phone the map scrolls by itself to the word that the chosen one looks at."""
    browser.open(f"{explorer[0]}#/attention")
    browser.js("document.documentElement.style.setProperty('--sans', 'DejaVu Sans')")
    browser.size(width, 844, touch=width < 400)
    browser.focus("[data-key='q 8']")
    browser.press("Enter")
    assert [one for one in browser.overflowing() if width > 400 or "scroll" not in one] == []
    box, *heads = browser.js("""
        const boxOf = (one) => one.getBoundingClientRect();
        const { left, right } = boxOf(document.querySelector(".large-map .scroll"));
        const heads = [...document.querySelectorAll(".large-map th.chosen")].map(boxOf);
        return [[left, right], ...heads.map((one) => [one.left, one.right])];
        """)
    assert all(box[0] - 4 < left and right < box[1] + 4 for left, right in heads) and len(heads) == 2


# Known answers --------------------------------------------------------------------------------------------------------


@slow
def test_a_typed_sentence_and_other_settings(browser, explorer, translator):
    browser.open(explorer[0])
    sentence = "The dog that the woman sees sleeps in the garden."
    browser.type_over("#sentence", sentence, "Enter")
    browser.wait("return location.hash.includes('dog')")
    for beam, alpha in (4, 0.6), (1, 1.5):
        browser.go("translate", f"s={quote(sentence)}&beam={beam}&alpha={alpha}")
        [best, *_] = next(translator.stream([sentence], beam, alpha))
        assert browser.text(".output") == best.text
        said = re.match(r"score (\S+) · log-probability (\S+) · ", browser.text(".result .note"))
        n_tokens = len(translator.tokenizer.encode([best.text])[0]) + 1
        assert near(said[1], best.score) and near(said[2], best.score * length_penalty(n_tokens, alpha))


@slow
def test_attention_is_numpy_s(browser, explorer, reading):
    browser.open(f"{explorer[0]}#/attention")
    for kind, layer, head in ("encoder", 0, 3), ("decoder", 1, 0), ("cross", 1, 1):
        browser.go("attention", f"kind={kind}&layer={layer + 1}&head={head + 1}&q=2")
        weights = reading[1][f"{kind}.{layer}"][head]
        labels = browser.js("return [...document.querySelectorAll('.large-map td button')].map((one) => one.ariaLabel)")
        shown = [label.rpartition(": ")[2] for label in labels]
        assert len(shown) == weights.size
        assert [text for text, weight in zip(shown, weights.ravel()) if not near(text, weight)] == []
        largest = browser.texts("figure .sentence")[0].partition("looks ")[2].partition(" at")[0]
        assert near(largest.removeprefix("> "), weights[2].max())


@slow
def test_heads_are_removed_one_after_another_and_put_back(browser, explorer):
    """Beside the button: the words that change, and the probability of the translation."""
    browser.open(f"{explorer[0]}#/attention")
    assert "needs decoder self-attention, layer 2, head 2 most" in browser.text(".needs p")
    for head in "cross.1.1", "decoder.1.1", "cross.0.1":
        browser.click(f"[data-key='{head}']")
        browser.focus("[data-key=remove]")
        browser.press("Enter")
        browser.wait(SETTLED)
        assert "removed" in browser.text(f"[data-key='{head}']")
    assert browser.texts(".old-new del, .old-new ins") == ["es", "sie"]
    assert re.fullmatch(r"p 28 % → 0\.2 %", browser.text(".old-new .share").replace("\u00a0", " "))
    browser.focus("[data-key=all]")
    browser.press("Enter")
    assert browser.texts(".old-new strong, .map.gone") == []
    assert browser.js("return document.activeElement.dataset.key") == "remove"


@slow
def test_numbers_inside_are_numpy_s(browser, explorer, reading):
    browser.open(f"{explorer[0]}#/inside")
    source = {"source.positions", "encoder.0.self.qkv", "encoder.1.ff.hidden"}
    for step in *source, "decoder.0.self.heads", "decoder.1.cross.out", "logits":
        browser.go("inside", f"step={step}&source=3&target=5&head=2")
        cells = (
            "return [...document.querySelectorAll('.number-cell')].map((one) => [one.dataset.key, one.lastChild.data])"
        )
        shown = {tuple(key.split()): text for key, text in browser.js(cells)}
        right = {(stage, i): reading[0][stage][3 if step in source else 5, int(i)] for stage, i in shown}
        assert len(shown) >= 8 and [place for place, text in shown.items() if not near(text, right[place])] == []
        stage, i = list(shown)[2]
        browser.focus(f"[data-key='{stage} {i}']")
        browser.press("Enter")
        assert near(browser.texts(".by-hand .strong td:last-child")[-1], right[stage, i])


# Widgets --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def widgets(tmp_path_factory):
    """A page with all widgets, as a file."""
    out = tmp_path_factory.mktemp("widgets") / "widgets.html"
    out.write_text(widgets_page(WIDGETS), encoding="utf-8")
    return out.as_uri()


@slow
def test_widgets_begin_with_the_lesson_s_answer_and_can_be_reset(browser, widgets):
    browser.open(widgets)
    for name, (answer, css, *keys) in WIDGETS.items():
        place = f"[data-widget={name}]"
        first = browser.text(f"{place} .sentence")
        assert answer.lower() in first.lower()
        browser.focus(f"{place} {css}")
        browser.press(*keys)
        browser.wait(
            "return document.querySelector(arguments[0]).textContent !== arguments[1]", f"{place} .sentence", first
        )
        assert browser.js("return document.querySelector(arguments[0]).contains(document.activeElement)", place)
        browser.focus(f"{place} .widget-head button")
        browser.press("Enter")
        assert browser.text(f"{place} .sentence") == first


@slow
def test_widgets_need_no_mouse_and_suit_everybody(browser, widgets):
    browser.open(widgets)
    assert browser.tab_tour() == [[], []]
    require_access(browser)


# The site -------------------------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("page", ["index.html", "lessons/04_soft_lookup.html", "api/4_decoding.html"])
def test_a_page_of_the_site_suits_everybody(browser, site, page):
    browser.open((site / page).as_uri(), until=DRAWN)
    assert re.findall(r"\\[a-z(\[]|\$`", browser.js("return document.querySelector('article').innerText")) == []
    require_access(browser)


@slow
def test_every_formula_is_drawn(browser, site, tmp_path):
    """All formulas of the lessons on one page."""
    sources = [file.read_text(encoding="utf-8") for file in site.glob("lessons/**/*.html")]
    formulas = [formula for source in sources for formula in re.findall(r"\\[(\[].*?\\[)\]](?=</)", source, re.DOTALL)]
    assert len(formulas) > 500
    page, mathjax = tmp_path / "formulas.html", (site / "_static" / "tex-svg.js").as_uri()
    page.write_text(f'<meta charset="utf-8"><script src="{mathjax}"></script>' + "<p>".join(formulas), encoding="utf-8")
    drawn = f"return document.querySelectorAll('mjx-container').length === {len(formulas)}"
    browser.open(page.as_uri(), until=drawn)
    errors = "return [...document.querySelectorAll('[data-mjx-error]')].map((one) => one.dataset.mjxError)"
    assert browser.js(errors) == []


FOUND = "return [...document.querySelectorAll('#search-results a')].some((one) => one.href.includes('04_soft_lookup'))"


@slow
def test_a_lesson_has_its_widget_and_a_search_finds_it(browser, site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        browser.open(f"{address}/search.html?q=soft+lookup", until=FOUND)
        browser.open(f"{address}/lessons/04_soft_lookup.html", until=DRAWN)
        assert WIDGETS["soft_lookup"][0] in browser.text("[data-widget=soft_lookup] .sentence")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
