"""Processes that share the work on a text, and Ctrl-C."""

import multiprocessing
import os
import signal

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
