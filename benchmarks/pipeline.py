"""Time and memory to prepare a large corpus.

    python benchmarks/pipeline.py [--pairs 5000000] [--workers 2] [--scratch DIR] [--out DIR] [--quick]

Made-up sentences (lengths log-normal, words by Zipf's law, the target side with longer words and umlauts) are written
as plain text and prepared by `scratchformer data files` in a process of its own. Recorded are the seconds of each stage
and the most memory that the command and its workers had together at one moment; shared pages count once.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from harness import record, rounded

from scratchformer import config as configs

BLOCK = 50_000  # pairs made at once
HELD_OUT = 3000  # pairs of validation text

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


def megabytes(process: int | str) -> float:
    """Memory of a process and its children, of which pages that they share count in parts; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    except OSError:
        return 0.0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return own + sum(map(megabytes, children))


def watch(process: subprocess.Popen, samples: list[float]) -> None:
    while process.poll() is None:
        samples.append(megabytes(process.pid))
        time.sleep(0.05)


def prepare(options: list[str], out: Path, workers: int, vocab_size: int) -> dict[str, Any]:
    """Seconds of each stage, and the memory that it took."""
    command = [sys.executable, "-m", "scratchformer", "data", "files", *options, "--out", str(out)]
    command += ["--workers", str(workers), "--vocab-size", str(vocab_size)]
    began, stages = time.perf_counter(), {}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    samples: list[float] = []
    threading.Thread(target=watch, args=[process, samples], daemon=True).start()
    for line in process.stderr:
        print(line, end="")
        stages[line.split(":")[0]] = time.perf_counter() - began
        began = time.perf_counter()
    if process.wait():
        raise SystemExit("the preparation has failed")
    return {"stages": rounded(stages), "memory_mb": round(max(samples))}


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
    print(json.dumps(results, indent=1))
    config = {"pairs": n_pairs, "workers": arguments.workers, "vocab_size": vocab_size}
    return {"seeds": {"text": 0}, "results": results, "config": config}


if __name__ == "__main__":
    record("pipeline", __doc__, measure, options, threads=None)
