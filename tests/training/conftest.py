"""A small run of each task, of less than a second."""

from functools import cache

import pytest

from scratchformer import config as configs
from scratchformer.config import PRESETS
from scratchformer.tasks import start
from scratchformer.text import bundled
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory

SMALL = {
    "N": 1,
    "d_model": 16,
    "d_ff": 32,
    "h": 2,
    "tokens_per_batch": 800,
    "accumulation": 2,
    "bucket_fineness": 1,
    "warmup": 10,
    "steps": 12,  # of files at least an epoch and a half
    "validate_every": 6,
    "score_every": 6,
    "save_every": 4,
    "average_last": 2,
    "threads": 2,
}
SMALL_OF = {
    "parsing-tiny": {"vocab_size": 120, "extra_length": 20, "beam": 1, "n_tags": 1},
    "gpt-tiny": {"vocab_size": 400, "max_length": 16, "max_positions": 16},
    "bert-tiny": {"vocab_size": 150},
    "antecedent": {"vocab_size": 150},
    "vit-digits": {},
}


@pytest.fixture(scope="session")
def treebank(tmp_path_factory):
    """A directory with train.trees, val.trees and test.trees."""
    directory = tmp_path_factory.mktemp("treebank")
    trees = [f"( {example.tree})\n(TOP (X (-NONE- *)))\n" for example in bundled.read("val")]  # not yet cleaned
    for split, lines in {"train": trees[:150], "val": trees[150:167], "test": trees[167:180]}.items():
        (directory / f"{split}.trees").write_text("".join(lines), encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Two files of 100 sentences."""
    directory, lines = tmp_path_factory.mktemp("texts"), [f"{line}\n" for line in bundled.read_text("val").source]
    files = {directory / "first.txt": lines[:100], directory / "second.txt": lines[100:200]}
    for path, part in files.items():
        path.write_text("".join(part), encoding="utf-8")
    return list(files)


@pytest.fixture(scope="session")
def task_settings():
    """task_settings(preset) -> the sizes of its small run, as arguments of `train`"""
    return lambda preset: [word for item in (SMALL | SMALL_OF[preset]).items() for word in ("--set", "%s=%s" % item)]


class SmallRuns:
    """The configuration of each preset's small run, and the run."""

    def __init__(self, directory, data):
        self.directory, self.data = directory, data

    def config(self, preset, **changes):
        data = self.data.get(preset, {})
        if preset == "antecedent":
            data = {"pretrained": str(self.run("bert-tiny").path)}
        return configs.with_settings(PRESETS[preset], data | SMALL | SMALL_OF[preset] | changes)

    @cache
    def run(self, preset):
        run = RunDirectory(self.directory / preset)
        loop.train(start.begin(run, self.config(preset)))
        return run


@pytest.fixture(scope="session")
def small_runs(treebank, texts, tmp_path_factory):
    trees, files = {"data.directory": str(treebank)}, {"data.text": tuple(map(str, texts))}
    data = {"parsing-tiny": trees, "gpt-tiny": files, "bert-tiny": files}
    return SmallRuns(tmp_path_factory.mktemp("runs"), data)


@pytest.fixture(scope="session")
def task_config(small_runs):
    """task_config(preset, **changes) -> Config of its small run"""
    return small_runs.config


@pytest.fixture(scope="session")
def task_run(small_runs):
    """task_run(preset) -> its small run, finished"""
    return small_runs.run
