"""Runs of a Vision Transformer that reads scikit-learn's digits."""

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.tasks import start
from scratchformer.tasks.digits import Images, nearest_neighbour, read_digits, read_images
from scratchformer.tasks.task import Z, share
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_model

PART = {"train": 60, "val": 30, "test": 40}


@pytest.fixture(autouse=True)
def fewer_images(request, monkeypatch):
    """A run reads some of the images only, unless the test is slow."""
    if not request.node.get_closest_marker("slow"):
        few = {part: Images(*(each[: PART[part]] for each in images)) for part, images in read_images().items()}
        monkeypatch.setattr("scratchformer.tasks.digits.read_images", lambda: few)


# The images -----------------------------------------------------------------------------------------------------------


def test_each_image_is_in_one_test_set_and_in_one_part():
    folds = [read_images(fold) for fold in range(5)]
    for parts in folds:
        assert sum(len(images.digits) for images in parts.values()) == 1797
        assert len({image.tobytes() for images in parts.values() for image in images.pixels}) == 1797
        assert len(parts["val"].digits) == 200 and 359 <= len(parts["test"].digits) <= 360
        assert all(images.pixels.min() == 0 and images.pixels.max() == 1 for images in parts.values())
    assert len({image.tobytes() for parts in folds for image in parts["test"].pixels}) == 1797


# Runs -----------------------------------------------------------------------------------------------------------------


def test_train_and_evaluate(cli, task_settings, tmp_path):
    run = tmp_path / "run"
    settings = [*task_settings("vit-digits"), "--set", "patch_size=4"]
    assert "60 images" in cli("train", "vit-digits", "--out", run, *settings).err
    config = configs.load(run / "config.toml")
    assert config.model.max_positions == config.data.max_length == 5
    assert not (run / "tokenizer.model").exists()
    model = load_model(run).model
    images = read_images()["val"]
    scores = RunDirectory(run).read_log("accuracy")
    last = load_model(run, "last").model
    right = (read_digits(last, images)[:30] == images.digits[:30]).mean()
    assert [entry["step"] for entry in scores] == [6, 12] and scores[-1]["accuracy"] == pytest.approx(100 * right)
    printed = cli("evaluate", run).out
    assert model.config.patch_size == 4 and "40 test images" in printed and "nearest training image" in printed


@pytest.mark.slow
def test_it_learns_to_read(tmp_path):
    run = RunDirectory(tmp_path / "run")
    loop.train(start.begin(run, configs.with_settings(configs.PRESETS["vit-digits"], {"steps": 300, "threads": 1})))
    assert run.read_log("accuracy")[-1]["accuracy"] > 90


# Scores ---------------------------------------------------------------------------------------------------------------


def test_wilson_s_interval():
    """Its definition: at each limit p, the share that is seen lies Z standard deviations sqrt(p (1 - p) / n) away."""
    for right, n in [(350, 360), (1, 7), (0, 5), (9, 9)]:
        for limit in share(np.arange(n) < right)[1]:
            p = limit / 100
            assert abs(right / n - p) == pytest.approx(Z * (p * (1 - p) / n) ** 0.5, abs=1e-9)


def test_the_nearest_image_decides():
    images = read_images(1)
    test = Images(*(each[:40] for each in images["test"]))
    distances = np.linalg.norm(test.pixels[:, None] - images["train"].pixels, axis=(2, 3))
    expected = images["train"].digits[distances.argmin(axis=1)]
    assert np.array_equal(nearest_neighbour(images["train"], test), expected)
