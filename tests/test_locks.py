"""A directory that one process has for itself."""

import os
import subprocess
import sys

import pytest

from scratchformer.errors import UserError
from scratchformer.locks import lock, locked


def test_one_at_a_time(tmp_path):
    with locked(tmp_path, "somebody is here"):
        with pytest.raises(UserError, match=f"^{tmp_path}: somebody is here$"):
            lock(tmp_path, "somebody is here")
    os.close(lock(tmp_path, "somebody is here"))


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path; from scratchformer.locks import lock; "
        "lock(Path(sys.argv[1]), 'mine'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path]).returncode == -9
    os.close(lock(tmp_path, "somebody is here"))
