"""Runs that learn to parse, from a small treebank of our own sentences."""

import shutil

import pytest

from scratchformer import config as configs
from scratchformer.errors import UserError
from scratchformer.experiments.figures import attention_of_translation
from scratchformer.tasks import start
from scratchformer.tasks.parsing import read_treebank
from scratchformer.text.trees import parsed_trees
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_run


@pytest.fixture
def run(task_run, tmp_path):
    """A copy, to which scores are added."""
    return RunDirectory(shutil.copytree(task_run("parsing-tiny").path, tmp_path / "run"))


def test_a_run_knows_its_symbols(run):
    config = configs.load(run.config_file)
    assert 120 < config.model.vocab_size < 160 and 30 < config.model.target_vocab_size < 70
    assert config.model.n_tags == 24
    assert [entry["step"] for entry in run.read_log("f1")] == [6, 12]


def test_lines_become_trees_over_their_words(cli, run, tmp_path):
    (tmp_path / "lines").write_text("The old dog saw a cat.\n\nyes\n")
    printed = cli("translate", run.path, tmp_path / "lines", "--beam", 2)
    trees = printed.out.split("\n")
    assert (printed.code, len(trees)) == (0, 4)
    words = [parsed_trees([line], "output")[0].words if line else [] for line in trees]
    assert words == ["The old dog saw a cat .".split(), [], ["yes"], []]
    attention = attention_of_translation(load_run(run.path), "The old dog saw a cat.", beam=1, alpha=0.0)
    assert len(attention.source) >= 8 and attention.source[-1] == "</s>", "the full stop is a word"
    assert " ".join(attention.target).replace("▁", "").removesuffix(" </s>") == attention.text


def test_trees_are_scored(cli, refused, run, treebank, tmp_path):
    output, some = tmp_path / "output", tmp_path / "some.trees"
    scored = cli("evaluate", run.path, "--beam", 1, "--output", output)
    assert scored.code == 0 and scored.out.startswith("F1 ")
    assert "of 13 sentences, 0 of them not counted" in scored.out
    gold = read_treebank(treebank / "test.trees")
    written = parsed_trees(output.read_text("utf-8").splitlines(), "output")
    assert [tree.words for tree in written] == [tree.words for tree in gold]
    output.unlink()
    some.write_text("".join(f"{tree}\n" for tree in gold[:3]), "utf-8")
    assert cli("evaluate", run.path, "--beam", 1, "--reference", some, "--output", output).code == 0
    assert parsed_trees(output.read_text("utf-8").splitlines(), "output") == written[:3]
    assert [record["n_sentences"] for record in run.read_evaluations()] == [13, 3]
    said = refused("evaluate", run.path, "--reference", some, "--output", some)
    assert "is a text of the run or of the test set" in said
    assert "--source means nothing for" in refused("evaluate", run.path, "--source", some)


def test_the_papers_settings():
    """§6.3: four layers of 1024, 16K pieces, beam 21, alpha 0.3, at most 300 symbols more than words."""
    paper = configs.preset("parsing")
    assert (paper.model.N, paper.model.d_model, paper.model.vocab_size) == (4, 1024, 16384)
    assert (paper.decoding.beam, paper.decoding.alpha, paper.decoding.extra_length) == (21, 0.3, 300)


@pytest.mark.parametrize(
    "name, content, complaint",
    [
        ("train.trees", "\n\n", "train.trees: holds no trees"),
        ("val.trees", "(S (NN a))\n(S (NN b)", "val.trees, line 2: the tree that begins here does not end"),
        ("train.trees", "(S (NN a) (NN b))", "too little text for a vocabulary: no word occurs 3 times"),
        ("train.trees", "(S (S I) (VP (VB go)))\n" * 9, "have S as a tag and as the label of a phrase"),
    ],
)
def test_bad_trees(refused, treebank, task_settings, tmp_path, name, content, complaint):
    directory = shutil.copytree(treebank, tmp_path / "treebank")
    (directory / name).unlink()
    if content is not None:
        (directory / name).write_text(content)
    train = ["train", "parsing-tiny", "--out", tmp_path / "run", *task_settings("parsing-tiny")]
    assert complaint in refused(*train, "--data", directory)
    assert not (tmp_path / "run").exists()


def test_a_pretrained_run_knows_the_symbols_of_the_trees(task_config, task_run, treebank, tmp_path):
    pretrained = str(task_run("parsing-tiny").path)
    shutil.copytree(treebank, tmp_path / "other")
    with open(tmp_path / "other" / "train.trees", "a") as file:
        file.write("(S (NEW a))\n")
    config = task_config("parsing-tiny", pretrained=pretrained, directory=str(tmp_path / "other"))
    with pytest.raises(UserError, match="the training trees have NEW, which the run's vocabulary lacks"):
        start.begin(RunDirectory(tmp_path / "run"), config)


@pytest.mark.slow
def test_it_learns_to_parse(tmp_path):
    run, changes = RunDirectory(tmp_path / "run"), {"steps": 250, "score_every": 250, "threads": 1}
    loop.train(start.begin(run, configs.with_settings(configs.PRESETS["parsing-tiny"], changes)))
    (entry,) = run.read_log("f1")
    assert entry["f1"] > 60  # a right-branching parser has less than 40
