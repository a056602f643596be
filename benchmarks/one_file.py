"""Train lessons/transformer.py by its own command and score its translations of the bundled test sets.

    python benchmarks/one_file.py [--quick] [--out DIR]

Recorded: the seconds of `check` and `train` on one thread, by the wall clock and of its core, the worst relative error
of a gradient, and sacreBLEU of the beam search (4, alpha 0.6) on three test sets. --quick trains 20 steps and
translates 8 sentences of each set.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import re
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import numpy as np
from harness import number, record
from provenance import ROOT

from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import read

SPLITS = ("test", "test_compositional", "test_coreference")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transformer", ROOT / "lessons" / "transformer.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(command: Callable[..., object], *arguments: object) -> tuple[str, dict[str, float]]:
    """Call a command of the file -> printed text, seconds by the wall clock and of the core."""
    printed, start, cpu_start = io.StringIO(), time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(printed):
        command(*arguments)
    seconds = time.perf_counter() - start
    return printed.getvalue(), {"seconds": number(seconds), "cpu_seconds": number(time.process_time() - cpu_start)}


def measured(quick: bool) -> dict[str, Any]:
    file = load()
    checked, check_seconds = run(file.check)
    file.rng = np.random.default_rng(0)  # as in a process of its own
    with tempfile.TemporaryDirectory() as folder:
        file.WEIGHTS = Path(folder) / "transformer.npz"
        trained, train_seconds = run(file.train, 20 if quick else 1500)
        result: dict[str, Any] = {
            "lines": len(Path(file.__file__ or "").read_text(encoding="utf-8").splitlines()),
            "check": {"worst_relative_error": float(checked.split()[-1]), **check_seconds},
            "train": {"printed": trained.splitlines()[-3:], **train_seconds},
            "bleu": {},
        }
        for split in SPLITS:
            examples = read(split)[: 8 if quick else None]
            printed = "".join(run(file.translate, example.source)[0] for example in examples)
            translations = [re.split(" -> ", line)[1] for line in printed.splitlines()]
            found = corpus_scores(translations, [example.target for example in examples])
            result["bleu"][split] = number(found.bleu)
    return result


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"config": {"threads": 1, "beam": 4, "alpha": 0.6}, "seeds": [0], "results": measured(arguments.quick)}


if __name__ == "__main__":
    record("one_file", __doc__ or "", measure)
