"""Runs that learn to parse, from a small treebank of our own sentences."""

import shutil

import pytest

from scratchformer import config as configs
from scratchformer.experiments.figures import attention_of_translation
from scratchformer.text import bundled
from scratchformer.text.trees import parsed_trees
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_run

SMALL = {
    "vocab_size": 120,
    "N": 1,
    "d_model": 16,
    "d_ff": 32,
    "h": 2,
    "tokens_per_batch": 200,
    "warmup": 10,
    "steps": 6,
    "validate_every": 3,
    "score_every": 3,
    "save_every": 2,
    "average_last": 2,
    "extra_length": 20,
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
def settings(treebank):
    """A run of a second, as arguments of `train`."""
    return ["--data", treebank, "--threads", 1, *(word for item in SMALL.items() for word in ("--set", "%s=%s" % item))]


def test_from_trees_to_trees(cli, refused, settings, tmp_path):
    run = tmp_path / "run"
    first = cli("train", "parsing-tiny", "--out", run, *settings)
    assert first.code == 0 and "150 trees" in first.err + first.out
    config = configs.load(run / "config.toml")
    assert config.model.vocab_size == 120 and 30 < config.model.target_vocab_size < 70
    assert [entry["step"] for entry in RunDirectory(run).read_log("f1")] == [3, 6]

    (tmp_path / "lines").write_text("The old dog saw a cat.\n\nyes\n")
    printed = cli("translate", run, tmp_path / "lines", "--beam", 2)
    trees = printed.out.split("\n")
    assert (printed.code, len(trees)) == (0, 4)
    words = [parsed_trees([line], "output")[0].words if line else [] for line in trees]
    assert words == ["The old dog saw a cat .".split(), [], ["yes"], []]

    assert cli("average", run).code == 0
    attention = attention_of_translation(load_run(run), "The old dog saw a cat.", beam=1, alpha=0.0)
    assert len(attention.source) >= 8 and attention.source[-1] == "</s>", "the full stop is a word"
    assert " ".join(attention.target).replace("▁", "").removesuffix(" </s>") == attention.text
    scored = cli("evaluate", run, "--beam", 1)
    rows = [line.split()[:-6] for line in scored.out.splitlines()]
    assert (scored.code, rows[1:5]) == (0, [["this", "model"], ["PCFG"], ["right-branching"], ["majority", "label"]])
    assert "of 13 sentences, 0 of them not counted" in scored.out
    (record,) = RunDirectory(run).read_evaluations()
    assert record["n_sentences"] == 13 and record["PCFG F1"] > record["right-branching F1"] > 20
    assert "--paper means nothing for" in refused("evaluate", run, "--paper")


def test_the_papers_settings():
    """§6.3: four layers of 1024, 16K pieces, beam 21, alpha 0.3, at most 300 symbols more than words."""
    paper = configs.preset("parsing")
    assert (paper.model.N, paper.model.d_model, paper.model.vocab_size) == (4, 1024, 16384)
    assert (paper.decoding.beam, paper.decoding.alpha, paper.decoding.extra_length) == (21, 0.3, 300)


@pytest.fixture
def small_config(treebank):
    """small_config(**changes) -> Config of the same run"""
    return lambda **changes: configs.with_settings(
        configs.PARSING_TINY, {"data.directory": str(treebank), "threads": 1} | SMALL | changes
    )


def test_a_stopped_run_goes_on_as_if_it_had_not_been(small_config, tmp_path, same_run):
    whole, halves = (RunDirectory(tmp_path / name) for name in ("whole", "halves"))
    loop.train(loop.begin(whole, small_config()))
    loop.train(loop.begin(halves, small_config(steps=2)))
    config = configs.with_settings(configs.load(halves.config_file), {"steps": SMALL["steps"]})
    loop.train(loop.resume(halves, config)[0])
    same_run(whole, halves)


def test_ranks_share_the_validation_trees(small_config, tmp_path, together):
    alone = loop.begin(RunDirectory(tmp_path / "alone"), small_config())
    expected = alone.task.score(alone)

    def work(ranks):
        trainer = loop.begin(RunDirectory(tmp_path / "shared"), small_config(), ranks)
        return trainer.task.score(trainer)

    for found in together(2, work):
        assert {key: found[key] for key in ("f1", "complete_match", "unparsable")} == pytest.approx(
            {key: expected[key] for key in ("f1", "complete_match", "unparsable")}
        )


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"train.trees": None}, "neither train.trees nor train.trees.gz in"),
        ({"val.trees": None}, "neither val.trees nor val.trees.gz in"),
        ({"train.trees": "\n\n"}, "train.trees: holds no trees"),
        ({"val.trees": "(S (NN a))\n(S (NN b)"}, "val.trees, line 2: the tree that begins here does not end"),
        ({"train.trees": "(S (NN a b))"}, "train.trees, line 1: 'b' is neither a label nor the only word of a tag"),
        (["vocab_size=100000"], "vocab_size 100000 is too large for this text"),
        (["max_length=3"], "has at most max_length = 3 tokens"),
        (["tied=all"], "two vocabularies need an encoder and a decoder, with model.tied='none'"),
    ],
)
def test_bad_input(refused, treebank, settings, tmp_path, changes, complaint):
    directory = shutil.copytree(treebank, tmp_path / "treebank")
    for name, content in changes.items() if isinstance(changes, dict) else ():
        (directory / name).unlink()
        if content is not None:
            (directory / name).write_text(content)
    wrong = [word for change in changes for word in ("--set", change)] if isinstance(changes, list) else []
    out, others = ["--out", tmp_path / "run"], settings[2:]
    assert complaint in refused("train", "parsing-tiny", *out, "--data", directory, *others, *wrong)
    text = ["--train-source", "a", "--train-target", "b"]
    assert "give --data DIR" in refused("train", "parsing-tiny", *out, *text, *others)
    assert not (tmp_path / "run").exists()
