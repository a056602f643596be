"""Ranks as threads of the test: quick to start, and they talk as processes do."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scratchformer.parallel.shared_memory import SharedMemory, create
from scratchformer.parallel.watchdog import Watchdog


@pytest.fixture
def together(tmp_path):
    """together(size, work) -> what work(ranks) returned on each rank"""
    def run(size, work):
        path = tmp_path / "memory"
        create(path, size)

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

    def _set(self, seconds):
        pass
