"""The figures draw the right numbers, and files are reproducible."""

import math

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.config import ModelConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.experiments import figures
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.optim import noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, EOS, Tokenizer
from scratchformer.training.run import RunDirectory

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


@pytest.fixture
def logged(tmp_path):
    """`logged(n, steps=...)`: a run with a log of n steps, of 1000, 1010, 1020, ... target tokens."""

    def make(n, **settings):
        run = RunDirectory(tmp_path)
        changed = {"d_model": 24, "warmup": WARMUP, "steps": 20} | settings
        run.write_config(configs.with_settings(configs.TINY, changed))
        all_tokens = 0
        for step in range(1, n + 1):
            tokens = 990 + 10 * step
            all_tokens += tokens
            values = {"step": step, "loss": 5 / step, "learning_rate": noam(step, 24, WARMUP)}
            run.log("step", values | {"target_tokens": tokens, "all_target_tokens": all_tokens})
        return run

    return make


def texts(figure):
    """All text but tick labels."""
    return " ".join(text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text")))


# Loss -----------------------------------------------------------------------------------------------------------------


def test_losses_are_drawn_over_millions_of_target_tokens(logged):
    run = logged(3)
    for step, loss, tokens in ((2, 2.0, 2010), (3, 1.5, 3030)):
        run.log("validation", {"step": step, "loss": loss, "all_target_tokens": tokens})
    [axes] = figures.loss_figure(run).axes
    raw, mean, validated = axes.lines
    np.testing.assert_allclose(raw.get_xydata(), [(0.001, 5), (0.00201, 2.5), (0.00303, 5 / 3)])
    np.testing.assert_allclose(mean.get_xydata(), raw.get_xydata())  # too few steps for a wider window
    np.testing.assert_allclose(validated.get_xydata(), [(0.00201, 2.0), (0.00303, 1.5)])
    assert "millions" in axes.get_xlabel() and "nats" in axes.get_ylabel()
    assert f"lowest 1.500, perplexity {math.exp(1.5):.2f}" in texts(axes)


def test_bleu_has_a_panel_of_its_own(logged):
    run = logged(3)
    for step, bleu, tokens in ((2, 10.0, 2010), (3, 12.0, 3030)):
        run.log("bleu", {"step": step, "bleu": bleu, "all_target_tokens": tokens})
    loss_axes, bleu_axes = figures.loss_figure(run).axes
    assert len(loss_axes.lines) == 2
    np.testing.assert_allclose(bleu_axes.lines[0].get_xydata(), [(0.00201, 10), (0.00303, 12)])
    assert bleu_axes.get_xlim() == loss_axes.get_xlim() and bleu_axes.get_ylim()[0] == 0
    assert not loss_axes.get_xlabel() and "millions" in bleu_axes.get_xlabel()


def test_one_step_can_be_seen_and_none_is_refused(logged):
    with pytest.raises(UserError, match="no step is logged yet"):
        figures.loss_figure(logged(0))
    assert figures.loss_figure(logged(1)).axes[0].lines[1].get_marker() == "o"


def test_the_running_mean_is_centred(logged):
    run = logged(200)
    raw, mean = figures.loss_figure(run).axes[0].lines  # a window of 200 / 50 steps
    assert len(mean.get_ydata()) == 197 and mean.get_xdata()[100] == raw.get_xdata()[102]
    assert mean.get_ydata()[100] == pytest.approx(np.mean(raw.get_ydata()[100:104]))


# Learning rate --------------------------------------------------------------------------------------------------------


def test_the_peak_is_the_rate_at_the_end_of_warmup(logged):
    [axes] = figures.schedule_figure(logged(0, d_model=512, warmup=4000, lr_factor=2.0, steps=100_000)).axes
    line = axes.lines[0]
    peak = line.get_ydata().argmax()
    assert line.get_xydata()[peak].tolist() == [4000, noam(4000, 512, 4000, 2.0)]
    assert axes.texts[0].get_text() == f"peak: {noam(4000, 512, 4000, 2.0):.3g} at step 4,000"
    assert axes.texts[0].xy == (4000, noam(4000, 512, 4000, 2.0))
    assert line.get_xdata()[[0, -1]].tolist() == [1, 100_000]
    np.testing.assert_allclose(line.get_ydata(), [noam(int(step), 512, 4000, 2.0) for step in line.get_xdata()])


def test_the_logged_rates_lie_on_the_curve(logged):
    [axes] = figures.schedule_figure(logged(9)).axes
    curve, drawn = axes.lines[:2]
    np.testing.assert_allclose(drawn.get_xdata(), np.arange(1, 10))
    np.testing.assert_allclose(drawn.get_ydata(), curve.get_ydata()[:9])


def test_a_cosine_schedule_is_drawn_as_one(logged):
    run = logged(0, warmup=40, steps=400, schedule="cosine", learning_rate=0.002)
    [axes] = figures.schedule_figure(run).axes
    assert axes.lines[0].get_ydata().max() == 0.002 and axes.lines[0].get_ydata()[-1] == pytest.approx(0.0002)
    assert axes.lines[0].get_label().startswith("cosine") and "half a cosine" in axes.get_title()


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


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_notebook_shows_a_figure(logged):
    assert figures.loss_figure(logged(1))._repr_png_().startswith(b"\x89PNG")


def test_files_that_cannot_be_written(logged, tmp_path):
    figure = figures.schedule_figure(logged(0))
    for name, complaint in {
        "schedule.jpg": r"\.png or \.svg, not as \.jpg",
        "schedule": "not as a file without suffix",
        "nowhere/schedule.png": "nowhere.*cannot write the figure: No such file",
    }.items():
        with pytest.raises(UserError, match=complaint):
            figures.save(figure, tmp_path / name)


@pytest.mark.parametrize("sentence, complaint", [("Hund " * 200, "pieces"), ("  \n", "sentence is empty")])
def test_sentences_that_cannot_be_drawn(translator, monkeypatch, sentence, complaint):
    monkeypatch.setattr(figures, "search", None)  # nothing is translated
    with pytest.raises(UserError, match=complaint):
        figures.attention_figure(translator, sentence)
