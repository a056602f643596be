"""Draw what a run has learnt: loss and BLEU, the learning rate, and attention.

Each function returns a matplotlib Figure that belongs to no window and no backend. Jupyter shows it as the value of a
cell, and `save` writes it as PNG or SVG. The colours can be distinguished by colour-blind readers, and in grey.
"""

from __future__ import annotations

import io
import math
import textwrap
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.image import AxesImage
from matplotlib.ticker import StrMethodFormatter

from scratchformer import config as configs
from scratchformer.decoding.search import max_lengths, search
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.files import make_directory, whole_file
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.optim import scheduled
from scratchformer.text.batches import encode_sequences
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.text.words import TokenizerPair
from scratchformer.training.run import RunDirectory, require_place

DARK, LIGHT, ACCENT = "#00315c", "#9ecae1", "#d95f02"
"""Two blues and an orange (ColorBrewer), which also differ in lightness."""

COLOUR_MAP = "viridis"
MOST_PIECES = 100
"""A figure of attention to more pieces of text could not be read."""

FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS")
"""Fonts for the text of a sentence, as far as they are installed: Matplotlib's own, then those with other scripts."""

as_default_style = style.context("default")
"""A decorator that gives a figure the style of the lessons, whatever style the reader's notebook has."""

Entries = Sequence[dict[str, Any]]
"""Entries of a run's log, oldest first."""


class _NotebookFigure(Figure):
    """A figure that Jupyter shows without pyplot."""

    @as_default_style
    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        self.savefig(drawn, format="png", dpi=80, facecolor="white")
        return drawn.getvalue()


FIELDS = {"png": "Software", "svg": "Creator"}
MARK = "Drawn by scratchformer, which may replace this file"
"""The text in this field of a figure's file, by which `require_place` knows a figure of ours."""


@as_default_style
def save(figure: Figure, path: Path) -> Path:
    """Write the figure, whole or not at all, as PNG (150 dots per inch) or SVG, on opaque white. -> path"""
    require_place(path, MARK.encode())
    if path.suffix.lower()[1:] not in FIELDS:
        raise UserError(f"{path}: a figure is saved as .png or .svg, not as {path.suffix or 'a file without suffix'}")
    drawn = io.BytesIO()
    form = path.suffix[1:].lower()
    figure.savefig(drawn, format=form, dpi=150, facecolor="white", metadata={FIELDS[form]: MARK})
    with whole_file(path, "cannot write the figure") as file:
        file.write(drawn.getvalue())
    return path


def save_in_run(figure: Figure, run: RunDirectory, name: str) -> Path:
    """Write the figure into the run's directory for figures, which is made if it is missing -> path"""
    if run.figures.is_symlink():
        raise UserError(f"{run.figures}: is a link, which may lead elsewhere")
    make_directory(run.figures)
    return save(figure, run.figures / f"{name}.png")


# Training -------------------------------------------------------------------------------------------------------------


@as_default_style
def loss_figure(run: RunDirectory) -> Figure:
    """Draw loss and BLEU of a run over the real target tokens that it has seen, in millions, from its log.

    Top:     in nats per target token, the training loss of each step and its running mean (what is minimised: with
             label smoothing, paper §5.4, and dropout), and the validation loss (without both). exp of the validation
             loss is the perplexity of Table 3.
    Bottom:  BLEU of greedy translations of the validation text, 0 to 100, if there are any.
    """
    steps, validations, bleus = (run.read_log(event) for event in ("step", "validation", "bleu"))
    if not steps:
        raise UserError(f"{run.path}: no step is logged yet: there is nothing to draw")
    figure = _NotebookFigure(figsize=(8, 6.5 if bleus else 4.5), layout="constrained")
    ratios = [2, 1] if bleus else [1]
    loss_axes, *bleu_axes = figure.subplots(len(ratios), sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    losses, window = column(steps, "loss"), max(1, len(steps) // 50)
    loss_axes.plot(millions(steps), losses, color=LIGHT, linewidth=0.8, label="training, each step")
    mean = np.convolve(losses, np.full(window, 1 / window), "valid")
    name = f"training, running mean, window {window} (smoothed objective, with dropout)"
    line = "o-" if len(steps) == 1 else "-"  # a single point makes no line
    loss_axes.plot(millions(steps)[window // 2 :][: len(mean)], mean, line, color=DARK, label=name)
    dots: Any = {"marker": "o", "color": ACCENT, "markersize": 4}
    if validations:
        best = min(entry["loss"] for entry in validations)
        name = f"validation (lowest {best:.3f}, perplexity {math.exp(min(best, 700)):.2f})"
        loss_axes.plot(millions(validations), column(validations, "loss"), label=name, **dots)
    label(loss_axes, "Loss", y="nats per target token")
    loss_axes.legend()
    for axes in bleu_axes:
        axes.plot(millions(bleus), column(bleus, "bleu"), **dots)
        axes.set_ylim(bottom=0)
        label(axes, "Validation BLEU, greedy search", y="BLEU")
    figure.axes[-1].set_xlabel("target tokens seen, in millions")
    return figure


def column(entries: Entries, name: str) -> np.ndarray:
    """One value of every entry, (entries,) float64."""
    return np.array([entry[name] for entry in entries], dtype=float)


def millions(entries: Entries) -> np.ndarray:
    """Real target tokens seen up to each entry, in millions."""
    return column(entries, "all_target_tokens") / 1e6


@as_default_style
def schedule_figure(run: RunDirectory) -> Figure:
    """Draw the learning rate of each optimizer step (paper §5.3, equation 3; or cosine), with its peak as text.

    The learning rates that the run's log has are drawn behind the curve.
    """
    config = configs.load(run.config_file)
    warmup, steps, logged = config.training.warmup, config.training.steps, run.read_log("step")
    peak = min(warmup, steps)
    at = np.unique(np.append(np.linspace(1, steps, 1000).astype(int), peak))
    rates = [scheduled(config, int(step)) for step in at]
    figure = _NotebookFigure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    factor, shape = f"factor = {config.training.lr_factor:g}", "step$^{-0.5}$"
    name = f"equation 3: d_model = {config.model.d_model}, warmup = {warmup:,}, {factor}"
    if config.training.schedule == "cosine":
        name, shape = f"cosine: warmup = {warmup:,}, steps = {steps:,}", "half a cosine"
    axes.plot(at, rates, color=DARK, label=name, zorder=3)
    if logged:
        wide: Any = {"linewidth": 6, "alpha": 0.5, "solid_capstyle": "butt"}
        axes.plot(column(logged, "step"), column(logged, "learning_rate"), color=ACCENT, label="the run's log", **wide)
    highest = scheduled(config, peak)
    text = f"{'peak' if warmup <= steps else 'still rising'}: {highest:.3g} at step {peak:,}"
    side = "left" if peak < steps / 2 else "right"
    axes.annotate(text, (peak, highest), (0, 8), textcoords="offset points", ha=side)
    axes.plot([peak], [highest], "o", color=DARK, zorder=3)
    axes.set_ylim(0, 1.15 * max([highest, *(entry["learning_rate"] for entry in logged)]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    label(axes, f"Learning rate: linear warmup, then {shape}", x="optimizer step", y="learning rate")
    axes.legend(loc="lower right")
    return figure


def label(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Set title, axis labels, grid and frame, alike for all line plots."""
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


# Attention ------------------------------------------------------------------------------------------------------------


def draw_matrix(axes: Axes, values: np.ndarray, lowest: float, highest: float) -> AxesImage:
    """One cell for each value, row 0 on top."""
    return axes.imshow(values, COLOUR_MAP, aspect="auto", interpolation="none", vmin=lowest, vmax=highest)


class TranslationAttention(NamedTuple):
    """Cross-attention while a sentence was translated.

    source   the S pieces of the source, "</s>" included
    target   the T pieces written, "</s>" included unless the translation was cut off at its greatest length
    weights  of each layer and head, (N, H, T, S); row t wrote piece t, and sums to 1
    text     the translation
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray
    text: str


@as_default_style
def attention_figure(translator: Translator, sentence: str, beam: int = 4, alpha: float = 0.6) -> Figure:
    """Draw where the decoder looks in the source while it writes the best translation found (paper §3.2.3).

    Left:   the mean over the heads of the last decoder layer. A row is a piece being written, which the decoder has not
            seen yet; a column is a piece of the source ("▁" begins a word). Rows sum to 1.
    Right:  every head, smaller, with the same axes; the layers from top to bottom.

    All share one colour scale, from 0 to the largest weight of any head.
    """
    attention = attention_of_translation(translator, sentence, beam, alpha)
    N, H, T, S = attention.weights.shape
    width, height = max(3.5, 0.26 * S + 1.2), max(3.5, 0.26 * T + 1.0)  # inches, of the left part
    side = min(1.6, max(0.8, height / N))  # of a head
    title = f"{' '.join(sentence.split())} → {attention.text}"
    families = [name for name in FONTS if name in fontManager.get_font_names()]
    figure = _NotebookFigure(figsize=(width + side * H + 1.2, max(height, side * N) + 0.8), layout="constrained")
    halves = figure.add_gridspec(1, 2, width_ratios=[width, side * H + 1.2])
    axes = figure.add_subfigure(halves[0]).subplots()
    draw_matrix(axes, attention.weights[-1].mean(axis=0), 0, attention.weights.max())
    axes.set_xticks(range(S), attention.source, rotation=90, parse_math=False, family=families)
    axes.set_yticks(range(T), attention.target, parse_math=False, family=families)
    axes.set(title=f"layer {N}, mean over heads", xlabel="source", ylabel="piece being written")
    right = figure.add_subfigure(halves[1])
    grid = right.subplots(N, H, sharex=True, sharey=True, squeeze=False)
    for (layer, head), axes in np.ndenumerate(grid):
        image = draw_matrix(axes, attention.weights[layer, head], 0, attention.weights.max())
        axes.set(xticks=[], yticks=[])
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize="medium")
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}")
    right.colorbar(image, ax=grid, label="attention weight", aspect=30)
    lines = textwrap.fill(title, int(11 * figure.get_figwidth()))
    figure.suptitle(lines, parse_math=False, family=families)
    return figure


def attention_of_translation(translator: Translator, sentence: str, beam: int, alpha: float) -> TranslationAttention:
    """Translate, then run the model once on source and translation to collect all attention weights."""
    if not sentence.strip():
        raise UserError("the sentence is empty: there is nothing to translate")
    model = translator.model
    tokenizer = target_tokenizer = translator.tokenizer
    if isinstance(tokenizer, TokenizerPair):  # it parses
        from scratchformer.decoding.tree_parser import words_of

        target_tokenizer, sentence = tokenizer.target, " ".join(words_of(sentence))
    source_ids = encode_sequences(tokenizer.encode, [sentence]).padded(np.array([0]))  # (1, S)
    if source_ids.size > MOST_PIECES:
        raise UserError(f"the sentence has {source_ids.size:,} pieces: a figure shows at most {MOST_PIECES}")
    [[best]] = search(model, source_ids, beam, alpha, translator.extra_length, rules=translator.rules)
    longest = max_lengths(model, source_ids, translator.extra_length)[0]
    written = [*best.ids, EOS][:longest]  # cut off, it has no end symbol
    _, cache = model.forward(source_ids, np.array([[BOS, *written[:-1]]]))
    of_decoder = attention_weights(cache)[model.config.N :]  # self, cross, self, cross, ...
    weights = np.stack([np.asarray(cross[0]) for cross in of_decoder[1::2]])  # (N, H, T, S)
    source, target = tokenizer.pieces(source_ids[0]), target_tokenizer.pieces(written)
    return TranslationAttention(source, target, weights, tokenizer.decode([best.ids])[0])
