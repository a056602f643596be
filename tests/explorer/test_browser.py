"""The explorer, the widgets and the site in a real browser: what a reader sees, and what she can do without a mouse."""

import re
import time
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from urllib.parse import parse_qsl, quote

import fixtures
import numpy as np
import pytest
from browser import DRAWN, SETTLED, widgets_page

from scratchformer.decoding.search import length_penalty, search
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.loss import cross_entropy
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"
PAIR = [f"The animal did not cross the street because it was too {word}." for word in ("tired", "narrow")]
TIRED = 11  # the place of the adjective

# A view, and keys that change what it says: the element that gets the focus, and what is pressed then.
VIEWS = {
    "transplant": (".vector", "Enter"),
    "attention": (".map:not([aria-pressed=true])", "Enter"),
    "inside": ("[data-key=next]", "Enter"),
    "train": (".controls input[type=range]", "Arrow_Right"),
}

# A link to a state of each view.
LINKS = {
    "transplant": "s=The+dog+sleeps.&t=The+cow+sleeps.&moves=0.1.1&beam=2&alpha=1",
    "attention": "kind=encoder&layer=1&head=3&q=4&removed=encoder.0.2",
    "inside": "step=encoder.0.ff.hidden&source=2&target=5&head=2",
    "train": "break=mask&rate=0.01&race=1&s=the+dog+did+not+like+the+boat+because+it+was+too+light",
}

# A link to the gradients inside.
BACKWARD = "way=backward&step=decoder.0.cross.qkv&source=11&target=8&head=2&word=8"

# How the line below a figure begins, which says whose numbers these are.
SOURCES = ("weights of tiny_model, ", "a Transformer in this page, ")

# The keys for each widget, after what its sentence says first: numbers that the lesson works out by hand.
WIDGETS = {
    "soft_lookup": ("5/8, on animal, and the answer is (1.375, 1.5)", "input[type=range]", "Arrow_Right"),
    "scaling": ("of animal, is 0.9993 without the division and 5/8 with it", "input[type=range]", "Arrow_Left"),
    "masks": ("its weight on slept is exactly 0", "[role=toolbar] [tabindex='0']", "Arrow_Left", "Enter"),
    "positions": ("cos 270° + cos 135° = −0.707", "input[type=range]", "Arrow_Right"),
    "norm": ("its 4th number, 100, becomes n = 1.73", "input[type=range]", "Arrow_Right"),
    "ravine": ("all three start with the loss 50.5", ".button.main", "Enter"),
    "merges": ("n and d, which stand side by side 16 times", ".merging button", "Arrow_Right", "Enter"),
    "beam": ("each step will keep the 2 likeliest", ".button.main", "Enter"),
    "rope": ("the score 11.94 + 15.40 = 27.34", "input[type=range]", "Arrow_Right"),
}

pytestmark = pytest.mark.browser
slow = pytest.mark.slow


def near(shown, value, slack=1e-4):
    """Compare a text such as "−1.29" or "62 %" with a value, rounded; single precision may change it by `slack`."""
    text = shown.replace("−", "-").replace("\u00a0", " ")
    scale = 100 if text.endswith(" %") else 1
    digits, _, exponent = text.removesuffix(" %").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(text.removesuffix(" %")) - scale * value) <= 0.5 * unit + slack * scale


@pytest.fixture(scope="module")
def translator():
    return load_run(TINY_MODEL)


@pytest.fixture(scope="module")
def reading(translator):
    """Results of NumPy for a model that reads a sentence and writes its own translation: stages, attention weights, the
    position of the pronoun, and of the pronoun's loss the gradients of the stages and the weights."""
    model, source = translator.model, np.array([[*translator.tokenizer.encode([PAIR[0]])[0], EOS]])
    [[best]] = search(model, source, extra_length=translator.extra_length)
    at = translator.tokenizer.pieces(best.ids).index("\u2581es")
    target = np.full((1, len(best.ids) + 1), PAD)
    target[0, at] = best.ids[at]
    model.store.grad[...] = 0
    with fixtures.listening(model) as heard:
        logits, cache = model.forward(source, np.array([[BOS, *best.ids]]))
        weights = attention_weights(cache)
        model.backward(cross_entropy(logits, target)[2], cache)
    layers = range(model.config.N)
    names = [f"encoder.{n}" for n in layers] + [f"{kind}.{n}" for n in layers for kind in ("decoder", "cross")]
    values, gradients = {}, {}
    for name, value, gradient in fixtures.stages(model.config, heard):
        values[name], gradients[name] = value[0], gradient[0]
    of_weights = {name: grad.copy() for name, grad in model.store.named_views(model.store.grad).items()}
    attention = {name: heads[0] for name, heads in zip(names, weights)}
    return SimpleNamespace(stages=values, attention=attention, at=at, gradients=gradients, of_weights=of_weights)


# The page -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exchanged(translator):
    """NumPy's distributions of the word after "weil": without a move, and with the other sentence's vector at a place.

    exchanged[side] is without a move, exchanged[side, place] with one, and exchanged[side, TIRED, place] with the
    vector of a place at the adjective's -> {"es": p, "sie": p, "er": p}
    """
    model, [prefix] = translator.model, translator.tokenizer.encode(["Das Tier überquerte die Straße nicht, weil"])
    sources = [np.array([[*ids, EOS]]) for ids in translator.tokenizer.encode(PAIR)]
    memories, found = [model.encode(source) for source in sources], {}
    tokens = {word: translator.tokenizer.encode([f"weil {word}"])[0][-1] for word in ("es", "sie", "er")}
    for side, source in enumerate(sources):
        places = range(source.shape[1])
        for move in (None, *((place, place) for place in places), *((TIRED, place) for place in places)):
            memory = memories[side][0].copy()
            if move:
                memory[0, move[0]] = memories[1 - side][0][0, move[1]]
            model.encode = lambda *_, changed=(memory, *memories[side][1:]), **__: changed
            logits = model.forward(source, np.array([[BOS, *prefix]]))[0][0, -1]
            p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            key = (side, *move) if move else side
            found[key] = {word: p[token] for word, token in tokens.items()}
            if move and move[0] == move[1]:
                found[side, move[0]] = found[key]
    del model.encode
    return found


def bars(browser, side):
    """The words at a sentence's bars and their percents."""
    return dict(zip(browser.texts(f".side-{side} dt"), browser.texts(f".side-{side} dd")))


def vector(side, place):
    return f"[data-key='v {side} {place}']"


def close_to(shown, probabilities):
    def is_right(text, p):
        return p < 6e-4 if text.startswith("<") else near(text, p)

    same = shown.keys() == probabilities.keys()
    return same and all(is_right(text, probabilities[word]) for word, text in shown.items())


@pytest.mark.parametrize("served", [False, pytest.param(True, marks=slow)])
def test_one_vector_of_the_adjective_changes_the_pronoun(browser, explorer, translator, exchanged, served):
    address = explorer[served]
    browser.open(address)
    assert browser.texts(".side-0 .word") == ["The", *PAIR[0].split()[1:-1], "tired", ".", "⟨end⟩"]
    assert browser.texts(".german") == translator.translate(PAIR)
    assert browser.texts(".german mark") == ["es", "sie"]
    assert close_to(bars(browser, 0), exchanged[0]) and close_to(bars(browser, 1), exchanged[1])
    browser.click(vector(1, TIRED))
    browser.wait("return document.querySelector('.side-0 .german').textContent.includes(' sie ')")
    assert close_to(bars(browser, 0), exchanged[0, TIRED]) and close_to(bars(browser, 1), exchanged[1])
    p_es, p_sie = exchanged[0, TIRED]["es"], exchanged[0, TIRED]["sie"]
    assert p_es < 0.003 < 0.9 < p_sie
    said = "return document.querySelector('.sentence').textContent.includes(arguments[0])"
    browser.wait(said, "None of the 13 other vectors of the second sentence gives sie here: this vector decides")
    others = [place for place in range(14) if place != TIRED]
    assert all(exchanged[0, TIRED, place]["es"] > exchanged[0, TIRED, place]["sie"] for place in others)
    browser.click("[data-key=undo]")
    browser.click(vector(0, TIRED))
    controls = [100 * exchanged[1, TIRED, place]["es"] for place in others]
    span = f"{min(controls):.0f}\xa0% to {max(controls):.0f}\xa0%"
    browser.wait(said, f"Any vector here gives es, the 13 others with {span}: what counts is that narrow is gone.")
    assert browser.requests() == [address]


@slow
def test_all_are_tried_and_attention_looks_elsewhere(browser, explorer, exchanged):
    browser.open(explorer[0])
    browser.click("[data-key=try]")
    browser.wait("return document.querySelectorAll('.slot .bar').length === 28")
    for side, word in enumerate(("es", "sie")):
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.style.getPropertyValue('--share'))"
        )
        shares = [float(share) for share in browser.js(script, f".side-{side} .slot .bar")]
        effects = [abs(exchanged[side, place][word] - exchanged[side][word]) for place in range(14)]
        assert shares == pytest.approx(effects, abs=2e-4)
        assert shares[TIRED] > 0.9 > 0.01 > max(shares[:TIRED] + shares[TIRED + 1 :])
    browser.wait(
        "return document.querySelector('.sentence').textContent.includes('what counts is that narrow is gone')"
    )
    said = browser.text(".sentence")
    first = "with the vector of narrow in the place of tired, p(es) goes from 91\xa0% to 0.2\xa0%"
    assert f"{first}; after any other exchange it is 91" in said
    browser.js("document.querySelector('.looked').open = true")
    first, second = browser.wait(
        "const said = [...document.querySelectorAll('.looked .sentence')]; return said.map((one) => one.textContent)"
    )
    assert re.search(
        r"look most at too; .*tired gets 13\xa0%.* 0\.7\xa0% where only the rows before read narrow, 73", first
    )
    assert re.search(
        r"narrow gets 0\.5\xa0%. .* the row that must write Tier looks at narrow most: > 99\.9\xa0%", second
    )
    assert browser.texts(".looked figure:first-child tr:last-child td")[-1] == "0.2\xa0%"


@slow
def test_a_move_needs_no_mouse(browser, explorer):
    """Arrow keys choose a vector, Enter moves it and takes it back; a list has the other places."""
    browser.open(explorer[0])
    browser.focus(vector(0, 0))
    browser.press("Arrow_Down", "Arrow_Down", "Arrow_Down", "End", "Arrow_Left", "Arrow_Left", "Enter")
    browser.wait("return location.hash === '#/transplant?moves=0.11.11'")
    assert browser.js("return document.activeElement.dataset.key") == "v 1 11"
    browser.press("Enter")
    browser.wait("return location.hash === '#/transplant'")
    browser.press("Enter")
    browser.wait("return document.querySelector('[data-key=where]')")
    browser.focus("[data-key=where]")
    browser.press("Arrow_Up")
    browser.wait("return location.hash === '#/transplant?moves=0.10.11'")
    browser.focus("[data-key=undo]")
    browser.press("Enter")
    browser.wait("return location.hash === '#/transplant'")


def finger(browser, *points):
    """Touch the screen at the first point, move to the others, and lift."""
    for kind, at in (("touchStart", points[0]), *(("touchMove", at) for at in points[1:]), ("touchEnd", None)):
        places = [] if at is None else [{"x": at[0], "y": at[1]}]
        browser.cdp("Input.dispatchTouchEvent", type=kind, touchPoints=places)


def middle(browser, css):
    script = """
        const { x, y, width, height } = document.querySelector(arguments[0]).getBoundingClientRect();
        return [x + width / 2, y + height / 2];
        """
    return browser.js(script, css)


@slow
def test_a_drag_that_another_view_cuts_off_leaves_nothing(browser, explorer):
    browser.open(explorer[0])
    x, y = middle(browser, vector(0, TIRED))
    for kind, down in (("mousePressed", 0), ("mouseMoved", 80)):
        browser.cdp("Input.dispatchMouseEvent", type=kind, x=x, y=y + down, button="left", buttons=1, clickCount=1)
    assert browser.js("return document.querySelectorAll('.ghost').length") == 1
    browser.go("attention")
    browser.cdp("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, button="left", clickCount=1)
    assert browser.js("return document.querySelectorAll('.ghost').length") == 0


@slow
def test_a_finger_taps_and_drags(browser, explorer):
    browser.open(explorer[0])
    browser.size(390, 844, touch=True)
    browser.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        browser.js("document.querySelector('.side-0 .german').scrollIntoView({ block: 'center' })")
        small = """
            const buttons = [...document.querySelectorAll(".slot button")];
            return buttons.filter(({ offsetHeight, offsetWidth }) => offsetHeight < 44 || offsetWidth < 44);
            """
        assert browser.js(small) == [] and browser.too_wide() == []
        finger(browser, middle(browser, vector(0, TIRED)))
        browser.wait("return location.hash === '#/transplant?moves=1.11.11'")
        browser.wait("""
            const [german, chances] = [...document.querySelectorAll(".side-1 :is(.german, .chances)")];
            const { bottom } = chances.getBoundingClientRect();
            return german.getBoundingClientRect().top > 0 && bottom <= innerHeight;
            """)
        finger(browser, middle(browser, vector(0, TIRED)))
        browser.wait("return location.hash === '#/transplant'")
        (x0, y0), (x1, y1) = middle(browser, vector(1, 4)), middle(browser, vector(0, TIRED))
        steps = [(x0 + (x1 - x0) * n / 5, y0 + (y1 - y0) * n / 5) for n in range(6)]
        finger(browser, *steps)
        browser.wait("return location.hash === '#/transplant?moves=0.11.4'")
        assert browser.js("return document.querySelectorAll('.ghost, .over').length") == 0
        browser.js("document.querySelector('.looked').open = true")
        browser.wait("return document.querySelector('.looked table')")
        assert browser.too_wide() == []
    finally:
        browser.cdp("Emulation.setTouchEmulationEnabled", enabled=False)


@slow
def test_a_german_word_is_asked_about(browser, explorer, translator):
    """The bars of each sentence follow its own German words before the one that was tapped."""
    pair = [PAIR[0].replace("animal", animal) for animal in ("cat", "dog")]
    browser.open(f"{explorer[0]}#/transplant?s={quote(pair[0])}&t={quote(pair[1])}")
    assert browser.text("h1") == "Which vector decides Die or Der?"
    browser.click("[data-key='g 0 7']")
    browser.wait("return document.querySelector('.sentence').textContent.startsWith('At this word')")
    assert browser.text("h1") == "Which vector decides the pronoun?"
    assert browser.texts(".ask[aria-pressed=true]") == ["sie", "er"]
    assert browser.js("return location.hash").endswith("&word=0.8")
    tokenizer = translator.tokenizer
    for side, start in enumerate(("Die Katze", "Der Hund")):
        source, before = tokenizer.encode([pair[side], f"{start} überquerte die Straße nicht, weil"])
        logits = translator.model.forward(np.array([[*source, EOS]]), np.array([[BOS, *before]]))[0][0, -1]
        p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        tokens = {word: tokenizer.encode([f"weil {word}"])[0][-1] for word in ("sie", "er", "es")}
        assert close_to(bars(browser, side), {word: p[token] for word, token in tokens.items()})
    browser.click(vector(1, 1))
    browser.wait("return document.querySelector('.sentence').textContent.includes('the bars keep the old words')")
    assert browser.texts(".side-0 .ask[aria-pressed=true]") == ["er"]


@slow
def test_own_words(browser, explorer, translator):
    """A word is selected in the field by its button; words that the training text has not are underlined there."""
    browser.open(explorer[0])
    browser.click("[data-key='w 0 11']")
    assert browser.js("return String(getSelection())") == "tired"
    assert len(browser.texts(".side-0 .menu button")) == 8 and "hungry" in browser.texts(".side-0 .menu button")
    browser.type_over(".side-0 input", "The astronaut saw the dg.")
    browser.wait("return document.querySelectorAll('.side-0 .marks mark').length === 2")
    assert browser.texts(".side-0 .marks mark") == ["astronaut", "dg"]
    assert browser.text(".side-0 .marks") == "The astronaut saw the dg."
    assert browser.texts(".side-0 .hints button") == ["dog"]
    browser.click(".side-0 .hints button")
    sentence = "The astronaut saw the dog."
    [german] = translator.translate([sentence])
    browser.wait("return document.querySelector('.side-0 .german').textContent === arguments[0]", german)
    assert quote(sentence).replace("%20", "+") in browser.js("return location.hash")
    browser.type_over(".side-0 input", " ")
    assert (
        browser.wait("return document.querySelector('.side-0 .trouble:not([hidden])')?.textContent")
        == "Type a sentence first."
    )
    browser.go("attention", "s=The+dg+sleeps.")
    assert browser.texts(".sentence-form .marks mark") == ["dg"]


@slow
def test_a_page_around_it_shows_the_view_alone(browser, explorer, tmp_path):
    frame = f"<iframe src='{explorer[0]}#/transplant?embed=1' style='width: 100%; height: 200px; border: 0'></iframe>"
    listen = """
        addEventListener("message", ({ data }) => {
          document.querySelector("iframe").style.height = `${data.explorerHeight}px`;
          window.height = data.explorerHeight;
        });
        """
    page = tmp_path / "around.html"
    page.write_text(f"<!doctype html><title>Around</title>{frame}<script>{listen}</script>", encoding="utf-8")
    browser.open(page.as_uri(), until="return window.height > 300")
    browser.driver.switch_to.frame(0)
    browser.wait("return document.querySelector('.chances dd')")
    hidden = "return [...document.querySelectorAll('header, footer, h1, .next')].filter((one) => one.checkVisibility())"
    assert browser.js(hidden) == []
    browser.wait("return document.scrollingElement.scrollHeight <= innerHeight")
    browser.click(vector(1, TIRED))
    browser.wait("return document.querySelector('[data-key=where]')")
    browser.click(".whole a")
    browser.driver.switch_to.default_content()
    browser.wait("return location.hash === '#/transplant?moves=0.11.11' && document.querySelector('nav a')")


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


@slow
@pytest.mark.parametrize("view, link", [*LINKS.items(), ("inside", BACKWARD)])
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
@pytest.mark.parametrize("view", [*VIEWS, f"inside?{BACKWARD}"])
def test_text_can_be_read_and_controls_touched(browser, explorer, view):
    """Text of 12 pixels and more on a desk, on a wide screen and on a phone, and targets of 44 pixels there."""
    browser.open(f"{explorer[0]}#/{view}")
    browser.js("document.querySelectorAll('main details').forEach((fold) => (fold.open = true))")
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
    browser.wait("return document.querySelector('nav [aria-current=page]').textContent === 'Transplant'")
    browser.go("no-such-view")
    assert browser.text("nav [aria-current=page]") == "Transplant"
    browser.go("translate", "s=The+dog+sleeps.&beam=2")  # an old link
    assert browser.js("return location.hash") == "#/transplant?s=The+dog+sleeps.&beam=2&alpha=0.6"
    footer = "return document.getElementById('about').innerText"
    assert "BLEU" in browser.js(footer)
    browser.go("train")  # has a model of its own
    assert "BLEU" not in browser.js(footer) and "leaves your machine" in browser.js(footer)


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
        const heads = [...document.querySelectorAll(".large-map th.here")].map(boxOf);
        return [[left, right], ...heads.map((one) => [one.left, one.right])];
        """)
    assert all(box[0] - 4 < left and right < box[1] + 4 for left, right in heads) and len(heads) == 2


# Known answers --------------------------------------------------------------------------------------------------------


@slow
def test_a_search_with_other_settings(browser, explorer, translator):
    browser.open(explorer[0])
    sentence = "The dog that the woman sees sleeps in the garden."
    for beam, alpha in (4, 0.6), (1, 1.5):
        browser.go("transplant", f"s={quote(sentence)}&beam={beam}&alpha={alpha}")
        [best, *_] = next(translator.stream([sentence], beam, alpha))
        assert browser.text(".output") == best.text
        said = re.search(
            r"is (\S+)\. Divided by the length penalty (\S+) it gives the score ([^\s,]+),",
            browser.texts(".sentence")[-1],
        )
        n_tokens = len(translator.tokenizer.encode([best.text])[0]) + 1
        penalty = length_penalty(n_tokens, alpha)
        assert near(said[1], best.score * penalty) and near(said[2], penalty) and near(said[3], best.score)


@slow
def test_attention_is_numpy_s(browser, explorer, reading):
    browser.open(f"{explorer[0]}#/attention")
    for kind, layer, head in ("encoder", 0, 3), ("decoder", 1, 0), ("cross", 1, 1):
        browser.go("attention", f"kind={kind}&layer={layer + 1}&head={head + 1}&q=2")
        weights = reading.attention[f"{kind}.{layer}"][head]
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
    browser.wait("return document.querySelector('.map.most')")
    assert browser.js("return document.querySelector('.map.most').dataset.key") == "decoder.1.1"
    assert "Removed alone, decoder self-attention, layer 2, head 2 costs es most" in browser.texts(".needs p")[0]
    for head in "cross.1.1", "decoder.1.1", "cross.0.1":
        browser.click(f"[data-key='{head}']")
        browser.focus("[data-key=remove]")
        browser.press("Enter")
        browser.wait(SETTLED)
        assert "removed" in browser.text(f"[data-key='{head}']")
    assert browser.texts(".old-new del, .old-new ins") == ["es", "sie"]
    assert re.fullmatch(r"p of this translation 28 % → 0\.2 %", browser.text(".old-new .share").replace("\u00a0", " "))
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
        right = {(stage, i): reading.stages[stage][3 if step in source else 5, int(i)] for stage, i in shown}
        assert len(shown) >= 8 and [place for place, text in shown.items() if not near(text, right[place])] == []
        stage, i = list(shown)[2]
        browser.focus(f"[data-key='{stage} {i}']")
        browser.press("Enter")
        assert near(browser.texts(".by-hand .strong td:last-child")[-1], right[stage, i])
        if step.endswith(".out"):  # the deviation that is used is the one that is made
            browser.click(".by-hand [data-key=all]")
            assert browser.texts(".by-hand td")[3] == browser.texts(".by-hand .strong td")[-1]


@slow
def test_inside_plays_its_steps_with_their_sentences(browser, explorer):
    browser.open(f"{explorer[0]}#/inside?way=backward")
    said = {browser.text("figure .sentence")}
    browser.click("[data-key=play]")
    while len(said) < 3:
        before = browser.text("figure .sentence")
        browser.wait("return document.querySelector('figure .sentence').textContent !== arguments[0]", before)
        said.add(browser.text("figure .sentence"))
    assert browser.text("[data-key=play]") == "Pause"
    browser.click("[data-key=back]")
    assert browser.text("[data-key=play]") == "Play"


SLACK = 2e-6  # of gradients, which are small numbers
CELLS = "return [...document.querySelectorAll('.number-cell')].map((one) => [one.dataset.key, one.lastChild.data])"


@slow
def test_gradients_inside_are_numpy_s_and_agree_with_their_check(browser, explorer, reading):
    browser.open(f"{explorer[0]}#/inside?way=backward")
    assert f"word={reading.at}" in browser.js("return location.hash")
    source = {"source.embedding", "encoder.0.self.qkv", "encoder.1.ff.hidden"}
    for step in *source, "decoder.0.self.heads", "decoder.1.cross.out", "decoder.0.ff.update", "logits":
        row = 3 if step in source else reading.at
        browser.go("inside", f"way=backward&step={step}&source=3&target={row}&head=2")
        shown = {key: text for key, text in browser.js(CELLS) if not key.startswith("weight ")}
        right = {key: reading.gradients[key.split()[0]][row, int(key.split()[1])] for key in shown}
        assert len(shown) >= 8 and [key for key, text in shown.items() if not near(text, right[key], SLACK)] == []
        open_and_check(browser, list(shown)[-6], right[list(shown)[-6]])


@slow
@pytest.mark.parametrize(
    "stage, name, parameter",
    [
        ("encoder.0.ff.hidden", "W_1", "encoder.layers.0.feed_forward.inner.weight"),
        ("decoder.1.cross.out", "γ", "decoder.layers.1.cross_attention.norm.gamma"),
        ("logits", "E", "source_embedding.weight"),
    ],
)
def test_gradients_of_weights_are_numpy_s(browser, explorer, reading, stage, name, parameter):
    browser.open(f"{explorer[0]}#/inside?way=backward&step={stage}")
    gradient = np.atleast_2d(reading.of_weights[parameter])
    found = [one for one, _ in browser.js(CELLS) if one.startswith("weight ")]
    *_, i, j = found[1].split()
    assert found[1] == f"weight {stage} {name} {i} {j}"
    open_and_check(browser, found[1], gradient[int(i), int(j)])
    browser.focus("[data-key='to adam']")
    browser.press("Enter")
    assert browser.js("return document.activeElement.localName") == "h2"
    before, after = (float(x) for x in re.search(r"from (\S+) to (\S+) ", browser.text("figure .sentence")).groups())
    assert after < before and near(browser.texts(".by-hand td")[0], gradient[int(i), int(j)], SLACK)


def open_and_check(browser, key, gradient):
    """Open a gradient by its key: the result of "By hand" and that of the check are the right one."""
    browser.focus(f"[data-key='{key}']")
    browser.press("Enter")
    results = "[...document.querySelector('.by-hand table').querySelectorAll('.strong td:last-child')]"
    assert near(browser.js(f"return {results}.at(-1).textContent"), gradient, SLACK)
    browser.focus("[data-key=check]")
    browser.press("Enter")
    assert browser.js("return document.activeElement.className") == "note"
    *_, slope, by_hand = (float(text.replace("\u2212", "-")) for text in browser.texts(".check td"))
    assert abs(slope - by_hand) <= 1e-6 * abs(by_hand) + 1e-10 and abs(by_hand - gradient) <= SLACK
    assert re.search("agree in ([6-9]|1\\d) digits", browser.text(".check .note"))


@slow
def test_the_walk_goes_both_ways_beside_the_code(browser, explorer):
    browser.open(f"{explorer[0]}#/inside?step=decoder.0.ff.hidden", prefers_reduced_motion="reduce")
    lit = "hidden, hidden_backward = linear(", "active = np.maximum(0"
    assert all(text in line for text, line in zip(lit, browser.texts(".code .lit"), strict=True))
    browser.focus("[data-key=backward]")
    browser.press("Enter")
    assert "dhidden = y_backward(dy)" in browser.text(".code .lit")
    assert browser.tab_tour() == [[], []]
    browser.js("document.activeElement.blur()")
    steps = ["decoder.0.ff.hidden"]
    while browser.js("return !document.querySelector('[data-key=next]').disabled"):
        browser.press("Arrow_Right")
        steps.append(re.search("step=([^&]+)", browser.js("return location.hash"))[1])
        assert browser.text("figure .sentence") and browser.texts(".code .lit")
    assert steps[1:3] == ["decoder.0.cross.out", "decoder.0.cross.update"] and steps[-2:] == [
        "source.embedding",
        "adam",
    ]
    assert [step for step in steps if step.startswith("encoder.1.")] == ["encoder.1.ff.out"]
    browser.size(390, 844, touch=True)
    browser.wait("return document.querySelector('.figure-one').clientWidth < 390")
    height, *sizes = browser.js("""
        const texts = [...document.querySelectorAll(".view-inside svg text, .view-inside .label")];
        const fonts = texts.map((one) => parseFloat(getComputedStyle(one).fontSize));
        return [document.querySelector(".inside-picture").clientHeight, ...fonts];
        """)
    assert height <= 844 and min(sizes) >= 12


# Train ----------------------------------------------------------------------------------------------------------------

# Counts the workers that the page makes, and their messages.
LISTEN_TO_WORKERS = """
window.workers = window.messages = 0;
window.Worker = class extends Worker {
  constructor(...given) {
    super(...given);
    window.workers++;
    this.addEventListener("message", () => window.messages++);
  }
};
"""


def open_train(browser, address, before=LISTEN_TO_WORKERS, **features):
    browser.open(f"{address}#/attention", **features)
    browser.js(before)
    browser.go("train")


def train_button(browser, name):
    """Focus a button by its text, and press Enter."""
    script = "[...document.querySelectorAll('main button')].find((one) => one.textContent === arguments[0]).focus()"
    browser.js(script, name)
    browser.press("Enter")


def step_of(browser):
    said = re.match(r"At step (\d+) ", browser.text("figure .sentence"))
    return int(said[1]) if said else 0


def train_until(browser, step, is_started=False):
    if not is_started:
        train_button(browser, "Train")
    said = "document.querySelector('figure .sentence').textContent.match(/At step (\\d+) /)"
    browser.wait(f"return Number({said}?.[1]) >= {step}")
    train_button(browser, "Pause")
    browser.wait("return [...document.querySelectorAll('main button')].some((one) => one.textContent === 'Train')")
    time.sleep(0.5)
    return step_of(browser)


@slow
@pytest.mark.parametrize("served", [False, True])
def test_a_worker_trains_without_a_mouse(browser, explorer, served):
    open_train(browser, explorer[served])
    first = browser.text(".train-written")
    assert browser.texts(".train .bars li")[-1] == "Right sentences0 of 30"
    step = train_until(browser, 120)
    time.sleep(0.5)
    assert step_of(browser) == step, "it pauses"
    train_button(browser, "One step")
    browser.wait(f"return document.querySelector('figure .sentence').textContent.startsWith('At step {step + 1} ')")
    assert browser.js("return window.workers === 1 && window.messages > 3")
    assert browser.text(".train-written") != first
    shown = browser.texts(".train .bars li")
    assert [text.split()[0] for text in shown[:3]] == ["er", "sie", "es"] and browser.texts(".train .right")
    assert shown[-1] != "Right sentences0 of 30"
    browser.focus(".train-time input")
    browser.press("Home")
    browser.wait("return document.querySelector('figure .sentence').textContent.startsWith('Before the first step')")
    assert browser.text(".train-written") == first and browser.texts(".train .bars li")[-1] == "Right sentences0 of 30"
    browser.press("End")
    browser.wait(f"return document.querySelector('figure .sentence').textContent.startsWith('At step {step + 1} ')")
    browser.go("attention")
    browser.go("train")
    assert step_of(browser) == 0 and browser.js("return window.workers") == 2


@slow
def test_it_trains_on_the_page_where_no_worker_can_be_made(browser, explorer):
    open_train(browser, explorer[0], "window.Worker = undefined")
    assert train_until(browser, 20) < 100
    browser.wait("return document.querySelector('.plot path')")


@slow
def test_a_broken_model_races_a_whole_one(browser, explorer):
    open_train(browser, explorer[0])
    browser.focus("main select")
    browser.press("Arrow_Down")
    browser.wait("return location.hash === '#/train?break=mask'")
    train_button(browser, "Race against a whole model")
    browser.wait("return location.hash === '#/train?break=mask&race=1'")
    train_until(browser, 190, is_started=True)
    assert browser.texts(".legend li") == ["No mask", "Whole"]
    assert browser.js("return [...document.querySelectorAll('.plot path')].every((one) => one.outerHTML.length > 999)")
    labels = browser.texts(".train-reading .label")
    assert [text.split(",")[0] for text in labels] == ["No mask", "Whole"]
    broken, whole = [
        int(text[15:-6]) for text in browser.texts(".train .bars li") if text.startswith("Right sentences")
    ]
    assert broken == 0 < whole
    browser.wait("return document.querySelector('figure .sentence').textContent.includes('it sees the word')")
    assert set(browser.texts(".train-places tbody tr:first-child td")) == {"30"}
    browser.size(390, 844)
    assert browser.too_wide() == [] and browser.axe() == []


@slow
def test_typed_words_at_any_step(browser, explorer):
    open_train(browser, explorer[0])
    browser.type_over("form input", "The dog saw a zebra.", "Enter")
    trouble = "return document.querySelector('form .trouble:not([hidden])')?.textContent"
    assert browser.wait(trouble) == "It does not know “saw”, “a”, “zebra”; its words are listed below."
    browser.type_over("form input", "The dog did not like the boat because it was too old.", "Enter")
    browser.wait("return location.hash.endsWith('s=the+dog+did+not+like+the+boat+because+it+was+too+old')")
    said = "return document.querySelector('.train .label').textContent"
    browser.wait(f"{said} !== 'A held-out sentence, which no step trains on'")
    assert browser.js(trouble) is None
    browser.js("document.querySelector('.train-swaps .button:not(:disabled, [aria-pressed=true])').focus()")
    browser.press("Enter")
    browser.wait("return document.activeElement.getAttribute('aria-pressed') === 'true'")
    verb, _ = browser.texts(".train-swaps [aria-pressed=true]")
    assert browser.text(".train-source").startswith(f"The dog did not {verb} the boat")
    browser.type_over("form input", "tired", "Enter")
    browser.wait("return document.querySelector('.train-source').textContent === 'Tired.'")
    assert browser.js("return document.activeElement === document.querySelector('form input')")


@slow
def test_with_reduced_motion_it_is_drawn_twice_a_second(browser, explorer):
    open_train(browser, explorer[0], prefers_reduced_motion="reduce")
    browser.js("""
        window.drawn = 0;
        const place = document.querySelector(".train-reading");
        new MutationObserver(() => window.drawn++).observe(place, { childList: true });
        """)
    train_button(browser, "Train")
    time.sleep(3)
    assert 2 <= browser.js("return window.drawn") <= 8 and browser.moving() == []
    train_button(browser, "Pause")
    assert step_of(browser) > 0


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


@slow
def test_links_into_the_explorer_open_what_they_name(browser, site):
    """A view writes what it shows into the address. There, a view or a state that does not exist is replaced."""
    pages = [file.read_text(encoding="utf-8") for file in site.rglob("*.html")]
    found = {unescape(link) for page in pages for link in re.findall(r'="[./]*explorer\.html#/([^"]+)"', page)}
    links = {re.sub(r"[?&]embed=1", "", link) for link in found}
    assert len(links) > 12
    browser.open((site / "explorer.html").as_uri())
    for link in sorted(links):
        view, _, state = link.partition("?")
        browser.go(view, state)
        shown, _, shown_state = browser.js("return location.hash.slice(2)").partition("?")
        assert (shown, set(parse_qsl(state)) - set(parse_qsl(shown_state))) == (view, set()), link


@slow
def test_a_frame_of_the_explorer_is_as_high_as_the_view_in_it(browser, site):
    browser.open((site / "index.html").as_uri(), until="return document.querySelector('iframe.explorer').style.height")
    assert browser.js("return getComputedStyle(document.querySelector('iframe.explorer + figure')).display") == "none"
    browser.driver.switch_to.frame(0)
    browser.wait(SETTLED)
    for width in 1280, 390:
        browser.size(width)
        browser.wait("return document.scrollingElement.scrollHeight <= innerHeight")
    browser.driver.switch_to.default_content()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
