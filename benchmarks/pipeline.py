"""Time and memory to prepare a large corpus, and to start training from it.

    python benchmarks/pipeline.py [--pairs 5000000] [--workers 2] [--scratch DIR] [--out DIR] [--quick]

Made-up sentences (lengths log-normal, words by Zipf's law, the target side with longer words and umlauts) are written
as plain text, prepared by `scratchformer data files` in a process of its own, and opened by training in another.
Recorded are

    stages      seconds of each stage
    memory      the most that the command alone, and it and its workers together, had at one moment: resident, and
                anonymous, which leaves out the pages of files that the operating system may take back. Pages that the
                processes share count once in all
    start_up    seconds from `begin` to the first step's batches, with a model of no size to speak of; those that Python
                and the imports took before; and the memory of that process
    batches     steps a second that the plan delivers at the paper's size of a step, beside the paper's 2.5 a second
    resume      whether a run that was stopped and resumed ends with the weights of one that was not

The text has just been written when it is read, and so have the ids: both come from the page cache as far as it holds
them. The scratch directory (by default a temporary one) is removed in the end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from harness import in_own_process, record, rounded

from scratchformer import config as configs
from scratchformer.config import Config

BLOCK = 50_000  # pairs made at once
HELD_OUT = 3000  # pairs of validation text
SMALL = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2}
RESUMED = SMALL | {"tokens_per_batch": 256, "accumulation": 2, "steps": 6, "save_every": 3, "validate_every": 1000}
STEPS_OF_THE_PAPER = 2.5  # a second (§5.2: 0.4 s a step)
TIMED_STEPS = 50

# Text -----------------------------------------------------------------------------------------------------------------


def made_up_words(n: int, vowels: str, syllables: float, rng: np.random.Generator) -> np.ndarray:
    """Different words (about n,), the shortest first, as short words are the frequent ones."""
    parts = np.array([c + v + end for c in "bdfghklmnprstvwz" for v in vowels for end in ("", "n", "r", "st", "l")])
    counts = rng.geometric(1 / syllables, n)
    chosen = iter(parts[rng.integers(0, len(parts), counts.sum())].tolist())
    words = {"".join(islice(chosen, count)) for count in counts.tolist()}
    return np.array(sorted(words, key=lambda word: (len(word), word)), dtype=object)


def sentences(lengths: np.ndarray, words: np.ndarray, rng: np.random.Generator) -> bytes:
    """A line of so many words each; the word of rank r is chosen with a probability of about 1 / r."""
    ranks = (len(words) ** rng.random(int(lengths.sum()))).astype(np.int64) - 1
    chosen, ends = words[ranks].tolist(), np.cumsum(lengths).tolist()
    return "".join(" ".join(chosen[start:end]) + " .\n" for start, end in zip([0, *ends], ends)).encode("utf-8")


def write_text(directory: Path, n_pairs: int) -> list[str]:
    """train and val, source and target. -> the options that name them"""
    rng, n_words, options = np.random.default_rng(0), min(400_000, 4 * n_pairs), []
    source_words = made_up_words(n_words, "aeiou", 2.2, rng)
    target_words = made_up_words(2 * n_words, "aeiouäöü", 3.0, rng)
    for prefix, n in (("", n_pairs), ("val-", min(HELD_OUT, n_pairs // 10))):
        paths = [directory / f"{prefix}text.{side}" for side in ("source", "target")]
        with open(paths[0], "wb") as source, open(paths[1], "wb") as target:
            for start in range(0, n, BLOCK):
                lengths = np.clip(rng.lognormal(3.0, 0.6, min(BLOCK, n - start)), 1, 120).astype(int)
                source.write(sentences(lengths, source_words, rng))
                target.write(sentences(np.maximum(1, lengths * 0.95).astype(int), target_words, rng))
        options += [f"--{prefix}source", str(paths[0]), f"--{prefix}target", str(paths[1])]
    return options


# Preparation ----------------------------------------------------------------------------------------------------------


class Sampler(threading.Thread):
    """Watches the memory of a process and its children until it ends: `peak` holds megabytes."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root, self.peak = root, {}
        self.start()

    def run(self) -> None:
        while own := memory(self.root):
            children = Path(f"/proc/{self.root}/task/{self.root}/children").read_text(encoding="utf-8").split()
            of_children = [memory(child) for child in children]
            for kind in ("resident", "anonymous"):
                together = own[kind] + sum(child.get(kind, 0.0) for child in of_children)
                for name, megabytes in ((f"parent_{kind}_mb", own[kind]), (f"together_{kind}_mb", together)):
                    self.peak[name] = max(round(megabytes, 1), self.peak.get(name, 0.0))
            time.sleep(0.05)


def memory(process: int | str) -> dict[str, float]:
    """Megabytes, of which pages that processes share count in parts; {} once the process has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return {}
    values = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"resident": values["Pss"], "anonymous": values["Pss_Anon"]} if "Pss" in values else {}


def prepare(options: list[str], out: Path, workers: int, vocab_size: int) -> dict[str, Any]:
    """Seconds of each stage, and the memory that it took."""
    command = [sys.executable, "-m", "scratchformer", "data", "files", *options, "--out", str(out)]
    command += ["--workers", str(workers), "--vocab-size", str(vocab_size)]
    began, stages = time.perf_counter(), {}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    sampler = Sampler(process.pid)
    for line in process.stderr:
        print(line, end="")
        stages[line.split(":")[0]] = time.perf_counter() - began
        began = time.perf_counter()
    if process.wait():
        raise SystemExit("the preparation has failed")
    sampler.join()
    return {"stages": rounded(stages), "memory": sampler.peak}


# Training -------------------------------------------------------------------------------------------------------------


def configuration(directory: Path, settings: dict[str, Any]) -> Config:
    from scratchformer.tasks.translation import follow_preparation

    return follow_preparation(configs.with_settings(Config(), {"data.directory": str(directory)} | settings))[0]


def start_up(directory: Path, began: float) -> dict[str, Any]:
    """Start a training in a fresh process, which began at that time of the clock."""
    from scratchformer.tasks import start
    from scratchformer.text.batches import steps
    from scratchformer.training.run import RunDirectory

    config = configuration(directory, SMALL)
    with tempfile.TemporaryDirectory() as scratch:
        imported = time.time()
        trainer = start.begin(RunDirectory(Path(scratch) / "run"), config)
        places = steps(trainer.plan)
        trainer.plan.micro_batches(next(places)[2])
        ready, own, before = time.time(), memory("self"), time.perf_counter()
        timed = [trainer.plan.micro_batches(indices) for _, _, indices in islice(places, TIMED_STEPS)]
        seconds = time.perf_counter() - before
    tokens = sum(batch.n_source_tokens + batch.n_target_tokens for batches in timed for batch in batches)
    seconds_to_start = {
        "python_and_imports_seconds": imported - began,
        "begin_to_first_batches_seconds": ready - imported,
    }
    return {
        "start_up": rounded(seconds_to_start | {f"{kind}_mb": round(value, 1) for kind, value in own.items()}),
        "batches": {
            "steps_per_second": rounded(TIMED_STEPS / seconds),
            "steps": TIMED_STEPS,
            "tokens_per_step": round(tokens / TIMED_STEPS),
            "steps_in_epoch": len(trainer.plan.epoch(0)),
            "steps_per_second_of_the_paper": STEPS_OF_THE_PAPER,
        },
    }


def resume_is_exact(directory: Path, scratch: Path) -> dict[str, Any]:
    """CRC-32 of the weights of a run, and of one that was stopped at half of its steps and resumed."""
    from scratchformer.tasks import start
    from scratchformer.training import loop
    from scratchformer.training.run import RunDirectory

    config = configuration(directory, RESUMED)
    half = configs.with_settings(config, {"steps": config.training.steps // 2})
    whole = start.begin(RunDirectory(scratch / "whole"), config)
    loop.train(whole)
    loop.train(start.begin(RunDirectory(scratch / "stopped"), half))
    resumed, _ = start.resume(RunDirectory(scratch / "stopped"), config)
    loop.train(resumed)
    sums = [zlib.crc32(trainer.model.store.data.tobytes()) for trainer in (whole, resumed)]
    return {"steps": config.training.steps, "weights_crc32": sums, "exact": sums[0] == sums[1]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help="where the text is written (default: a temporary directory)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    n_pairs, vocab_size = (3000, 500) if arguments.quick else (arguments.pairs, configs.ModelConfig.vocab_size)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as name:
        scratch, directory = Path(name), Path(name) / "prepared"
        text = write_text(scratch, n_pairs)
        text_mb = sum(path.stat().st_size for path in scratch.iterdir()) / 1e6
        results = prepare(text, directory, arguments.workers, vocab_size)
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        prepared_mb = sum(kept["bytes"] for kept in manifest["files"].values()) / 1e6
        results |= {"text_mb": round(text_mb), "prepared_mb": round(prepared_mb), "train": manifest["splits"]["train"]}
        results |= in_own_process(start_up, directory, time.time())
        results["resume"] = resume_is_exact(directory, scratch)
        results["page_cache"] = {"state": "warm: text and ids had just been written"}
    print(json.dumps(results, indent=1))
    config = {"pairs": n_pairs, "workers": arguments.workers, "vocab_size": vocab_size}
    return {"seeds": {"text": 0, "training": 0}, "results": results, "config": config}


if __name__ == "__main__":
    record("pipeline", __doc__, measure, options, threads=None)
