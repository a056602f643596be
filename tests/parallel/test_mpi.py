"""Two ranks started by the MPI that mpi4py uses. If pip has installed it, its mpiexec is beside Python."""

import os
import shutil
import subprocess
import sys
import time
import types
from contextlib import suppress
from pathlib import Path

import pytest

from scratchformer.tasks import start
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory

RANK = Path(__file__).with_name("mpi_rank.py")
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
CONSENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",  # of Open MPI, to root, and to more
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # ranks than cores


@pytest.fixture
def mpiexec(tmp_path):
    """mpiexec("-n", 2, ...) -> the process. Its ranks name tmp_path in their commands, and must end with the test."""
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    yield lambda *words: started([MPIEXEC, *words], CONSENT | {"OPENBLAS_NUM_THREADS": "1"})
    deadline = time.monotonic() + 10  # MPI kills its ranks, and does not wait for them
    while commands_naming(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not commands_naming(tmp_path)


def started(command, environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(list(map(str, command)), env=os.environ | environment, **pipes)


def commands_naming(tmp_path):
    """The running commands that name something in this directory."""
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            commands.append(process.read_text())
    return [command for command in commands if str(tmp_path) in command]


def result_of(process):
    """-> exit code, output"""
    try:
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, printed


@pytest.fixture
def command(tmp_path, small_settings):
    """command(...) -> a command, as a list, that trains a small model in tmp_path / "run" """

    train = ["train", "--out", tmp_path / "run", *small_settings, "--set", "threads=1"]
    return lambda *program: [sys.executable, *program, *train]


def test_all_operations_in_all_dtypes(mpiexec, tmp_path):
    assert result_of(mpiexec("-n", 2, sys.executable, RANK, "collectives", tmp_path)) == (0, "")


def test_two_ranks_compute_the_same_bits_as_two_threads(mpiexec, command, small_config, tmp_path, same_run):
    code, printed = result_of(mpiexec("-n", 2, *command("-m", "scratchformer")))
    assert code == 0
    assert printed.count("12 steps done") == printed.count("parameters") == 1  # only rank 0 prints
    alone = RunDirectory(tmp_path / "alone")
    loop.train(start.begin(alone, small_config(threads=2)))
    same_run(RunDirectory(tmp_path / "run"), alone)


@pytest.mark.parametrize(
    "failure, exit_codes, message",
    [
        ("raise", {1}, "unexpected RuntimeError in mpi_rank.py"),
        pytest.param("hang", {1, 9}, "in failing_step", marks=pytest.mark.slow),  # 9: if the killed rank's is returned
    ],
)
def test_a_failure_of_one_rank_ends_all(mpiexec, command, tmp_path, failure, exit_codes, message):
    began = time.monotonic()
    timeout = 4 if failure == "hang" else 120
    code, printed = result_of(mpiexec("-n", 2, *command(RANK, failure), "--timeout", timeout))
    assert code in exit_codes and time.monotonic() - began < 50
    assert printed.count(message) == 1, printed
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} == {
        "best.safetensors",
        "step_00000003.safetensors",
    }


# Environment variables of MPI launchers -------------------------------------------------------------------------------


@pytest.fixture(params=["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def as_one_of_two(request, monkeypatch):
    monkeypatch.setenv(request.param, "2")


def test_without_mpi(refused, small_settings, tmp_path, as_one_of_two, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    train = ["train", "--out", tmp_path / "run", *small_settings, "--timeout", 0]  # no watchdog in this process
    assert "mpi4py is not installed: pip install 'scratchformer[mpi]'" in refused(*train)
    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))  # without MPI
    assert "mpi4py finds no MPI library: cannot import name 'MPI'" in refused(*train)


def test_started_by_the_launcher_of_another_mpi(command, tmp_path):
    """Each process would be alone in its MPI_COMM_WORLD and train by itself."""
    pytest.importorskip("mpi4py")
    code, printed = result_of(started(command("-m", "scratchformer"), {"SLURM_STEP_NUM_TASKS": "2"}))
    assert code == 2 and printed.startswith("scratchformer: MPI has started 2 processes (by "), printed
    assert not (tmp_path / "run").exists()
