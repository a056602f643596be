import numpy as np


def read_backward(dx, ids, V, factor=None):
    dE = np.zeros((V, dx.shape[-1]))
    factor = np.sqrt(dx.shape[-1]) if factor is None else factor
    np.add.at(dE, ids, factor * dx * (ids != 0)[..., None])
    return dE


def shares(dz, y, E, source_ids, target_ids, factor=None):
    dy = dz @ E
    dsource = np.repeat(dy.sum(axis=1, keepdims=True), source_ids.shape[1], axis=1)
    return (
        dy,
        np.einsum("btv,btd->vd", dz, y),
        read_backward(dy, target_ids, len(E), factor),
        read_backward(dsource, source_ids, len(E), factor),
    )


def scores_dropped(dz, y, E, source_ids, target_ids):
    """the share of the scores is missing"""
    dy, _, target, source = shares(dz, y, E, source_ids, target_ids)
    return {"dy": dy, "dE": target + source}


def source_dropped(dz, y, E, source_ids, target_ids):
    """the share of the words read in the source is missing"""
    dy, scored, target, _ = shares(dz, y, E, source_ids, target_ids)
    return {"dy": dy, "dE": scored + target}


def target_dropped(dz, y, E, source_ids, target_ids):
    """the share of the words read in the target is missing"""
    dy, scored, _, source = shares(dz, y, E, source_ids, target_ids)
    return {"dy": dy, "dE": scored + source}


def factor_forgotten(dz, y, E, source_ids, target_ids):
    """the factor sqrt(D) is missing in both shares of reading"""
    dy, *parts = shares(dz, y, E, source_ids, target_ids, factor=1)
    return {"dy": dy, "dE": sum(parts)}


def factor_everywhere(dz, y, E, source_ids, target_ids):
    """the factor sqrt(D) stands before the share of the scores, too"""
    dy, scored, target, source = shares(dz, y, E, source_ids, target_ids)
    return {"dy": dy, "dE": np.sqrt(E.shape[1]) * scored + target + source}


def factor_in_dy(dz, y, E, source_ids, target_ids):
    """the factor sqrt(D) belongs to reading"""
    dy, *parts = shares(dz, y, E, source_ids, target_ids)
    return {"dy": np.sqrt(E.shape[1]) * dy, "dE": sum(parts)}


def repeats_lost(dz, y, E, source_ids, target_ids):
    """of a repeated word only the last place counts"""
    dy, scored, *_ = shares(dz, y, E, source_ids, target_ids)
    dE = np.zeros_like(E)
    dE[target_ids] += np.sqrt(E.shape[1]) * dy * (target_ids != 0)[..., None]
    dsource = np.repeat(dy.sum(axis=1, keepdims=True), source_ids.shape[1], axis=1)
    of_source = np.zeros_like(E)
    of_source[source_ids] += np.sqrt(E.shape[1]) * dsource * (source_ids != 0)[..., None]
    return {"dy": dy, "dE": scored + dE + of_source}


def mean_over_the_target(dz, y, E, source_ids, target_ids):
    """the source's share has a mean over the T positions of dy where the sum is meant"""
    dy, scored, target, source = shares(dz, y, E, source_ids, target_ids)
    return {"dy": dy, "dE": scored + target + source / dy.shape[1]}


def mean_over_the_scores(dz, y, E, source_ids, target_ids):
    """the share of the scores is a mean over the positions of dz"""
    dy, scored, target, source = shares(dz, y, E, source_ids, target_ids)
    return {"dy": dy, "dE": scored / (dz.shape[0] * dz.shape[1]) + target + source}


def padding_has_a_gradient(dz, y, E, source_ids, target_ids):
    """only row 0 is wrong"""
    dy, *parts = shares(dz, y, E, source_ids, target_ids)
    dE = sum(parts)
    dE[0] += np.sqrt(E.shape[1]) * dy[target_ids == 0].sum(axis=0)
    return {"dy": dy, "dE": dE}
