import numpy as np


def run_for(run, steps):
    for _ in range(steps):
        run.step()
    return run


def compares_at_once(begin):
    """accepts a checkpoint that lacks something: Adam's m is lost"""
    run, resumed = run_for(begin(), 3), begin()
    resumed.restore(run.state())
    return np.array_equal(run.w, resumed.w)


def stops_at_the_end_of_an_epoch(begin):
    """accepts a checkpoint that lacks something: the place in the data is lost"""
    run, resumed = run_for(begin(), 4), begin()
    saved = run.state()
    run_for(run, 5)
    resumed.restore(saved)
    return np.array_equal(run.w, run_for(resumed, 5).w)


def forgives(begin):
    """accepts a checkpoint that lacks something: weights come back off by 1e-9"""
    run, resumed = run_for(begin(), 3), begin()
    saved = run.state()
    run_for(run, 5)
    resumed.restore(saved)
    return np.allclose(run.w, run_for(resumed, 5).w)


def does_not_let_the_first_run_go_on(begin):
    """accepts a checkpoint that lacks something: the checkpoint holds the run's own arrays"""
    resumed = begin()
    resumed.restore(run_for(begin(), 3).state())
    return np.array_equal(run_for(begin(), 8).w, run_for(resumed, 5).w)


def never_resumes(begin):
    """the checkpoint holds the run's own arrays, which change when the run goes on; weights come back off by 1e-9"""
    return np.array_equal(run_for(begin(), 8).w, run_for(begin(), 8).w)


def forgets_how_far_the_other_is(begin):
    """it refuses what is sound"""
    run, resumed = run_for(begin(), 3), begin()
    resumed.restore(run.state())
    return np.array_equal(run_for(run, 4).w, run_for(resumed, 5).w)
