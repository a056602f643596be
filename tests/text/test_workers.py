"""Processes that share the work on a text, and Ctrl-C."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from scratchformer.text import workers


def test_ctrl_c_while_a_process_is_started_is_heard_when_it_has_been(monkeypatch):
    """In mid-start it would leave half a process."""
    started = []

    def start(process, original=multiprocessing.process.BaseProcess.start):
        os.kill(os.getpid(), signal.SIGINT)
        original(process)
        started.append(process)
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start)
    with pytest.raises(KeyboardInterrupt):
        workers.in_another_process(os.getpid)
    assert len(started) == 1 and not started[0].is_alive()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("call", [
    "next(map_in_order(change_mask, [signal.SIG_BLOCK] * 2, 2))", "in_another_process(mask)"])
def test_not_even_the_first_process_hears_ctrl_c(call):
    """Python's own helper, which is started before it, sets this process's mask as well."""
    program = f"""
import signal
from functools import partial
from scratchformer.text.workers import in_another_process, map_in_order
change_mask = partial(signal.pthread_sigmask, mask=())
mask = partial(change_mask, signal.SIG_BLOCK)
print(signal.SIGINT in {call}, signal.SIGINT in mask())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "True False\n", run.stderr
