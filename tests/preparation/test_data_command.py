"""The command `scratchformer data NAME`: download a public data set and prepare it for training."""

import re

import pytest
from local_server import LocalServer, write_dataset

from scratchformer.cli import main
from scratchformer.config import PRESETS, PUBLIC_CORPORA
from scratchformer.preparation.datasets import DATASETS
from scratchformer.preparation.pipeline import Options
from scratchformer.preparation.prepared import read_manifest


def test_the_command_line_knows_every_data_set():
    assert PUBLIC_CORPORA == list(DATASETS)
    presets = {name for name in PRESETS if any(name.startswith(corpus) for corpus in PUBLIC_CORPORA)}
    translation = {name for name in PRESETS if PRESETS[name].data.task == "translation"}
    assert presets == translation - {"tiny", "base", "big"}


@pytest.mark.parametrize(("name", "source", "target"), [("multi30k", "en", "de"), ("wmt14-en-fr", "en", "fr")])
def test_one_command_downloads_and_prepares(cli, tmp_path, monkeypatch, name, source, target):
    pairs = [
        (f"the {word} sees number {number} .", f"{word} sieht Nummer {number} .")
        for number in range(40)
        for word in ("dog", "cat", "bird")
    ]
    dataset = write_dataset(tmp_path / "server", name, pairs, pairs[:3], pairs[3:8])
    monkeypatch.setitem(DATASETS, name, dataset)
    out = tmp_path / "data"
    with LocalServer(tmp_path / "server") as server:
        command = ["data", name, "--mirror", server.url, "--out", out, "--vocab-size", 60, "--workers", 1]
        first = cli(*command)
        assert first.code == 0 and dataset.licence in first.err
    assert name in first.out and f"--data {out}" in first.out
    assert (out / f"test.{target}").read_text(encoding="utf-8").splitlines() == [sentence for _, sentence in pairs[3:8]]
    manifest = read_manifest(out)
    assert (manifest.dataset, manifest.languages, manifest.vocab_size) == (name, (source, target), 60)
    assert manifest.clean["total"]["kept"] == manifest.splits["train"].pairs == len(pairs)
    again = cli(*command)  # without a server
    assert again.code == 0 and again.err.count("done before") == 1 and again.out == first.out


def test_options_for_other_data(refused, tmp_path):
    assert "data multi30k: takes no --source" in refused("data", "multi30k", "--out", tmp_path / "a", "--source", "x")
    assert "data tiny: takes no --mirror" in refused("data", "tiny", "--out", tmp_path / "a", "--mirror", "http://x")
    assert "data tiny: takes no --vocab-size" in refused("data", "tiny", "--out", tmp_path / "a", "--vocab-size", 5)
    assert "come in pairs" in refused("data", "files", "--out", tmp_path / "a")
    assert "data tiny: takes no --workers" in refused("data", "tiny", "--out", tmp_path / "a", "--workers", 1)
    assert "data files: takes no --mirror" in refused("data", "files", "--out", tmp_path / "a", "--mirror", "http://x")
    assert not (tmp_path / "a").exists()


def test_the_help_names_the_defaults(capfd):
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    printed = " ".join(capfd.readouterr().out.partition("options:")[2].split())
    for name in ("vocab_size", "max_words", "max_ratio", "max_length", "sample"):
        said = re.search(rf"--{name.replace('_', '-')} .*?\(default: (\d+)[;)]", printed)
        assert said and float(said[1]) == getattr(Options(), name)


@pytest.mark.parametrize("mirror", ["nonsense", "ftp://mirror.example"])
def test_a_mirror_that_is_not_an_address(refused, tmp_path, mirror):
    said = refused("data", "multi30k", "--out", tmp_path / "a", "--mirror", mirror)
    assert said == f"scratchformer: --mirror {mirror}: does not begin with http:// or https://\n"


@pytest.mark.parametrize("preset", ["multi30k", "wmt14-en-de-base", "wmt14-en-fr-big"])
def test_a_preset_without_its_text_says_where_to_get_it(refused, tmp_path, preset):
    said = refused("train", preset, "--out", tmp_path / "run")
    assert f"`scratchformer data {preset.removesuffix('-base').removesuffix('-big')} --out DIR`" in said
    assert not (tmp_path / "run").exists()
