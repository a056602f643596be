"""11_feed_forward: the feed-forward network of the paper's equation 2 (lesson 11).

    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

    x (..., D) with any leading axes,   W_1 (D, F), b_1 (F,),   W_2 (F, D), b_2 (D,)

Return y, of the shape of x.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def feed_forward(x, W_1, b_1, W_2, b_2):
    raise NotImplementedError
    return y


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
