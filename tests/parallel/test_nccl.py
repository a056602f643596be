"""Communication between GPUs: CuPy's real binding over a stub of NCCL, with arrays in host memory."""

import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from scratchformer.errors import UserError
from scratchformer.parallel import launcher
from scratchformer.parallel.communicator import Communicator
from scratchformer.parallel.nccl import Nccl

HERE = Path(__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("clang")


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """The path of the compiled library."""
    pytest.importorskip("cupy")
    if COMPILER is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("stub") / "libnccl.so.2"
    subprocess.run(
        [COMPILER, "-O1", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", HERE / "nccl_stub.c", "-o", library],
        check=True,
    )
    return library


@pytest.fixture
def job(stub, tmp_path, monkeypatch, capfd):
    """job(size, "function") -> exit code, standard error of ranks that run this function of nccl_rank.py"""

    def run(size, what):
        boards = tmp_path / "boards"
        boards.mkdir()
        monkeypatch.setenv("TMPDIR", str(boards))
        code = launcher.launch([sys.executable, "-W", "error", str(HERE / "nccl_rank.py"), str(stub), what], size)
        return code, capfd.readouterr().err

    return run


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("what", ["collectives", "a_gradient"])
def test_sums_and_copies_are_right(job, size, what):
    assert job(size, what) == (0, "")


@pytest.mark.parametrize("what", ["the_order", "bad_arrays", "errors", "no_connection_at_all"])
def test_one_rank(job, what):
    assert job(1, what) == (0, "")


@pytest.mark.parametrize("what, who", [("no_id", ""), ("no_connection", "rank 1: ")])
def test_a_rank_that_cannot_connect_ends_those_that_wait_for_it(what, who, job, monkeypatch):
    monkeypatch.setattr(launcher, "GRACE", 0.5)
    assert job(3, what) == (
        2,
        (
            f"scratchformer: {who}NCCL cannot connect the GPUs: NCCL_ERROR_SYSTEM_ERROR: the stub was told to fail; "
            "for details, set NCCL_DEBUG=WARN in the environment\n"
        ),
    )


def test_a_rank_that_dies_ends_the_job(job):
    code, said = job(2, "dying")
    assert code == 1 and "NCCL_ERROR_REMOTE_ERROR: a rank is gone" in said and "rank 1 was killed by SIGKILL" in said


def test_a_rank_that_raises_frees_its_communicator_without_waiting(job):
    code, said = job(2, "raising")
    assert code == 1 and "rank 1 | RuntimeError: rank 1 is unhappy\n" in said
    assert "rank 1 | 0 destroyed, 1 aborted\n" in said


def test_a_missing_library_is_reported_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", types.SimpleNamespace(available=False))
    with pytest.raises(UserError, match="several GPUs need NCCL, which CuPy cannot find; pip install nvidia-nccl"):
        Nccl(Communicator(), cupy=None)
