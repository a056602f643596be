"""What the paper printed: Tables 2 and 3 and what training took, for other numbers to be compared with.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv 1706.03762: §5.2 (machines, hours), §6.1 and Table 2
(test sets, FLOPs), footnote 5 (the FLOPs of a P100), §6.2 and Table 3 (development set). The models themselves, as
changes to the base model, are in `config.TABLE3`.
"""

from __future__ import annotations

from typing import NamedTuple

from scratchformer.config import BASE, BIG, PRESETS, Config
from scratchformer.experiments.flops import training_flops

# Table 3: variations on the base model --------------------------------------------------------------------------------


class PaperRow(NamedTuple):
    """A line of Table 3: English to German, newstest2013, beam 4, alpha 0.6, no checkpoints averaged.

    ppl       per word piece, without smoothing
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
"""By the names of `config.TABLE3`, and "base" and "big"."""

# Table 2: the test sets -----------------------------------------------------------------------------------------------


class PaperTest(NamedTuple):
    """A score of Table 2: newstest2014, the last checkpoints averaged (5 of base, 20 of big), beam 4, alpha 0.6.

    bleu     of tokens, which is not what sacreBLEU measures: English to German by the script that `text.paper_bleu`
             follows; how French was cut into tokens is not known
    in_text  what §6.1 says where it differs from the table
    """

    bleu: float
    in_text: float | None = None


PAPER_TABLE2: dict[str, PaperTest] = {
    "wmt14-en-de-base": PaperTest(27.3),
    "wmt14-en-de-big": PaperTest(28.4),
    "wmt14-en-fr-base": PaperTest(38.1),
    "wmt14-en-fr-big": PaperTest(41.8, in_text=41.0),
}
"""By the names of `config.PRESETS`."""

# What training took (§5.2, Table 2) -----------------------------------------------------------------------------------

GPUS = 8
TERAFLOPS_OF_A_P100 = 9.5
"""In single precision: the value is that of footnote 5, and §6.1 calls it an estimate of the sustained capacity."""

TOKENS_OF_A_STEP = 25_000
"""About so many source tokens, and as many target tokens (§5.1)."""

ASSUMED_LENGTH = 29.0
"""Tokens of a sentence, EOS counted, on either side: about the mean of WMT 2014 in 37,000 pieces."""


class PaperTraining(NamedTuple):
    """steps; seconds of a step and hours in all, on 8 P100; flops as Table 2 prints them."""

    steps: int
    step_seconds: float
    hours: float
    flops: float


PAPER_TRAINING: dict[str, PaperTraining] = {
    "base": PaperTraining(100_000, 0.4, 12.0, 3.3e18),
    "big": PaperTraining(300_000, 1.0, 3.5 * 24, 2.3e19),
}


def capacity_flops(hours: float, devices: int, teraflops: float) -> float:
    """What devices could compute in so many hours: how Table 2 arrives at its FLOPs. It counts no operation."""
    return hours * 3600 * devices * teraflops * 1e12


MODEL_SIZES = ("N", "d_model", "d_ff", "h", "d_k", "d_v")


def papers_model(config: Config) -> str | None:
    """base or big, if the model has its sizes."""
    return next(
        (
            name
            for name, preset in (("base", BASE), ("big", BIG))
            if all(getattr(config.model, size) == getattr(preset.model, size) for size in MODEL_SIZES)
        ),
        None,
    )


def count_of_the_paper(name: str) -> float:
    """FLOPs of all matrix products of base or big, as the paper trained it: an estimate, for sentences of 29 tokens."""
    length = ASSUMED_LENGTH
    return PAPER_TRAINING[name].steps * training_flops(PRESETS[name].model, TOKENS_OF_A_STEP / length, length, length)
