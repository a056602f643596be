"""The numbers that the paper printed, to compare ours with: Tables 2 and 3, and what training took.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv 1706.03762: §5.2 (machines, hours), §6.1 and Table 2
(test sets, FLOPs), footnote 5 (the FLOPs of a P100), §6.2 and Table 3 (development set). The models themselves, as
changes to the base model, are in `config.TABLE3`.
"""

from __future__ import annotations

from typing import NamedTuple

from scratchformer.config import PRESETS, Config
from scratchformer.experiments.flops import training_flops

# Table 3: variations on the base model --------------------------------------------------------------------------------


class PaperRow(NamedTuple):
    """A row of Table 3: English to German, newstest2013, beam 4, alpha 0.6, no checkpoints averaged.

    ppl       perplexity per word piece, without label smoothing
    bleu      0 to 100
    params_M  parameters in millions; None where the paper leaves it blank
    """

    ppl: float
    bleu: float
    params_M: int | None = None


PAPER_TABLE3: dict[str, PaperRow] = {
    "base": PaperRow(4.92, 25.8, 65),
    "A1": PaperRow(5.29, 24.9),
    "A2": PaperRow(5.00, 25.5),
    "A3": PaperRow(4.91, 25.8),
    "A4": PaperRow(5.01, 25.4),
    "B1": PaperRow(5.16, 25.1, 58),
    "B2": PaperRow(5.01, 25.4, 60),
    "C1": PaperRow(6.11, 23.7, 36),
    "C2": PaperRow(5.19, 25.3, 50),
    "C3": PaperRow(4.88, 25.5, 80),
    "C4": PaperRow(5.75, 24.5, 28),
    "C5": PaperRow(4.66, 26.0, 168),
    "C6": PaperRow(5.12, 25.4, 53),
    "C7": PaperRow(4.75, 26.2, 90),
    "D1": PaperRow(5.77, 24.6),
    "D2": PaperRow(4.95, 25.5),
    "D3": PaperRow(4.67, 25.3),
    "D4": PaperRow(5.47, 25.7),
    "E": PaperRow(4.92, 25.7),
    "big": PaperRow(4.33, 26.4, 213),
}
"""Under the names of `config.TABLE3`, and "base" and "big"."""

# Table 2: the test sets -----------------------------------------------------------------------------------------------


class PaperTest(NamedTuple):
    """A score of Table 2: newstest2014, the last checkpoints averaged (5 of base, 20 of big), beam 4, alpha 0.6.

    bleu     of tokenized text, which is not what sacreBLEU measures. English to German is scored by the script that
             `experiments.paper_bleu` follows; how the paper tokenized French is not known
    in_text  the score that §6.1 gives, where it differs from the table
    """

    bleu: float
    in_text: float | None = None


PAPER_TABLE2: dict[str, PaperTest] = {
    "wmt14-en-de-base": PaperTest(27.3),
    "wmt14-en-de-big": PaperTest(28.4),
    "wmt14-en-fr-base": PaperTest(38.1),
    "wmt14-en-fr-big": PaperTest(41.8, in_text=41.0),
}
"""Under the names of `config.PRESETS`."""

# What training took (§5.2, Table 2) -----------------------------------------------------------------------------------

GPUS = 8
P100_TFLOPS = 9.5
"""In single precision: footnote 5 has the value, and §6.1 calls it an estimate of the sustained capacity."""

TOKENS_PER_STEP = 25_000
"""Approximate number of source tokens, and also of target tokens (§5.1)."""

ASSUMED_LENGTH = 29.0
"""Tokens per sentence on either side, EOS counted: about the mean of WMT 2014 with 37,000 pieces."""


class PaperTraining(NamedTuple):
    """Training on 8 P100; `flops` as Table 2 prints them."""

    steps: int
    step_seconds: float
    hours: float
    flops: float


PAPER_TRAINING: dict[str, PaperTraining] = {
    "base": PaperTraining(100_000, 0.4, 12.0, 3.3e18),
    "big": PaperTraining(300_000, 1.0, 3.5 * 24, 2.3e19),
}


def capacity_flops(hours: float, devices: int, tflops: float) -> float:
    """FLOPs that the devices could compute in so many hours. Table 2 prints such a capacity, not a count."""
    return hours * 3600 * devices * tflops * 1e12


MODEL_SIZES = ("N", "d_model", "d_ff", "h", "d_k", "d_v")


def paper_model(config: Config) -> str | None:
    """Return "base" or "big" if the model has the sizes of that one, else None."""
    for name in PAPER_TRAINING:
        if all(getattr(config.model, size) == getattr(PRESETS[name].model, size) for size in MODEL_SIZES):
            return name
    return None


def paper_matrix_flops(name: str) -> float:
    """Estimate the FLOPs of all matrix products when the paper trained base or big, for sentences of 29 tokens."""
    n_pairs = PAPER_TRAINING[name].steps * TOKENS_PER_STEP / ASSUMED_LENGTH
    return training_flops(PRESETS[name].model, n_pairs, ASSUMED_LENGTH, ASSUMED_LENGTH)
