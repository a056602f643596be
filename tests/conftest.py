"""Fixtures of several packages' tests: a small corpus, small runs, and the command line."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from scratchformer import config as configs
from scratchformer.cli import main
from scratchformer.parallel.shared_memory import SharedMemory, create_file
from scratchformer.parallel.watchdog import Watchdog
from scratchformer.preparation.pipeline import Options, prepare
from scratchformer.tasks import start
from scratchformer.text.corpora import CorpusFiles, ParallelFiles
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory

WORDS = dict(
    zip(
        "the dog cat sees hears a big bird old and".split(),
        "der Hund Kater sieht hört ein großer Vogel alter und".split(),
    )
)
SMALL = {
    "vocab_size": 60,
    "N": 1,
    "d_model": 16,
    "d_ff": 32,
    "h": 2,
    "P_drop": 0.1,
    "tokens_per_batch": 80,
    "accumulation": 2,
    "warmup": 20,
    "steps": 12,
    "validate_every": 4,
    "save_every": 3,
    "keep": 20,
    "average_last": 2,
    "extra_length": 4,
}
"""A run of a second: 4 checkpoints and 3 validations."""

# `pytest &` ignores Ctrl-C and `nohup pytest` SIGHUP, and so would the processes that the tests start. To a handler,
# even one that does nothing, they are no heirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


def write_split(directory, split, n_lines, seed):
    """Sentences of random words, and the same backwards in German."""
    rng = random.Random(seed)
    sentences = [rng.choices(list(WORDS), k=rng.randint(2, 7)) for _ in range(n_lines)]
    directory.mkdir(parents=True, exist_ok=True)
    for language, lines in (("en", sentences), ("de", [[WORDS[word] for word in line[::-1]] for line in sentences])):
        text = "".join(" ".join(line) + "\n" for line in lines)
        (directory / f"{split}.{language}").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk():
    """The tests write a hundred thousand small files, of which none need survive a power cut. Processes that they start
    do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)  # it must be open nevertheless
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A directory with train.en, train.de, val.en, val.de."""
    directory = tmp_path_factory.mktemp("corpus")
    write_split(directory, "train", 100, seed=0)
    write_split(directory, "val", 20, seed=1)
    return directory


@pytest.fixture(scope="session")
def prepare_corpus(corpus):
    """prepare_corpus(out, **options) -> out, in which the corpus is prepared as `scratchformer data` does it"""

    def build(out, with_val=True, **options):
        train, val = (ParallelFiles(corpus / f"{split}.en", corpus / f"{split}.de") for split in ("train", "val"))
        prepare(
            CorpusFiles([train], val if with_val else None, None),
            out,
            Options(**{"vocab_size": 60} | options),
            lambda line: None,
        )
        return out

    return build


@pytest.fixture(scope="session")
def prepared(prepare_corpus, tmp_path_factory):
    """The corpus of the small runs, prepared."""
    return prepare_corpus(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def small_config(corpus):
    """small_config(**changes) -> Config of a run of a second"""

    def build(**changes):
        return configs.with_settings(configs.TINY, {"data.directory": str(corpus)} | SMALL | changes)

    return build


@pytest.fixture(scope="session")
def small_settings(corpus):
    """The same configuration as arguments of `train`."""
    return ["--data", corpus, *(word for key, value in SMALL.items() for word in ("--set", f"{key}={value}"))]


@pytest.fixture
def begin(tmp_path, small_config):
    """begin("name", **changes) -> Trainer of a new run"""
    return lambda name="run", **changes: start.begin(RunDirectory(tmp_path / name), small_config(**changes))


@pytest.fixture(scope="session")
def trained(tmp_path_factory, small_config):
    """A finished run. Only to be read; `own_run` is a copy that a test may spoil."""
    run = RunDirectory(tmp_path_factory.mktemp("runs") / "trained")
    loop.train(start.begin(run, small_config()))
    return run


@pytest.fixture
def own_run(trained, tmp_path):
    return RunDirectory(shutil.copytree(trained.path, tmp_path / "own"))


@pytest.fixture(scope="session")
def byte_level_files(tmp_path_factory):
    """vocab.json and merges.txt as GPT-2's, but small: learnt from the text of a lesson. Only to be read."""
    import tokenizers  # here, because few tests need it

    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.train([str(Path(__file__).parents[1] / "lessons" / "17_byte_pairs.py")], trainer)
    vocab, merges = map(Path, learner.model.save(str(tmp_path_factory.mktemp("byte_level"))))
    ids = json.loads(vocab.read_bytes())
    vocab.write_text(json.dumps(ids | {"<|endoftext|>": len(ids)}), encoding="utf-8")
    return vocab, merges


# Looking and comparing ------------------------------------------------------------------------------------------------


@pytest.fixture
def blas_threads():
    """blas_threads() -> how many threads each BLAS that is loaded has; usually there is one BLAS"""
    return lambda: {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def same_arrays(some, others):
    """The same names, and bit for bit the same numbers."""
    return some.keys() == others.keys() and all(
        some[name].dtype == others[name].dtype and np.array_equal(some[name], others[name]) for name in some
    )


def assert_same_run(run, other):
    """Same checkpoints on disk; in the last, the same weights, moments and place; the same log, but for the clock."""
    assert [path.name for path in run.checkpoints.steps()] == [path.name for path in other.checkpoints.steps()]
    for path, other_path in (
        (run.checkpoints.best, other.checkpoints.best),
        (run.checkpoints.steps()[-1], other.checkpoints.steps()[-1]),
    ):
        mine, others = checkpoints.load(path), checkpoints.load(other_path)
        assert same_arrays(mine.weights, others.weights)
        assert same_arrays(mine.moments, others.moments)
        assert replace(mine.progress, seconds=0) == replace(others.progress, seconds=0)
    for event in ("step", "validation"):
        assert without_clock(run.read_log(event)) == without_clock(other.read_log(event)) != []


def without_clock(entries):
    return [{key: value for key, value in entry.items() if "seconds" not in key} for entry in entries]


@pytest.fixture(scope="session")
def same():
    return same_arrays


@pytest.fixture(scope="session")
def same_run():
    return assert_same_run


def contents(directory):
    """Every path below a directory and, of plain files, the bytes: to see that nothing has changed."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


@pytest.fixture(scope="session")
def files_of():
    return contents


# The command line -----------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capfd):
    """cli("translate", path, ...) -> exit code, standard output, standard error"""

    def call(*arguments):
        capfd.readouterr()
        return Outcome(main([str(argument) for argument in arguments]), *capfd.readouterr())

    return call


@pytest.fixture
def refused(cli):
    """Run a command that must end in code 2 and one line on standard error -> that line"""

    def call(*arguments):
        outcome = cli(*arguments)
        assert outcome.code == 2
        assert outcome.err.startswith("scratchformer: ") and outcome.err.count("\n") == 1, outcome.err
        return outcome.err

    return call


@pytest.fixture
def together(tmp_path):
    """together(size, work) -> what work(ranks) returned on each rank; ranks are threads, and talk as processes do."""

    def run(size, work):
        path = tmp_path / "memory"
        create_file(path, size)

        def as_rank(rank):
            ranks = SharedMemory(path, rank, size, Patience())
            try:
                return work(ranks)
            except BaseException:
                ranks.abort()
                raise

        with ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(as_rank, rank) for rank in range(size)]
            return [future.result() for future in futures]

    return run


class Patience(Watchdog):
    """Of a test: it gives up, and does not end the process."""

    def __init__(self):
        super().__init__(seconds=30)

    def set(self, seconds):
        pass


# The site -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, with warnings as errors. It is built once for a test run, while its other processes wait. Only to be
    read."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with open(shared / "site.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (shared / "site").exists():
            docs = Path(__file__).parents[1] / "docs"
            command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", shared / "read", docs]
            ended = subprocess.run([*command, shared / "unfinished"], capture_output=True, text=True)
            assert (ended.returncode, ended.stderr) == (0, "")
            (shared / "unfinished").rename(shared / "site")
    return shared / "site"


@pytest.fixture
def cupy(request):
    """CuPy; skips the test if there are too few GPUs."""
    module, needed = pytest.importorskip("cupy"), 2 if request.node.get_closest_marker("multi_gpu") else 1
    try:
        found = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        found = 0
    if found < needed:
        pytest.skip(f"GPUs needed: {needed}; found: {found}")
    return module
