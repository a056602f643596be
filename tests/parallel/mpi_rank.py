"""Started by MPI in test_mpi.py: python mpi_rank.py collectives, or python mpi_rank.py FAILURE train ...

FAILURE is what happens to rank 1 in the sixth step.
"""

import sys
import time

import ml_dtypes
import numpy as np

from scratchformer import cli
from scratchformer.parallel import job
from scratchformer.training.trainer import Trainer


def collectives(ranks):
    assert (ranks.size, ranks.local_rank) == (2, ranks.rank)
    for dtype in (np.float32, np.float64, np.int64, np.float16, ml_dtypes.bfloat16):
        for shape in ((0,), (1,), (3, 5), (300_001,)):
            x = np.full(shape, ranks.rank + 1, dtype)
            ranks.all_reduce_inplace(x)
            assert (x == 3).all(), (dtype, shape)
            x = np.full(shape, ranks.rank + 1, dtype)
            ranks.broadcast_inplace(x, root=1)
            assert (x == 2).all(), (dtype, shape)
    assert ranks.broadcast_bytes(b"from %d" % ranks.rank, root=1) == b"from 1"
    assert ranks.all_gather_bytes(b"x" * ranks.rank) == [b"", b"x"]
    ranks.barrier()


def failing_step(trainer, *place, step=Trainer.step):
    if trainer.progress.step == 5 and trainer.ranks.rank == 1:
        if FAILURE == "raise":
            raise RuntimeError("unexpected")
        time.sleep(60)
    return step(trainer, *place)


FAILURE, *arguments = sys.argv[1:]
if FAILURE == "collectives":
    with job.join(timeout=60) as ranks:
        collectives(ranks)
else:
    Trainer.step = failing_step
    sys.exit(cli.main(arguments))
