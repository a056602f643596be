"""Does a small Vision Transformer read digits as well as a linear model?

    python benchmarks/vision.py [--quick] [--out DIR]

The preset `vit-digits` is trained five times. Each time another fifth of scikit-learn's images is the test set, so that
each image is in one test set; the seed of the weights and of the batches changes, too. The mean of the last
checkpoints' weights is tested, as `scratchformer average` makes it. A second model has no positions (they stay 0).

The baselines of `scratchformer.tasks.digits` learn from the same training images.
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from harness import record, rounded
from scipy.stats import binomtest
from small_training import adam_of, add_gradient, batches, schedule_of

import scratchformer.config as configs
from scratchformer.config import Config
from scratchformer.nn.vision import VisionTransformer
from scratchformer.tasks.digits import (
    N_FOLDS,
    Images,
    LabelledImages,
    linear_baseline,
    nearest_neighbour,
    percent,
    positions_of,
    read_digits,
    read_images,
)
from scratchformer.training.trainer import TrainingData

MODELS = ("learned", "none")  # positions
QUICK = {"training.steps": 20, "model.d_model": 16, "model.d_ff": 16, "model.N": 1}


def trained(name: str, config: Config, images: dict[str, Images], seed: int) -> VisionTransformer:
    """One of MODELS after training, with averaged weights."""
    at_once = config.training.tokens_per_batch * config.training.accumulation  # `batches` makes one batch of a step
    training = replace(config.training, seed=seed, tokens_per_batch=at_once)
    config = replace(config, training=training)
    model = VisionTransformer(config.model, seed)
    positions = model.positions.weight
    if name == "none":
        positions.data[...] = 0
    averaged = range(training.steps, 0, -training.save_every)[: training.average_last]
    adam, learning_rate, total = adam_of(model, config), schedule_of(config), np.zeros_like(model.store.data)
    data = TrainingData(LabelledImages(images["train"], positions_of(config.model)), None)
    for step, batch in zip(range(1, training.steps + 1), batches(data, config)):
        add_gradient(model, batch, config, step)
        if name == "none":
            positions.grad[...] = 0
        adam.step(learning_rate(step))
        if step in averaged:
            total += model.store.data
    model.store.data[...] = total / len(averaged)
    return model


def accuracies(config: Config, folds: range) -> dict[str, Any]:
    """-> name of a model or a baseline -> its accuracy on all test images"""
    images = [read_images(fold) for fold in folds]
    found = {
        "linear": [linear_baseline(each) for each in images],
        "neighbour": [nearest_neighbour(each["train"], each["test"]) for each in images],
    } | {name: [] for name in MODELS}
    for name in MODELS:
        for fold in folds:
            found[name].append(read_digits(trained(name, config, images[fold], seed=fold), images[fold]["test"]))
            print(f"{name}, fold {fold}: {percent(found[name][-1], images[fold]['test']):.2f} %", flush=True)
    right = {
        name: [digits == each["test"].digits for digits, each in zip(of_folds, images)]
        for name, of_folds in found.items()
    }
    return {name: accuracy_of(each, right["linear"]) for name, each in right.items()}


def accuracy_of(right: list[np.ndarray], linear: list[np.ndarray]) -> dict[str, Any]:
    """Of one model: percent in each fold and of all images, Wilson's 95 % interval, and the sign test against the
    linear baseline: images that one of the two alone reads right, and how often a coin would divide them as unevenly.
    """
    every, other = np.concatenate(right), np.concatenate(linear)
    alone, linear_alone = int((every & ~other).sum()), int((other & ~every).sum())
    low, high = binomtest(int(every.sum()), len(every)).proportion_ci(0.95, method="wilson")
    return rounded(
        {
            "by_fold": [100 * float(each.mean()) for each in right],
            "accuracy": 100 * float(every.mean()),
            "interval": [100 * low, 100 * high],
            "n_images": len(every),
            "right_alone": alone,
            "linear_right_alone": linear_alone,
            "p_value": float(binomtest(alone, max(1, alone + linear_alone)).pvalue),
        }
    )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    config = configs.with_settings(configs.preset("vit-digits"), QUICK if arguments.quick else {})
    return {"config": configs.to_dict(config), "results": accuracies(config, range(1 if arguments.quick else N_FOLDS))}


if __name__ == "__main__":
    record("vision", __doc__, measure)
