"""What test_mpi.py lets MPI start: python mpi_rank.py collectives, or python mpi_rank.py TROUBLE train ...

TROUBLE is what befalls rank 1 in the sixth step (all_refuse: both ranks).
"""

import sys
import time

import ml_dtypes
import numpy as np

from scratchformer import cli
from scratchformer.errors import UserError
from scratchformer.parallel import launcher, mpi
from scratchformer.training.loop import Trainer


def collectives(ranks):
    assert (ranks.size, ranks.local_rank) == (2, ranks.rank)
    for dtype in (np.float32, np.float64, np.int64, np.float16, ml_dtypes.bfloat16):
        for shape in ((0,), (1,), (3, 5), (300_001,)):
            x = np.full(shape, ranks.rank + 1, dtype)
            ranks.all_reduce_(x)
            assert (x == 3).all(), (dtype, shape)
            x = np.full(shape, ranks.rank + 1, dtype)
            ranks.broadcast_(x, root=1)
            assert (x == 2).all(), (dtype, shape)
    assert ranks.share(b"from %d" % ranks.rank, root=1) == b"from 1"
    assert ranks.gather(b"x" * ranks.rank) == [b"", b"x"]
    ranks.barrier()
    with open("/proc/self/maps") as maps:  # nothing to leave behind if killed
        assert not [line for line in maps if "/dev/shm/mpich" in line and "(deleted)" not in line]


def in_trouble(step):
    def troubled(trainer, *place):
        if trainer.progress.step == 5 and (trainer.ranks.rank == 1 or TROUBLE == "all_refuse"):
            if TROUBLE == "all_refuse":
                trainer.ranks.barrier()
                mpi.HEARD *= 4  # rank 1 lets rank 0 speak first
            if TROUBLE == "raise":
                raise RuntimeError("nobody has thought of this")
            if TROUBLE == "hang":
                time.sleep(60)
            raise UserError("this cannot go on")
        return step(trainer, *place)

    return troubled


TROUBLE, *arguments = sys.argv[1:]
if TROUBLE == "collectives":
    with launcher.joined(timeout=60) as ranks:
        collectives(ranks)
else:
    Trainer.step = in_trouble(Trainer.step)
    sys.exit(cli.main(arguments))
