"""Does a small Vision Transformer read digits as well as a linear model, and does it find out where its patches are?

    python benchmarks/vision.py [--models learned,small] [--quick] [--out DIR]

The preset `vit-digits` is trained five times. Each time another fifth of scikit-learn's images is the test set, so that
each image is in one test set; the seed of the weights and of the batches changes, too. The mean of the last
checkpoints' weights is tested, as `scratchformer average` makes it. Four models differ in their positions: learned;
learned, but small at first, as in the public code of Dosovitskiy et al.; sinusoids that count the patches in one row;
and none, which are vectors that stay 0. With --models, those that are not named stay as they are in the file.

The baselines of `scratchformer.tasks.digits` learn from the same training images.

The grid: a position's vector says nothing about rows and columns before training. Afterwards, are the vectors of
patches that lie close to each other alike? `grid_of` says what is recorded, for the vectors before training, after it,
and for the change that it made.
"""

import argparse
import math
from dataclasses import replace
from typing import Any

import numpy as np
from harness import earlier, number, record, rounded, spread
from provenance import git
from scipy.stats import binomtest, combine_pvalues
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

POSITIONS = {"learned": "learned", "small": "learned", "sinusoidal": "sinusoidal", "none": "learned"}
"""Name of a model -> its `model.positions`."""

SMALL = 0.02
"""The standard deviation of the first vectors of "small"; elsewhere it is d_model^-0.5, here 0.125."""

N_SHUFFLES = 10_000
QUICK = {"training.steps": 20, "model.d_model": 16, "model.d_ff": 16, "model.N": 1}


def trained(name: str, config: Config, images: dict[str, Images], seed: int) -> tuple[VisionTransformer, np.ndarray]:
    """A model of POSITIONS after training, with averaged weights, and the learned positions that it began with."""
    at_once = config.training.tokens_per_batch * config.training.accumulation  # `batches` makes one batch of a step
    training = replace(config.training, seed=seed, tokens_per_batch=at_once)
    config = replace(config, model=replace(config.model, positions=POSITIONS[name]), training=training)
    model = VisionTransformer(config.model, seed)
    positions = model.positions.parameters().get("weight")
    if name in ("small", "none"):
        positions.data *= SMALL * math.sqrt(config.model.d_model) if name == "small" else 0
    first = np.array(positions.data if positions else 0)
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
    return model, first


def grid_of(vectors: np.ndarray, images: Images) -> dict[str, float]:
    """Compare the similarity of the vectors of positions (patches, D), by the cosine, with the distance of their
    patches on the grid.

    correlation       of cosine and Euclidean distance, over all pairs of positions: negative if close patches are alike
    beyond_ink        the same correlation among pairs that differ equally in ink, the mean of the pixels (partial
                      correlation): the patches at the left and right edges are white in nearly all images
    next_to_nearest   share of positions whose most similar other position is a neighbour in its row or column
    by_chance         the same for patches in random places
    p_correlation, p_next  how often patches in random places give a correlation as negative, a share as large
    """
    n = len(vectors)
    side, mean = math.isqrt(n), images.pixels.mean(axis=0, dtype=np.float64)
    patch = len(mean) // side
    ink = mean.reshape(side, patch, side, patch).mean(axis=(1, 3)).reshape(-1)
    places = np.stack(np.divmod(np.arange(n), side), axis=1)  # row and column
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine, pairs, ink_apart = unit @ unit.T, np.triu_indices(n, 1), np.abs(ink[:, None] - ink)
    nearest = (cosine - 2 * np.eye(n)).argmax(axis=1)

    def correlate(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.corrcoef(x, y)[0, 1])

    def without_ink(x: np.ndarray) -> np.ndarray:
        return x[pairs] - np.polyval(np.polyfit(ink_apart[pairs], x[pairs], 1), ink_apart[pairs])

    def scores(distance: np.ndarray) -> tuple[float, float]:
        return correlate(cosine[pairs], distance[pairs]), float((distance[np.arange(n), nearest] == 1).mean())

    random = np.random.default_rng(0)
    orders = [random.permutation(n) for _ in range(N_SHUFFLES)]
    shuffled = np.array([scores(distance[order][:, order]) for order in orders])
    correlation, next_to_nearest = scores(distance)
    return {
        "correlation": correlation,
        "beyond_ink": correlate(without_ink(cosine), without_ink(distance)),
        "next_to_nearest": next_to_nearest,
        "by_chance": float((distance == 1).sum() / (n * (n - 1))),
        "p_correlation": float((1 + (shuffled[:, 0] <= correlation).sum()) / (N_SHUFFLES + 1)),
        "p_next": float((1 + (shuffled[:, 1] >= next_to_nearest).sum()) / (N_SHUFFLES + 1)),
    }


def accuracies(names: list[str], config: Config, folds: range) -> dict[str, Any]:
    """-> name of a model or a baseline -> its accuracy on all test images, and what its positions show of the grid"""
    images = [read_images(fold) for fold in folds]
    found = {
        "linear": [linear_baseline(each) for each in images],
        "neighbour": [nearest_neighbour(each["train"], each["test"]) for each in images],
    } | {name: [] for name in names}
    grids: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name in names:
        for fold in folds:
            model, first = trained(name, config, images[fold], seed=fold)
            found[name].append(read_digits(model, images[fold]["test"]))
            print(f"{name}, fold {fold}: {percent(found[name][-1], images[fold]['test']):.2f} %", flush=True)
            if name in ("learned", "small"):
                last = model.positions.weight.data
                for when, each in {"before": first, "after": last, "change": last - first}.items():
                    grid = grid_of(each[1:].astype(np.float64), images[fold]["train"])
                    grids.setdefault(name, {}).setdefault(when, []).append(grid)
    right = {
        name: [digits == each["test"].digits for digits, each in zip(of_folds, images)]
        for name, of_folds in found.items()
    }
    results = {name: accuracy_of(each, right["linear"]) for name, each in right.items()}
    for name, grid in grids.items():
        results[name] |= {"grid": rounded(grid), "grid_over_folds": {when: over_folds(grid[when]) for when in grid}}
    return results


def over_folds(grids: list[dict[str, float]]) -> dict[str, Any]:
    """The means of the folds, and the p-values of the folds as one (Fisher's method)."""
    values = {field: [grid[field] for grid in grids] for field in grids[0]}
    return {
        field: number(combine_pvalues(each).pvalue) if field.startswith("p_") else spread(each)
        for field, each in values.items()
    }


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


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default=",".join(POSITIONS), help="some of them (default: %(default)s)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    config, names = configs.preset("vit-digits"), arguments.models.split(",")
    if arguments.quick:
        config = configs.with_settings(config, QUICK)
    results = accuracies(names, config, range(1 if arguments.quick else N_FOLDS))
    results = {name: result | {"commit": git("rev-parse", "HEAD")} for name, result in results.items()}
    kept = earlier(arguments, "vision").get("results", {}) if set(names) != set(POSITIONS) else {}
    return {"config": configs.to_dict(config), "results": kept | results}


if __name__ == "__main__":
    record("vision", __doc__, measure, options)
