"""20_beam_step: one step of a beam (lesson 20).

W beginnings of a sentence are in the beam.

    alive   (W,)     log P of each of them
    log_p   (W, V)   log P of each of the V pieces to come next, after each of them; minus infinity for what is never
                     written

Return the n likeliest continuations among all W V of them, the best first, as three arrays of n numbers:

    totals    log P of the continuation
    parents   which of the W beginnings it continues
    tokens    which of the V pieces it adds
"""

import numpy as np

from scratchformer.commands.learn import check_file


def beam_step(alive, log_p, n):
    raise NotImplementedError
    return totals, parents, tokens


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
