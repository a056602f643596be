"""The task "digits": which digit does an image of 8 x 8 pixels show? The images are scikit-learn's."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config, ModelConfig
from scratchformer.errors import UserError
from scratchformer.text.batches import Batch, Examples
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.task import Task, TrainingData
from scratchformer.training.validation import validation_accuracy

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer

SIZE = 8
"""Pixels on each side of an image."""

DARKEST = 16
"""The largest value of a pixel in scikit-learn's files."""

N_FOLDS = 5
N_VAL = 200


class Images(NamedTuple):
    """Images and what they show: pixels (n, 8, 8) float32 from 0 to 1, digits (n,) int64 from 0 to 9."""

    pixels: np.ndarray
    digits: np.ndarray


def read_images(fold: int = 0) -> dict[str, Images]:
    """scikit-learn's 1,797 images -> "train" (1,237 or 1,238), "val" (200) and "test" (359 or 360), drawn at random.

    fold  0 to 4: the five test sets have no image in common. Images of one writer are in all three parts

    Raises UserError if scikit-learn is not installed.
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
    """Images for training: of the model's classes, digit d is d + 1, because 0 is no target.

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
    """How many positions the model makes of an image: its patches and the class token."""
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
        return TrainingData.of(train, val, config)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Accuracy on the validation images, in percent."""
        return {"accuracy": validation_accuracy(trainer)}
