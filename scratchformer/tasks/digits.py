"""The task "digits": read the digit in an image of 8 x 8 pixels. The images are scikit-learn's."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config, ModelConfig
from scratchformer.errors import UserError
from scratchformer.nn.model import Model
from scratchformer.nn.ops import using
from scratchformer.tasks.task import Evaluation, Task, share
from scratchformer.text.batches import Batch, Examples
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.run import Trained
from scratchformer.training.trainer import Trainer, TrainingData
from scratchformer.training.validation import predictions, validation_accuracy

SIZE = 8
"""Pixels on each side of an image."""

DARKEST = 16
"""The largest value of a pixel in scikit-learn's files."""

N_FOLDS = 5
N_VAL = 200
STRENGTHS = (0.1, 1.0, 10.0)
"""C of the logistic regression, the inverse of its penalty on large weights."""


class Images(NamedTuple):
    """Images and what they show: pixels (n, 8, 8) float32 from 0 to 1, digits (n,) int64 from 0 to 9."""

    pixels: np.ndarray
    digits: np.ndarray


def read_images(fold: int = 0) -> dict[str, Images]:
    """scikit-learn's 1,797 images -> "train" (1,237 or 1,238), "val" (200) and "test" (359 or 360), drawn at random.

    fold  0 to 4: the five test sets have no image in common. Images of one writer are in all three parts
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise UserError("the digits come with scikit-learn; pip install 'scratchformer[vision]' brings it") from None
    digits = load_digits()
    pixels = (digits.images / DARKEST).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(pixels))
    is_test = np.arange(len(order)) % N_FOLDS == fold
    rest = order[~is_test]
    parts = {"train": rest[N_VAL:], "val": rest[:N_VAL], "test": order[is_test]}
    return {part: Images(pixels[indices], digits.target[indices]) for part, indices in parts.items()}


class LabelledImages(Examples):
    """Images for training: digit d is class d + 1, because a target of 0 stands for padding.

    n_positions  see `positions_of`
    """

    def __init__(self, images: Images, n_positions: int) -> None:
        self.images = images
        self.lengths = np.full(len(images.digits), n_positions, np.int32)
        self.max_length, self.n_targets = n_positions, len(images.digits)

    def batch(self, indices: np.ndarray, epoch: int = 0) -> Batch:
        classes = (self.images.digits[indices, None] + 1).astype(np.int32)
        pixels = self.images.pixels[indices]
        return Batch((pixels,), classes, indices.astype(np.int64), pixels.size, pixels.size)

    def checksum(self, crc: int = 0) -> int:
        return zlib.crc32(self.images.digits.tobytes(), zlib.crc32(self.images.pixels.tobytes(), crc))


def positions_of(model: ModelConfig) -> int:
    """Number of positions that the model makes of an image: its patches and the class token."""
    return (model.image_size // model.patch_size) ** 2 + 1


class DigitsTask(Task):
    """From images to digits."""

    score_name, unit = "accuracy", "images"

    def read(self, config: Config) -> dict[str, Images]:
        if config.data.names_text:
            raise UserError("data.task=digits reads the images of scikit-learn, and no files")
        if config.model.image_size != SIZE:
            raise UserError(f"model.image_size={config.model.image_size}: the digits have {SIZE} x {SIZE} pixels")
        return read_images()

    def settled(self, config: Config, tokenizer: Tokenizer | None) -> Config:
        n_positions = positions_of(config.model)
        return configs.with_settings(config, {"model.max_positions": n_positions, "data.max_length": n_positions})

    def encode(self, corpus: dict[str, Images], tokenizer: None, config: Config) -> TrainingData:
        train, val = (LabelledImages(corpus[part], positions_of(config.model)) for part in ("train", "val"))
        return TrainingData(train, val)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Accuracy on the validation images, in percent."""
        return {"accuracy": validation_accuracy(trainer)}

    def evaluate(self, trained: Trained, reference: Path | None = None) -> Evaluation:
        """Read the test images, which no training has seen, beside two baselines that learn from the same images."""
        images = read_images()
        test = images["test"]
        with using(*trained.device.ops):
            found = read_digits(trained.model, test)
        accuracy, (low, high) = share(found == test.digits)
        record = {
            "n_images": len(found),
            "accuracy": accuracy,
            "interval": (low, high),
            "linear": percent(linear_baseline(images), test),
            "neighbour": percent(nearest_neighbour(images["train"], test), test),
        }
        text = (
            f"accuracy {accuracy:.1f} %  (95 % interval {low:.1f} to {high:.1f}, {len(found)} test images)\n"
            f"logistic regression on the pixels {record['linear']:.1f} %\n"
            f"nearest training image {record['neighbour']:.1f} %"
        )
        return Evaluation(record, text)


def read_digits(model: Model, images: Images) -> np.ndarray:
    """The digit that the model sees in each image: (n,) int, 0 to 9"""
    everything = np.arange(len(images.digits))
    return predictions(model, LabelledImages(images, n_positions=1).batch(everything)) - 1


def percent(found: np.ndarray, images: Images) -> float:
    """Share of these digits that are right, in percent."""
    return 100 * float(np.mean(found == images.digits))


def linear_baseline(images: dict[str, Images]) -> np.ndarray:
    """The digits that a multinomial logistic regression reads in the test images, (n,) int64.

    It is scikit-learn's, on the 64 pixels; the validation images choose among STRENGTHS.
    """
    from sklearn.linear_model import LogisticRegression

    train, val, test = (images[part] for part in ("train", "val", "test"))
    with threadpool_limits(1):  # more would mostly wait for each other
        fitted = [LogisticRegression(C=C, max_iter=1000).fit(flat(train), train.digits) for C in STRENGTHS]
    return max(fitted, key=lambda each: percent(each.predict(flat(val)), val)).predict(flat(test))


def nearest_neighbour(train: Images, test: Images) -> np.ndarray:
    """For each test image, what the most similar training image shows, (n,) int64."""
    squares = (flat(train) ** 2).sum(axis=1)  # the test image's own length is the same for all
    return train.digits[(squares - 2 * flat(test) @ flat(train).T).argmin(axis=1)]


def flat(images: Images) -> np.ndarray:
    """The pixels of each image in one row, (n, 64) float64."""
    return images.pixels.reshape(len(images.digits), -1).astype(np.float64)
