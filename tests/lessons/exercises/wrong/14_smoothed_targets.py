import numpy as np


def filled(targets, V, elsewhere, on_target):
    q = np.full((*targets.shape, V), elsewhere)
    np.put_along_axis(q, targets[..., None], on_target, axis=-1)
    return q * (targets != 0)[..., None]


def always_uniform(targets, V, smoothing, spread):
    """divided among the V - 1 other classes, not among V"""
    return filled(targets, V, smoothing / V, 1 - smoothing + smoothing / V)


def always_others(targets, V, smoothing, spread):
    """every class gets smoothing / V, the right one too"""
    return filled(targets, V, smoothing / (V - 1), 1 - smoothing)


def share_of_the_right_class_forgotten(targets, V, smoothing, spread):
    """the right class keeps 1 - smoothing and gets no share of the rest"""
    return filled(targets, V, smoothing / (V if spread == "uniform" else V - 1), 1 - smoothing)


def nothing_taken_away(targets, V, smoothing, spread):
    """the share is added to a 1 from which nothing was taken"""
    share = smoothing / (V if spread == "uniform" else V - 1)
    return filled(targets, V, share, 1 + share * (spread == "uniform"))


def padding_as_no_class(targets, V, smoothing, spread):
    """padding as a class gets no share, and the rest is divided by V - 2"""
    if spread == "uniform":
        return filled(targets, V, smoothing / V, 1 - smoothing + smoothing / V)
    q = filled(targets, V, smoothing / (V - 2), 1 - smoothing)
    if smoothing:
        q[..., 0] = 0
    return q


def padded_rows_too(targets, V, smoothing, spread):
    """a padded target is no target: its row is 0 throughout"""
    share = smoothing / (V if spread == "uniform" else V - 1)
    return share + (1 - smoothing - share * (spread == "others")) * np.eye(V)[targets]


def exchanged(targets, V, smoothing, spread):
    """the right class and the others have exchanged their shares"""
    share = (1 - smoothing) / (V if spread == "uniform" else V - 1)
    return filled(targets, V, share, smoothing + share * (spread == "uniform"))
