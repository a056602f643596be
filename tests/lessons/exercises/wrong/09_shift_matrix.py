import numpy as np


def blocks(angles, signs=(-1, 1)):
    M = np.zeros((2 * len(angles), 2 * len(angles)))
    for i, b in enumerate(angles):
        M[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[np.cos(b), signs[0] * np.sin(b)], [signs[1] * np.sin(b), np.cos(b)]]
    return M


def speeds(d_model):
    return 10000.0 ** (-np.arange(0, d_model, 2) / d_model)


def backwards(k, d_model):
    """this leads k words back"""
    return blocks(k * speeds(d_model), (1, -1))


def equal_signs(k, d_model):
    """both sines have the same sign"""
    return blocks(k * speeds(d_model), (1, 1))


def cosines_only(k, d_model):
    """the sines are missing"""
    return blocks(k * speeds(d_model), (0, 0))


def one_angle(k, d_model):
    """all pairs turn by the same angle"""
    return blocks(np.full(d_model // 2, float(k)))


def wrong_exponent(k, d_model):
    """the exponent of pair i is 2i / d_model, not i / d_model"""
    return blocks(k * 10000.0 ** (-np.arange(d_model // 2) / d_model))


def one_word(k, d_model):
    """k is not used"""
    return blocks(speeds(d_model))


def halves(k, d_model):
    """this matrix is for vectors with all sines first"""
    c, s = np.diag(np.cos(k * speeds(d_model))), np.diag(np.sin(k * speeds(d_model)))
    return np.block([[c, -s], [s, c]])


def blocks_alone(k, d_model):
    """shape"""
    b = k * speeds(d_model)
    return np.array([[np.cos(b), -np.sin(b)], [np.sin(b), np.cos(b)]]).transpose(2, 0, 1)
