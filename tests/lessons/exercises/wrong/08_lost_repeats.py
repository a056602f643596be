import numpy as np

PAD = 0


def agrees(backward, ids, V=7, D=5, dx=None, tolerance=1e-6):
    ids = np.array(ids)
    dx = np.random.default_rng(0).normal(size=(*ids.shape, D)) if dx is None else dx
    truth = np.zeros((V, D))
    for place in np.ndindex(ids.shape):
        if ids[place]:
            truth[ids[place]] += np.sqrt(D) * dx[place]
    return np.abs(backward(dx, ids, V) - truth).max() <= tolerance


def no_word_twice(backward):
    """it accepts what is wrong: of a word that is repeated in a sentence, only the last place counts; of a word that"""
    return agrees(backward, [[3, 5, 2], [6, PAD, PAD]])


def one_sentence(backward):
    """it accepts what is wrong: of a word that two sentences share"""
    return agrees(backward, [[3, 5, 3, 6, PAD]])


def twice_in_different_sentences_only(backward):
    """it accepts what is wrong: of a word that is repeated in a sentence, only the last place counts"""
    return agrees(backward, [[3, 5, 2, 6], [5, 1, PAD, PAD]])


def no_padding(backward):
    """it accepts what is wrong: padding has a gradient"""
    return agrees(backward, [[3, 5, 3, 6], [5, 1, 2, 4]])


def upstream_of_ones(backward):
    """dx is ignored"""
    return agrees(backward, [[3, 5, 3, 6], [5, 1, PAD, PAD]], dx=np.ones((2, 4, 5)))


def to_the_last_digit(backward):
    """it refuses what is right"""
    return agrees(backward, [[3, 5, 3, 6, 3, 3, 5], [5, 1, 3, 3, 5, PAD, PAD]], tolerance=0)


def shape_only(backward):
    """sqrt(D) is missing"""
    return backward(np.ones((2, 3, 5)), np.array([[1, 2, 3], [1, 1, 0]]), 7).shape == (7, 5)
