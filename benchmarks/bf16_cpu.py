"""What do products in bfloat16 cost in accuracy? Losses of two trainings, and the gradients of the same weights.

    python benchmarks/bf16_cpu.py --data DIR [--tokens 600000] [--seeds 2] [--quick] [--out DIR]   # Multi30k in DIR

For each seed, `multi30k` is trained twice from the same weights on the same batches and dropout masks: in float32 with
NumPy, and with `--precision bf16` on the CPU. On the way, at the weights of the float32 run, the gradient of the next
step is computed in both ways, and in float32 for the step after that: gradients of two batches differ anyway. Nothing
is timed, so a processor that emulates bfloat16 will do.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from batch_plans import QUICK
from provenance import surroundings
from small_training import RESULTS, number
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.device import Device, MklDevice
from scratchformer.config import Config
from scratchformer.tasks.translation import encode_corpus, read_corpus, train_tokenizer
from scratchformer.text.batches import steps
from scratchformer.training.run import RunDirectory, replace_text
from scratchformer.training.trainer import Trainer, TrainingData
from scratchformer.training.validation import validation_loss

LOOKS = 10
"""How often a training is looked at."""


def gradient(trainer: Trainer, weights: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The gradient of a step on these pairs at these weights; the trainer keeps its own."""
    store, settings = trainer.model.store, trainer.config.training
    own = store.data.copy()
    store.data[...] = weights
    store.refresh()
    trainer.parallel.step_gradient(trainer.plan.micro_batches(indices), settings, trainer.progress.step + 1)
    found = store.grad.copy()
    trainer.model.zero_grad()
    store.data[...] = own
    store.refresh()
    return found


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def compare(data: TrainingData, tokenizer: Any, config: Config, folder: Path) -> list[dict[str, float]]:
    """Train in both precisions at the same time -> what was seen at each look"""
    fp32, bf16 = (
        Trainer(RunDirectory(folder / name), config, data, tokenizer, device)
        for name, device in (("fp32", Device()), ("bf16", MklDevice(bf16=True)))
    )
    settings = config.training
    every, found = settings.max_tokens / LOOKS, list[dict[str, float]]()
    plan = steps(fp32.plan)
    epoch, index, indices = next(plan)
    while fp32.progress.target_tokens < settings.max_tokens:
        following = next(plan)
        if fp32.progress.target_tokens >= len(found) * every:
            weights = fp32.model.store.data
            right, rounded = (gradient(trainer, weights, indices) for trainer in (fp32, bf16))
            difference = rounded - right
            found.append(
                {
                    "step": fp32.progress.step,
                    "target_tokens": fp32.progress.target_tokens,
                    **{
                        f"loss_{name}": number(
                            validation_loss(trainer.model, data.val, settings.tokens_per_batch, ops=trainer.device.ops)
                        )
                        for name, trainer in (("fp32", fp32), ("bf16", bf16))
                    },
                    "cosine": round(cosine(right, rounded), 6),
                    "relative_difference": number(float(np.sqrt(difference @ difference / (right @ right)))),
                    "cosine_with_next_batch": number(cosine(right, gradient(fp32, weights, following[2]))),
                }
            )
            print(found[-1], flush=True)
        for trainer in (fp32, bf16):
            trainer.finish(trainer.step(epoch, index, indices))
        epoch, index, indices = following
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="train.en.gz, train.de.gz, val.en.gz, val.de.gz")
    parser.add_argument("--tokens", type=int, default=600_000, metavar="N", help="target tokens of a training")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="how many trainings")
    parser.add_argument("--quick", action="store_true", help="sizes that show nothing, for a test")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    settings = {"data.directory": args.data, "training.steps": 10**6, "training.max_tokens": args.tokens}
    config = configs.with_settings(configs.preset("multi30k"), settings | {"training.threads": 1})
    if args.quick:
        config = configs.with_settings(config, QUICK)
    provenance, results = surroundings(), []
    corpus = read_corpus(config.data)
    tokenizer = train_tokenizer(corpus, config)
    data = encode_corpus(corpus, tokenizer, config)
    with threadpool_limits(1):
        for seed in range(1 if args.quick else args.seeds):
            of_seed = configs.with_settings(config, {"training.seed": seed})
            with tempfile.TemporaryDirectory() as folder:
                results.append({"seed": seed, "looks": compare(data, tokenizer, of_seed, Path(folder))})
    shown = configs.with_settings(config, {"data.directory": "DIR"})
    result = {
        "command": f"python benchmarks/bf16_cpu.py --data DIR --tokens {args.tokens} --seeds {args.seeds}",
        "provenance": provenance,
        "config": configs.to_dict(shown),
        "results": results,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    replace_text(args.out / "bf16_cpu.json", json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
