"""Run a module with a mutant planted, in a process of its own.

A server process imports the libraries once and is forked for every run, which saves a second each time. It imports
none of our own code, so everything can still be patched. Where fork servers are missing, each process starts afresh.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

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
"""Modules that the server imports; no pytest plugins, since pytest must be the first to import those."""

CAN_FORK = "forkserver" in multiprocessing.get_all_start_methods() and len(tempfile.gettempdir()) < 70
"""The server's socket lies in the directory for temporary files, and its path may not exceed 107 bytes."""

PROCESSES = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
if CAN_FORK:
    PROCESSES.set_forkserver_preload(LIBRARIES)


def in_tiers(mutants: list[Mutant]) -> list:
    """pytest parameters: the first mutant of each origin for the quick tests, all others marked slow."""
    quick = {mutant.origin: mutant.name for mutant in reversed(mutants)}.values()
    return [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in quick else pytest.mark.slow)
        for mutant in mutants
    ]


def run_planted(mutant: Mutant, module: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Run `plant.py MUTANT MODULE ARGUMENTS`; its output passes through files in `folder`."""
    files = [folder / "stdout", folder / "stderr"]
    process = PROCESSES.Process(target=run_here, args=(mutant, module, arguments, files))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENBLAS_NUM_THREADS", "1")  # the server inherits it when it starts
        process.start()
    process.join()
    return subprocess.CompletedProcess(
        [module, *arguments], process.exitcode, *(file.read_text(encoding="utf-8") for file in files)
    )


def run_here(mutant: Mutant, module: str, arguments: list[str], files: list[Path]) -> None:
    """Run the module in this process, with standard output and standard error going to the two files."""
    for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
        with open(file, "wb") as opened:
            os.dup2(opened.fileno(), stream.fileno())
    os.chdir(ROOT)
    run(mutant, module, arguments)
