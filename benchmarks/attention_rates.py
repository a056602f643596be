"""Would another learning rate do instead of the division by sqrt(d_k)?

    python benchmarks/attention_rates.py [--quick] [--out DIR]

The control to attention_scaling.py, where all variants share one learning rate. Here one head of 128 is trained with
the factors 1 and 1/sqrt(d_k) at three other learning rates of the whole model, everything else as there.
"""

from __future__ import annotations

from typing import Any

from attention_scaling import EXPERIMENT, QUICK, SEEDS, row
from small_training import conduct, read_text

from scratchformer import config as configs
from scratchformer.config import Config

H = 1
RATES = (2, 1 / 2, 1 / 4)
"""Times the learning rate of attention_scaling.py."""

VARIANTS = ("1/sqrt(d_k)", "1")


def measure(config: Config, seeds: tuple[int, ...]) -> dict[str, Any]:
    data, usual = read_text(config), config.training.lr_factor
    results = []
    for rate in RATES:
        other = configs.with_settings(config, {"training.lr_factor": rate * usual})
        for variant in VARIANTS:
            results.append({"rate": rate, **row(H, variant, data, other, seeds)})
    return {"results": results}


if __name__ == "__main__":
    conduct("attention_rates", __doc__, EXPERIMENT | {"training.validate_every": 100}, QUICK, SEEDS, measure)
