"""11_feed_forward_backward: the gradients of the feed-forward network (lesson 11).

    z = x W_1 + b_1,   active = max(0, z),   y = active W_2 + b_2

Given dy = dL/dy, x (B, T, D), W_1 (D, F), W_2 (F, D) and active (B, T, F), return dL/d of everything below, each in the
shape of what it belongs to. You do not get z: active tells where it was positive.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def feed_forward_backward(dy, x, W_1, W_2, active):
    raise NotImplementedError
    return {"dW_2": dW_2, "db_2": db_2, "dactive": dactive, "dz": dz, "dW_1": dW_1, "db_1": db_1, "dx": dx}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
