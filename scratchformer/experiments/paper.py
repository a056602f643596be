"""The numbers that the paper printed in Table 3, to compare ours with. The models are in `config.TABLE3`."""

from __future__ import annotations

from typing import NamedTuple


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
