"""Is the missing push on the scores what harms a model without the division by sqrt(d_k)?

    python benchmarks/attention_without_push.py [--quick] [--out DIR]

The control to attention_scaling.py: one head of 128 with the factors 1/sqrt(d_k) and 1, and no gradient through any
score, from the first step to the last. The attention weights still change, because the layers below learn; W_Q and W_K
do not. Everything else is as there: text, sizes, learning rate, seeds and batches. A difference that is left between
the two factors cannot come from a missing push, since neither model has any.
"""

from __future__ import annotations

from typing import Any

from attention_scaling import EXPERIMENT, QUICK, SEEDS, WITHOUT_PUSH, row
from small_training import conduct, read_text

from scratchformer.config import Config

H = 1


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data = read_text(config)
    return {"results": [row(H, variant, data, config, seeds) for variant in WITHOUT_PUSH]}


if __name__ == "__main__":
    conduct("attention_without_push", __doc__, EXPERIMENT, QUICK, SEEDS, measure)
