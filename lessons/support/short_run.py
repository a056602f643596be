"""The run of lesson 19: the model of `tiny` with a shorter schedule and smaller batches, for a page to train."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from scratchformer import config as configs
from scratchformer.tasks import start
from scratchformer.text.batches import steps
from scratchformer.training.run import RunDirectory
from scratchformer.training.validation import validate
from support.lesson import QUICK, ROOT

CONFIG = configs.with_settings(
    configs.preset("tiny"),
    {
        "data.directory": str(ROOT / "data" / "tiny"),
        "training.tokens_per_batch": 512,
        "training.accumulation": 1,
        "training.warmup": 80,
        "training.lr_factor": 0.5,
        "training.threads": 1,
    },
)

LAST = 80 if QUICK else 240
"""The last step."""


class ShortRun:
    """A run that stops where it is told to.

    trainer      of the library
    log          one entry for each step: what the library logs, "indices" of its pairs, "longest" of them in tokens,
                 and the "cpu_seconds" that it took this process
    validations  the library's entry before the first step, and after every 60 steps
    """

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.trainer = start.begin(RunDirectory(Path(self.folder.name) / "run"), CONFIG)
        self.log: list[dict[str, Any]] = []
        self.validations = [validate(self.trainer)]
        self._steps = steps(self.trainer.plan)

    def train_until(self, last: int) -> None:
        while len(self.log) < last:
            epoch, index, indices = next(self._steps)
            began = time.process_time()
            entry = self.trainer.finish(self.trainer.step(epoch, index, indices))
            own = {
                "indices": indices,
                "pairs": len(indices),
                "longest": int(self.trainer.data.train.lengths[indices].max()),
                "cpu_seconds": time.process_time() - began,
            }
            self.log.append(entry | own)
            if len(self.log) % 60 == 0:
                self.validations.append(validate(self.trainer))

    def close(self) -> None:
        """Remove the files of the run."""
        self.folder.cleanup()
