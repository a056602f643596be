"""19_resume: a test that finds checkpoints that lack something (lesson 19).

begin() makes a new run; every run that it makes is the same. A run has

    run.step()           one step of training
    run.state()          what its checkpoint would hold
    run.restore(state)   take such a state up
    run.w                (5,) the weights

Return True if a run that is stopped, and taken up by a new run, is bit for bit the run that was not stopped; False if
not. Your function is tried on seven kinds of runs whose checkpoints lack something, and on two that are sound. An epoch
has four steps.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def resumes_exactly(begin):
    raise NotImplementedError
    return exactly


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
