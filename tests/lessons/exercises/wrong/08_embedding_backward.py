import numpy as np


def real(dx, ids):
    return np.sqrt(dx.shape[-1]) * dx * (ids != 0)[..., None]


def empty(dx, V):
    return np.zeros((V, dx.shape[-1]))


def repeats_lost(dx, ids, V):
    """of a repeated word only the last place counts"""
    dE = empty(dx, V)
    dE[ids] += real(dx, ids)
    return {"dE": dE}


def first_place_only(dx, ids, V):
    """of a repeated word only the first place counts"""
    dE = empty(dx, V)
    words, first = np.unique(ids, return_index=True)
    dE[words] = real(dx, ids).reshape(-1, dx.shape[-1])[first]
    return {"dE": dE}


def mean_of_places(dx, ids, V):
    """a mean over the places of a word"""
    dE = empty(dx, V)
    for word in np.unique(ids):
        dE[word] = real(dx, ids)[ids == word].mean(axis=0)
    return {"dE": dE}


def factor_forgotten(dx, ids, V):
    """the factor `sqrt(D)` is missing"""
    dE = empty(dx, V)
    np.add.at(dE, ids, dx * (ids != 0)[..., None])
    return {"dE": dE}


def factor_divides(dx, ids, V):
    """divided by `sqrt(D)` where it should be multiplied"""
    dE = empty(dx, V)
    np.add.at(dE, ids, dx * (ids != 0)[..., None] / np.sqrt(dx.shape[-1]))
    return {"dE": dE}


def padding_has_a_gradient(dx, ids, V):
    """only row 0 is wrong"""
    dE = empty(dx, V)
    np.add.at(dE, ids, np.sqrt(dx.shape[-1]) * dx)
    return {"dE": dE}


def by_place(dx, ids, V):
    """by place, not by word"""
    dE = empty(dx, V)
    dE[: ids.shape[1]] = real(dx, ids).sum(axis=0)
    return {"dE": dE}
