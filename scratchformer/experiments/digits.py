"""How well a run reads the digits of its test images, beside two baselines without patches and attention."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.experiments.statistics import wilson_interval
from scratchformer.nn.model import Model
from scratchformer.nn.ops import using
from scratchformer.training.run import Trained
from scratchformer.training.task_digits import Images, LabelledImages, read_images
from scratchformer.training.validation import predictions

STRENGTHS = (0.1, 1.0, 10.0)
"""C of the logistic regression, the inverse of its penalty on large weights."""


class DigitScores(NamedTuple):
    """Accuracies on the test images, in percent.

    interval   of `accuracy`: Wilson's, for 95 %
    confused   the most frequent mistake: the digit that is there, the one that is read, how often; None without any
    linear     of a multinomial logistic regression on the pixels
    neighbour  of the digit that the nearest training image shows, by Euclidean distance
    """

    n_images: int
    accuracy: float
    interval: tuple[float, float]
    confused: tuple[int, int, int] | None
    linear: float
    neighbour: float

    def as_record(self) -> dict[str, Any]:
        """The scores, flat."""
        return self._asdict()

    def as_text(self) -> str:
        """Three lines or four."""
        low, high = self.interval
        lines = [
            f"accuracy {self.accuracy:.1f} %  (95 % interval {low:.1f} to {high:.1f}, {self.n_images} test images)"
        ]
        if self.confused:
            lines.append("most frequent mistake: a {} read as a {}, {} times".format(*self.confused))
        return "\n".join(
            [
                *lines,
                f"logistic regression on the pixels {self.linear:.1f} %",
                f"nearest training image {self.neighbour:.1f} %",
            ]
        )


def evaluate(trained: Trained) -> DigitScores:
    """The test images of `read_images`, which no training has seen. The baselines learn from the training images."""
    images = read_images()
    test = images["test"]
    with using(*trained.device.ops):
        found = read_digits(trained.model, test)
    right = int((found == test.digits).sum())
    return DigitScores(
        len(found),
        100 * right / len(found),
        wilson_interval(right, len(found)),
        most_confused(test.digits, found),
        percent(linear_baseline(images), test),
        percent(nearest_neighbour(images["train"], test), test),
    )


def read_digits(model: Model, images: Images) -> np.ndarray:
    """The digit that the model sees in each image: (n,) int, 0 to 9"""
    everything = np.arange(len(images.digits))
    return predictions(model, LabelledImages(images, n_positions=1).batch(everything)) - 1


def percent(found: np.ndarray, images: Images) -> float:
    """How many of these digits are right, in percent."""
    return 100 * float(np.mean(found == images.digits))


def most_confused(digits: np.ndarray, found: np.ndarray) -> tuple[int, int, int] | None:
    """The pair of digits that is confused most often: what is there, what is read, how often."""
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (digits, found), 1)
    np.fill_diagonal(counts, 0)
    there, read = divmod(int(counts.argmax()), 10)
    return (there, read, int(counts[there, read])) if counts.any() else None


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
