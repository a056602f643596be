import numpy as np


def counts(words, times, n_pieces, pairs=lambda word: zip(word, word[1:])):
    result = np.zeros((n_pieces, n_pieces), int)
    for word, number in zip(words, times):
        for pair in pairs(word):
            result[pair] += number
    return result


def times_forgotten(words, times, n_pieces):
    """each different word counts once"""
    return counts(words, [1] * len(words), n_pieces)


def one_long_word(words, times, n_pieces):
    """pairs run across the borders of words"""
    result = counts(words, times, n_pieces)
    for word, following, number in zip(words, words[1:], times):
        result[word[-1], following[0]] += number
    return result


def each_pair_once_a_word(words, times, n_pieces):
    """a pair counts once in each word"""
    return counts(words, times, n_pieces, lambda word: set(zip(word, word[1:])))


def two_by_two(words, times, n_pieces):
    """only every second pair is counted"""
    return counts(words, times, n_pieces, lambda word: zip(word[::2], word[1::2]))


def in_either_order(words, times, n_pieces):
    """a b and b a are one and the same here"""
    result = counts(words, times, n_pieces)
    return np.where(np.eye(n_pieces, dtype=bool), result, result + result.T)


def right_piece_in_the_row(words, times, n_pieces):
    """rows and columns are exchanged"""
    return counts([word[::-1] for word in words], times, n_pieces)
