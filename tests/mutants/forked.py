"""Run modules with a bug planted, a process for each, without each of them importing the same libraries again.

A server process imports the libraries once and forks for every run. Of our own code it imports nothing, so everything
can still be patched. Where there is no such server, each process begins from nothing.
"""

import multiprocessing
import os
import sys
import tempfile
import threading
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import pytest
from mutants import ROOT, Mutant
from plant import run

LIBRARIES = [
    "numpy",
    "numpy.random",
    "pytest",
    "pygments",
    "execnet",
    "sentencepiece",
    "safetensors.numpy",
    "sacrebleu",
    "threadpoolctl",
    "tqdm",
]
"""No plugins: pytest must be the first to import these."""

SERVED = "forkserver" in multiprocessing.get_all_start_methods() and len(tempfile.gettempdir()) < 70
"""The server's socket lies in the directory for temporary files, and no socket's path may be longer than 107 bytes."""
PROCESSES = multiprocessing.get_context("forkserver" if SERVED else "spawn")
if SERVED:
    PROCESSES.set_forkserver_preload(LIBRARIES)
ONE_AT_A_TIME = threading.Lock()
"""Threads may run several at once. The environment is theirs together; and starting a process also asks every other one
for its exit code, which can be read only once: a join() in another thread would then tell 255."""


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run_planted(mutant: Mutant, module: str, arguments: list, folder: Path) -> Ended:
    """`plant.py MUTANT MODULE ARGUMENTS`, to its end; what it prints goes through files in this folder."""
    files = [folder / f"{mutant.name}.{stream}" for stream in ("stdout", "stderr")]
    process = PROCESSES.Process(target=run_here, args=(mutant, module, [str(word) for word in arguments], files))
    with ONE_AT_A_TIME, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENBLAS_NUM_THREADS", "1")  # the server has it from its start
        process.start()
    wait([process.sentinel])
    with ONE_AT_A_TIME:
        process.join()
        returncode = process.exitcode
        process.close()
    return Ended(returncode, *(file.read_text(encoding="utf-8") for file in files))


def run_here(mutant: Mutant, module: str, arguments: list[str], files: list[Path]) -> None:
    """Run it in this process, whose standard output and error become these files."""
    for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
        with open(file, "wb") as opened:
            os.dup2(opened.fileno(), stream.fileno())
    os.chdir(ROOT)
    run(mutant, module, arguments)
