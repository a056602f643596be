"""Does a small Vision Transformer read digits as well as a linear model, and does it find out where its patches are?

    python benchmarks/vision.py [--quick] [--out DIR]

The preset `vit-digits` is trained five times. Each time another fifth of scikit-learn's images is the test set, so that
each image is in one test set; the seed of the weights and of the batches changes, too. What is tested is the mean of
the last checkpoints' weights, as `scratchformer average` makes it. Three models differ in their positions: learned,
sinusoids that count the patches in one row, and none (vectors that are 0 and stay 0).

The baselines of `scratchformer.experiments.digits` learn from the same training images.

The grid: a position's vector says nothing about rows and columns before training. Afterwards, are the vectors of
patches that lie close to each other alike? `Grid` says what is recorded, for the vectors before training, after it, and
for the change that it made.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from provenance import surroundings
from small_training import adam_of, arguments_of, batches, number, schedule_of, spread, write
from threadpoolctl import threadpool_limits

import scratchformer.config as configs
from scratchformer.backends.cpu import FAST
from scratchformer.config import Config
from scratchformer.experiments.digits import linear_baseline, nearest_neighbour, percent, wilson_interval
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.ops import using
from scratchformer.nn.vision import VisionTransformer
from scratchformer.training.task import TrainingData
from scratchformer.training.task_digits import N_FOLDS, Images, LabelledImages, positions_of, read_digits, read_images

POSITIONS = {"learned": "learned", "sinusoidal": "sinusoidal", "none": "learned"}
"""Name of a model -> its `model.positions`."""

N_SHUFFLES = 10_000
QUICK = {"training.steps": 20, "model.d_model": 16, "model.d_ff": 16, "model.N": 1}


def trained(name: str, config: Config, images: dict[str, Images], seed: int) -> tuple[VisionTransformer, np.ndarray]:
    """A model of POSITIONS after training, with averaged weights, and the learned positions that it began with."""
    at_once = config.training.tokens_per_batch * config.training.accumulation  # `batches` makes one batch of a step
    config = replace(
        config,
        model=replace(config.model, positions=POSITIONS[name]),
        training=replace(config.training, seed=seed, tokens_per_batch=at_once),
    )
    settings = config.training
    model = VisionTransformer(config.model, seed)
    positions = model.positions.parameters().get("weight")
    if name == "none":
        positions.data[...] = 0
    first = np.array(positions.data if positions else 0)
    averaged = range(settings.steps, 0, -settings.save_every)[: settings.average_last]
    adam, learning_rate, total = adam_of(model, config), schedule_of(config), np.zeros_like(model.store.data)
    data = TrainingData(LabelledImages(images["train"], positions_of(config.model)), None)
    for step, batch in zip(range(1, settings.steps + 1), batches(data, config)):
        model.zero_grad()
        with using(FAST):
            _, n = batch_loss_backward(
                model, batch.inputs, batch.targets, settings.eps_ls, DropoutKey(seed, step), settings.spread
            )
        model.store.grad /= n
        if name == "none":
            positions.grad[...] = 0
        adam.step(learning_rate(step))
        if step in averaged:
            total += model.store.data
    model.store.data[...] = total / len(averaged)
    return model, first


# The grid -------------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """How alike the vectors of positions are, by the cosine, and how far apart their patches lie on the grid.

    correlation       of cosine and Euclidean distance, over all pairs of positions: negative if close patches are alike
    p_value           how often the patches in random places give a correlation as negative
    beyond_ink        the same correlation among pairs that differ equally in ink (partial correlation): the patches at
                      the left and right edges are white in nearly all images, which makes them alike, too
    next_to_nearest   share of positions whose most similar other position is a neighbour in its row or column
    by_chance         the same for patches in random places
    """

    correlation: float
    p_value: float
    beyond_ink: float
    next_to_nearest: float
    by_chance: float


def grid_of(vectors: np.ndarray, ink: np.ndarray) -> Grid:
    """vectors (patches, D), ink (patches,): the mean of the pixels of each patch in the training images"""
    n = len(vectors)
    places = np.stack(np.divmod(np.arange(n), math.isqrt(n)), axis=1)  # row and column
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine, pairs = unit @ unit.T, np.triu_indices(n, 1)
    ink_apart = np.abs(ink[:, None] - ink)

    random = np.random.default_rng(0)
    correlation = correlate(cosine[pairs], distance[pairs])
    shuffled = [random.permutation(n) for _ in range(N_SHUFFLES)]
    as_negative = sum(correlate(cosine[pairs], distance[order][:, order][pairs]) <= correlation for order in shuffled)
    partial = correlate(*(without(each[pairs], ink_apart[pairs]) for each in (cosine, distance)))
    nearest = (cosine - 2 * np.eye(n)).argmax(axis=1)
    beside = distance == 1
    return Grid(
        correlation,
        (as_negative + 1) / (N_SHUFFLES + 1),
        partial,
        float(beside[np.arange(n), nearest].mean()),
        float(beside.sum() / (n * (n - 1))),
    )


def correlate(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation."""
    return float(np.corrcoef(x, y)[0, 1])


def without(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """What of x is no linear function of z."""
    return x - np.polyval(np.polyfit(z, x, 1), z)


def ink_of(images: Images, patch_size: int) -> np.ndarray:
    """The mean of the pixels of each patch, (patches,)."""
    mean = images.pixels.mean(axis=0, dtype=np.float64)
    side = len(mean) // patch_size
    return mean.reshape(side, patch_size, side, patch_size).mean(axis=(1, 3)).reshape(-1)


# The whole experiment -------------------------------------------------------------------------------------------------


def measure(config: Config, folds: range) -> dict[str, Any]:
    """-> the results for the file: of each model and baseline, over all test images; of the grid, for each fold"""
    right: dict[str, list[np.ndarray]] = {}
    grids: list[dict[str, Grid]] = []
    for fold in folds:
        images = read_images(fold)
        test = images["test"]
        found = {"linear": linear_baseline(images), "neighbour": nearest_neighbour(images["train"], test)}
        for name in POSITIONS:
            model, first = trained(name, config, images, seed=fold)
            found[name] = read_digits(model, test.pixels)
            if name == "learned":
                ink = ink_of(images["train"], config.model.patch_size)
                last = model.positions.parameters()["weight"].data
                vectors = {"before": first, "after": last, "change": last - first}
                grids.append({when: grid_of(each[1:].astype(np.float64), ink) for when, each in vectors.items()})
        for name, digits in found.items():
            right.setdefault(name, []).append(digits == test.digits)
        print(f"fold {fold}:", {name: round(percent(digits, test), 2) for name, digits in found.items()}, flush=True)
    return {
        "folds": list(folds),
        "results": {name: accuracy_of(each, right["linear"]) for name, each in right.items()},
        "grid": [{when: rounded(grid) for when, grid in each.items()} for each in grids],
        "grid_over_folds": {
            when: {field: spread([getattr(each[when], field) for each in grids]) for field in Grid._fields}
            for when in grids[0]
        },
    }


def accuracy_of(right: list[np.ndarray], linear: list[np.ndarray]) -> dict[str, Any]:
    """Of one model: percent in each fold and of all images, Wilson's 95 % interval, and the sign test against the
    linear baseline: images that one of the two alone reads right, and how often a coin would divide them as unevenly.
    """
    every, other = np.concatenate(right), np.concatenate(linear)
    alone, linear_alone = int((every & ~other).sum()), int((other & ~every).sum())
    low, high = wilson_interval(int(every.sum()), len(every))
    return {
        "by_fold": [number(100 * each.mean()) for each in right],
        "accuracy": number(100 * every.mean()),
        "interval": [number(low), number(high)],
        "n_images": len(every),
        "right_alone": alone,
        "linear_right_alone": linear_alone,
        "p_value": number(sign_test(alone, linear_alone)),
    }


def sign_test(a: int, b: int) -> float:
    """How often a + b throws of a coin are divided as unevenly as a and b, or more."""
    tail = sum(math.comb(a + b, k) for k in range(max(a, b), a + b + 1)) / 2 ** (a + b)
    return min(1.0, 2 * tail)


def rounded(grid: Grid) -> dict[str, float | None]:
    return {name: number(value) for name, value in grid._asdict().items()}


def main() -> None:
    arguments = arguments_of(__doc__.split("\n")[0])
    config = configs.preset("vit-digits")
    if arguments.quick:
        config = configs.with_settings(config, QUICK)
    with threadpool_limits(1):
        provenance = surroundings()  # now: git may move while we measure
        results = measure(config, range(1 if arguments.quick else N_FOLDS))
    write(arguments.out, "vision", {"provenance": provenance, "config": configs.to_dict(config), **results})


if __name__ == "__main__":
    main()
