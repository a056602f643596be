import numpy as np


def gradients(dstate, c_before, c, gates):
    dh, dc = dstate
    i, f, g, o = gates.swapaxes(0, 1)
    dc = dc + dh * o * (1 - np.tanh(c) ** 2)
    return dc, [dc * g, dc * c_before, dc * i, dh * np.tanh(c)], [i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o)]


def answer(dc, gates, outer, slopes):
    return {"dc_before": dc * gates[:, 1], "da": np.stack([a * b for a, b in zip(outer, slopes)], axis=1)}


def without_the_forget_gate(dstate, c_before, c, gates):
    """the factor of the forget gate is missing"""
    dc, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dc, gates, outer, slopes) | {"dc_before": dc}


def not_through_h(dstate, c_before, c, gates):
    """what comes back through h = o tanh(c) is missing"""
    _, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dstate[1], gates, outer, slopes)


def not_from_the_next_step(dstate, c_before, c, gates):
    """what comes back to c itself, from the next step, is missing"""
    dc, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dc - dstate[1], gates, outer, slopes)


def no_slope_of_tanh_c(dstate, c_before, c, gates):
    """tanh has no derivative here"""
    _, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dstate[1] + dstate[0] * gates[:, 3], gates, outer, slopes)


def no_slopes(dstate, c_before, c, gates):
    """the slopes are missing"""
    dc, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dc, gates, outer, [1] * 4)


def forgets_to_add(dstate, c_before, c, gates):
    """the gradient of c as it came in was used"""
    i, _, g, _ = gates.swapaxes(0, 1)
    dc, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dc, gates, [dstate[1] * g, dstate[1] * c_before, dstate[1] * i, outer[3]], slopes)


def new_cell_for_the_old_one(dstate, c_before, c, gates):
    """only the forget gate is wrong"""
    dc, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dc, gates, [outer[0], dc * c, *outer[2:]], slopes)


def every_gate_a_sigmoid(dstate, c_before, c, gates):
    """only g is wrong"""
    dc, outer, slopes = gradients(dstate, c_before, c, gates)
    return answer(dc, gates, outer, [gates[:, k] * (1 - gates[:, k]) for k in range(4)])
