"""The figures draw the right numbers, and files are reproducible."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import rc_context
from matplotlib.font_manager import fontManager
from matplotlib.image import imread
from matplotlib.text import Text

from scratchformer.config import ModelConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.experiments import figures
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.layers import sinusoids
from scratchformer.nn.optim import noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, EOS, Tokenizer

SENTENCES = [
    "the dog sees a cat .",
    "a cat sees the old dog .",
    "der hund sieht eine katze .",
    "eine katze sieht den hund .",
]
SENTENCE = "the old cat sees a dog ."
N, H, WARMUP = 2, 2, 4


def make_model(**settings):
    return Transformer(ModelConfig(vocab_size=60, N=N, d_model=24, d_ff=16, h=H, **settings), seed=0)


@pytest.fixture(scope="module")
def translator():
    return Translator(make_model(), Tokenizer.train(SENTENCES, 60), extra_length=5)


def step_entries(n):
    """A log of n steps, of 1000, 1010, 1020, ... target tokens."""
    tokens = [1000 + 10 * step for step in range(n)]
    return [
        {
            "step": step,
            "loss": 5 / step,
            "target_tokens": tokens[step - 1],
            "all_target_tokens": sum(tokens[:step]),
            "learning_rate": noam(step, 24, WARMUP),
        }
        for step in range(1, n + 1)
    ]


def every_figure(translator):
    steps = step_entries(9)
    seen = {"step": 9, "loss": 1.5, "bleu": 20.0, "all_target_tokens": 9360}
    return {
        "loss": figures.loss_figure(steps, [seen], [seen]),
        "schedule": figures.schedule_figure(24, WARMUP, 1.0, 20, steps),
        "positions": figures.positions_figure(translator.model),
        "attention": figures.attention_figure(translator, SENTENCE),
    }


def texts(figure):
    """All text but tick labels."""
    return " ".join(text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text")))


# Loss -----------------------------------------------------------------------------------------------------------------


def test_losses_are_drawn_over_millions_of_target_tokens():
    steps = step_entries(3)
    validation = [
        {"step": 2, "loss": 2.0, "all_target_tokens": 2010},
        {"step": 3, "loss": 1.5, "all_target_tokens": 3030},
    ]
    [axes] = figures.loss_figure(steps, validation, []).axes
    raw, mean, validated = axes.lines
    np.testing.assert_allclose(raw.get_xydata(), [(0.001, 5), (0.00201, 2.5), (0.00303, 5 / 3)])
    np.testing.assert_allclose(mean.get_xydata(), raw.get_xydata())  # too few steps for a wider window
    np.testing.assert_allclose(validated.get_xydata(), [(0.00201, 2.0), (0.00303, 1.5)])
    assert "millions" in axes.get_xlabel() and "nats" in axes.get_ylabel()
    assert f"lowest 1.500, perplexity {math.exp(1.5):.2f}" in texts(axes)


def test_bleu_has_a_panel_of_its_own():
    bleu = [{"step": 2, "bleu": 10.0, "all_target_tokens": 2010}, {"step": 3, "bleu": 12.0, "all_target_tokens": 3030}]
    loss_axes, bleu_axes = figures.loss_figure(step_entries(3), [], bleu).axes
    assert len(loss_axes.lines) == 2
    np.testing.assert_allclose(bleu_axes.lines[0].get_xydata(), [(0.00201, 10), (0.00303, 12)])
    assert bleu_axes.get_ylim()[0] == 0
    assert bleu_axes.get_xlim() == loss_axes.get_xlim()
    assert not loss_axes.get_xlabel() and "millions" in bleu_axes.get_xlabel()


def test_one_step_can_be_seen_and_none_is_refused():
    assert figures.loss_figure(step_entries(1), [], []).axes[0].lines[1].get_marker() == "o"
    with pytest.raises(UserError, match="no step is logged yet"):
        figures.loss_figure([], [], [])


def test_the_running_mean_is_weighted_by_tokens():
    values, weights = np.array([4.0, 1.0, 1.0, 6.0]), np.array([1.0, 3.0, 1.0, 1.0])
    np.testing.assert_allclose(figures.running_mean(values, weights, 1), values)
    np.testing.assert_allclose(figures.running_mean(values, weights, 3), [4, 8 / 5, 10 / 5, 7 / 2])
    mean = figures.loss_figure(step_entries(200), [], []).axes[0].lines[1]  # a window of 200 / 50 steps
    losses, tokens = ([entry[name] for entry in step_entries(200)] for name in ("loss", "target_tokens"))
    assert mean.get_ydata()[100] == pytest.approx(np.average(losses[98:103], weights=tokens[98:103]))


# Learning rate --------------------------------------------------------------------------------------------------------


def test_the_peak_is_the_rate_at_the_end_of_warmup():
    [axes] = figures.schedule_figure(512, 4000, 2.0, 100_000).axes
    line = axes.lines[0]
    peak = line.get_ydata().argmax()
    assert line.get_xydata()[peak].tolist() == [4000, noam(4000, 512, 4000, 2.0)]
    assert axes.texts[0].get_text() == f"peak: {noam(4000, 512, 4000, 2.0):.3g} at step 4,000"
    assert axes.texts[0].xy == (4000, noam(4000, 512, 4000, 2.0))
    assert line.get_xdata()[[0, -1]].tolist() == [1, 100_000]
    np.testing.assert_allclose(line.get_ydata(), [noam(int(step), 512, 4000, 2.0) for step in line.get_xdata()])


def test_the_logged_rates_lie_on_the_curve():
    [axes] = figures.schedule_figure(24, WARMUP, 1.0, 20, step_entries(9)).axes
    curve, logged = axes.lines[:2]
    np.testing.assert_allclose(logged.get_xdata(), np.arange(1, 10))
    np.testing.assert_allclose(logged.get_ydata(), curve.get_ydata()[:9])


def test_a_run_that_ends_before_the_peak():
    [axes] = figures.schedule_figure(512, 4000, 1.0, 1000).axes
    assert axes.texts[0].get_text().startswith("still rising") and "step 1,000" in axes.texts[0].get_text()
    with pytest.raises(UserError, match="steps=0"):
        figures.schedule_figure(512, 4000, 1.0, 0)


# Positions ------------------------------------------------------------------------------------------------------------


def test_sinusoids_are_drawn_once_sines_first():
    map_axes, product_axes, colour_bar = figures.positions_figure(make_model()).axes
    vectors = sinusoids(0, figures.SHOWN_POSITIONS, 24)
    drawn = map_axes.images[0].get_array()
    np.testing.assert_array_equal(drawn[:, :12], vectors[:, 0::2])
    np.testing.assert_array_equal(drawn[:, 12:], vectors[:, 1::2])
    assert [tick.get_text() for tick in map_axes.get_xticklabels()] == ["0", "12", "1", "13", "23"]
    distance, product = product_axes.lines[0].get_data()
    assert product[distance == 0] == pytest.approx(24 / 2)  # sin^2 + cos^2 = 1 in each pair
    assert product[distance == 7] == pytest.approx(product[distance == -7])
    assert product[distance == 7] == pytest.approx(vectors[10] @ vectors[17])  # the distance alone decides


def test_learned_positions_of_both_stacks_are_drawn():
    model = make_model(positions="learned", max_positions=30)
    axes = figures.positions_figure(model).axes
    maps = [panel for panel in axes if "Learned" in panel.get_title()]
    for panel, layer in zip(maps, (model.source_positions, model.target_positions), strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), layer.weight.data)
    assert "encoder" in maps[0].get_title() and "decoder" in maps[1].get_title()


# Attention ------------------------------------------------------------------------------------------------------------


def test_attention_is_that_of_the_translation(translator):
    figure = figures.attention_figure(translator, SENTENCE, beam=3, alpha=0.5)
    mean_axes, *heads = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert len(heads) == N * H
    alignment = figures.attention_of_translation(translator, SENTENCE, 3, 0.5)
    assert alignment.text == translator.translate([SENTENCE], beam=3, alpha=0.5)[0]
    assert " ".join(figure.get_suptitle().split()) == f"{SENTENCE} → {' '.join(alignment.text.split())}"

    source = translator.tokenizer.encode([SENTENCE])[0] + [EOS]
    assert [tick.get_text() for tick in mean_axes.get_xticklabels()] == translator.tokenizer.pieces(source)
    assert [tick.get_text() for tick in mean_axes.get_yticklabels()] == alignment.target

    for axes, weights in zip(heads, alignment.weights.reshape(N * H, len(alignment.target), len(source))):
        np.testing.assert_array_equal(axes.images[0].get_array(), weights)
        assert axes.images[0].get_clim() == mean_axes.images[0].get_clim() == (0, alignment.weights.max())
    drawn = mean_axes.images[0].get_array()
    np.testing.assert_allclose(drawn, alignment.weights[-1].mean(axis=0))
    np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-5)


def test_rows_are_named_after_the_piece_they_write(translator, monkeypatch):
    ids = translator.tokenizer.encode(["der hund"])[0]
    monkeypatch.setattr(figures, "search", lambda *arguments, rules: [[type("Found", (), {"ids": ids})]])
    alignment = figures.attention_of_translation(translator, SENTENCE, 4, 0.6)
    assert alignment.target == translator.tokenizer.pieces([*ids, EOS])
    source = np.array([translator.tokenizer.encode([SENTENCE])[0] + [EOS]])
    _, cache = translator.model.forward(source, np.array([[BOS, *ids]]))
    cross = [weights[0] for weights in attention_weights(cache) if weights.shape[-1] == source.size]
    np.testing.assert_array_equal(alignment.weights, cross[N:])  # after those of the encoder


def test_a_translation_that_does_not_end_has_no_end_symbol(translator):
    """With learned positions there would be no vector for another position."""
    model = make_model(positions="learned", max_positions=21)
    model.unembedding.weight.data[EOS] = 0
    model.decoder.layers[-1].feed_forward.norm.beta.data[:] = 10 * model.unembedding.weight.data[7]
    alignment = figures.attention_of_translation(Translator(model, translator.tokenizer), SENTENCE, 1, 0.6)
    assert alignment.target == translator.tokenizer.pieces([7] * 21)
    assert alignment.weights.shape[2] == 21


def test_dollar_signs_are_drawn_as_text(translator):
    figure = figures.attention_figure(translator, r"$\frac$ _ ^ $")
    assert figure.get_suptitle().startswith(r"$\frac$ _ ^ $")
    figure.draw_without_rendering()  # mathtext would raise ValueError


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_are_the_same_every_time_and_in_every_style(translator, tmp_path):
    first = every_figure(translator)
    with rc_context({"axes.facecolor": "black", "text.color": "white", "font.size": 20, "svg.fonttype": "none"}):
        again = every_figure(translator)
        for name in ("loss.svg", "schedule.png", "positions.svg", "attention.svg", "attention.png"):
            bytes_of = [figures.save(drawn[name[:-4]], tmp_path / name).read_bytes() for drawn in (first, again)]
            assert bytes_of[0] == bytes_of[1], name
            assert bytes_of[0].startswith(b"\x89PNG" if name.endswith(".png") else b"<?xml")
            assert b"dc:date" not in bytes_of[0] and b"Software" not in bytes_of[0]
    pixels = imread(tmp_path / "schedule.png")
    assert pixels[0, 0].tolist() == [1, 1, 1, 1] and pixels[..., 3].min() == 1, "the background is white"


@pytest.fixture
def fonts(monkeypatch):
    """The installed fonts: only those that matplotlib brings, and what a test adds."""
    own = [font for font in fontManager.ttflist if font.name.startswith("DejaVu Sans")]
    monkeypatch.setattr(fontManager, "ttflist", own)
    return own


def make_font(path, name, characters):
    builder = FontBuilder(1000)
    glyphs = {".notdef": TTGlyphPen(None).glyph()} | {f"u{ord(c)}": TTGlyphPen(None).glyph() for c in characters}
    builder.setupGlyphOrder(list(glyphs))
    builder.setupCharacterMap({ord(character): f"u{ord(character)}" for character in characters})
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics({glyph: (1000, 0) for glyph in glyphs})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    fontManager.addfont(path)


def texts_in(figure):
    return "".join(text.get_text() for text in figure.findobj(Text))


def test_other_scripts_are_drawn_with_fonts_that_have_them(translator, tmp_path, fonts, capsys):
    make_font(tmp_path / "few.ttf", "Few Sans", "日")
    make_font(tmp_path / "most.ttf", "Most", "日本語")
    make_font(tmp_path / "thai.ttf", "Thai", "ไ")
    assert figures.fonts_for("a dog, 日本語") == (["DejaVu Sans", "Most"], "")
    assert figures.fonts_for("日本語 ไ") == (["DejaVu Sans", "Most", "Thai"], "")
    figure = figures.attention_figure(translator, "the 日本語 dog")
    figures.save(figure, tmp_path / "attention.png")  # a warning of matplotlib would fail the test
    assert "日本語" in texts_in(figure) and figures.NO_GLYPH not in texts_in(figure)
    assert capsys.readouterr().err == ""


def test_without_such_a_font_one_line_says_so(translator, tmp_path, fonts, capsys):
    figure = figures.attention_figure(translator, "the 日本語ไ dog")
    figures.save(figure, tmp_path / "attention.png")
    assert "the □□□□ dog" in texts_in(figure)
    assert capsys.readouterr().err == "no installed font has ไ 日 本 語: the figure shows □ instead\n"


def test_files_that_cannot_be_written(tmp_path):
    figure = figures.schedule_figure(24, WARMUP, 1.0, 20)
    with pytest.raises(UserError, match=r"\.png or \.svg, not as \.jpg"):
        figures.save(figure, tmp_path / "schedule.jpg")
    with pytest.raises(UserError, match="not as a file without suffix"):
        figures.save(figure, tmp_path / "schedule")
    with pytest.raises(UserError, match="nowhere.*cannot write the figure: No such file"):
        figures.save(figure, tmp_path / "nowhere" / "schedule.png")


def plot_with(environment, run, out):
    command = [sys.executable, "-m", "scratchformer", "plot", run.path, "loss", "--out", out]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)


def test_nonsense_in_the_settings_of_matplotlib_is_told(trained, tmp_path):
    (tmp_path / "latin1").write_bytes(b"backend: \xff\n")
    done = plot_with({"MATPLOTLIBRC": str(tmp_path / "latin1")}, trained, tmp_path / "loss.png")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("scratchformer: matplotlib cannot be imported: ") and "can't decode byte" in last


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "not_there"])
def test_the_command_line_needs_no_backend_of_a_notebook(trained, tmp_path, backend):
    done = plot_with({"MPLBACKEND": backend}, trained, tmp_path / "loss.png")
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "loss.png").exists()


@pytest.mark.parametrize(
    "sentence, complaint", [("Hund " * 200, "pieces"), ("a\udcffb", "not valid UTF-8"), ("  \n", "sentence is empty")]
)
def test_sentences_that_cannot_be_drawn(translator, monkeypatch, sentence, complaint):
    monkeypatch.setattr(figures, "search", None)  # nothing is translated
    with pytest.raises(UserError, match=complaint):
        figures.attention_figure(translator, sentence)


def test_nothing_is_left_beside_a_figure_that_cannot_be_drawn(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        assert list(tmp_path.iterdir()) == []  # a signal may come while it is drawn, which takes seconds
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        figures.save(figures.schedule_figure(8, 4, 1.0, 20), tmp_path / "schedule.png")
    assert list(tmp_path.iterdir()) == []
