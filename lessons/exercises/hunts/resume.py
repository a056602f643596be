"""resume: write the test that finds checkpoints in which something is missing (lesson 19).

begin() makes a new run; every run that it makes is the same. A run has

    run.step()           one step of training; an epoch has four
    run.state()          what its checkpoint would hold
    run.restore(state)   go on from such a state
    run.w                (5,) the weights

Return True if a run that is stopped and taken up by a new run ends bit for bit like one that is not stopped, else
False. Your function is tried on seven kinds of runs in whose checkpoints something is wrong, and on one that is right.
"""

import numpy as np


def resumes_exactly(begin):
    # a first try
    run, other = begin(), begin()
    run.step()
    other.restore(run.state())
    return np.array_equal(run.w, other.w)
