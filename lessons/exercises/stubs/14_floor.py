"""14_floor: how low can the smoothed loss of one token be? (lesson 14).

    loss = -sum_v q_v ln p_v

with q as in 14_smoothed_targets: V classes, `smoothing`, and spread="others" or "uniform". Return the lowest value that
any p can give it, one number, in nats. Without smoothing it is 0.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def floor(V, smoothing, spread):
    raise NotImplementedError
    return nats


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
