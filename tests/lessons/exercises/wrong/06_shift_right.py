import numpy as np


def padded(rows, fill=0, width=None):
    width = width or max(map(len, rows))
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows])


def not_shifted(sentences):
    """nothing is shifted"""
    write = padded([[*row, 1] for row in sentences])
    return write, write


def shifted_left(sentences):
    """shifted to the left"""
    write = padded([[*row, 1] for row in sentences])
    return np.concatenate([write[:, 1:], np.zeros_like(write[:, :1])], axis=1), write


def end_is_read(sentences):
    """</s> (1) is read in shorter sentences"""
    write = padded([[*row, 1] for row in sentences])
    return np.concatenate([np.full_like(write[:, :1], 2), write[:, :-1]], axis=1), write


def end_never_written(sentences):
    """</s> (1) is never written"""
    read = padded([[2, *row] for row in sentences])
    return read, np.concatenate([read[:, 1:], np.zeros_like(read[:, :1])], axis=1)


def begins_with_padding(sentences):
    """what is read begins with padding (0)"""
    return padded([[0, *row] for row in sentences]), padded([[*row, 1] for row in sentences])


def padded_on_the_left(sentences):
    """the padding stands on the left"""
    width = max(map(len, sentences)) + 1
    return (
        np.array([[0] * (width - 1 - len(row)) + [2, *row] for row in sentences]),
        np.array([[0] * (width - 1 - len(row)) + [*row, 1] for row in sentences]),
    )


def rolled(sentences):
    """the last id of each row came round to its front"""
    write = padded([[*row, 1] for row in sentences])
    return np.roll(write, 1, axis=1), write


def filled_up_with_the_end(sentences):
    """filled up with </s> (1)"""
    return padded([[2, *row] for row in sentences], fill=1), padded([[*row, 1] for row in sentences], fill=1)
