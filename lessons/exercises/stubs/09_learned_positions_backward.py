"""09_learned_positions_backward: what a table of learned positions gets (lesson 09).

    y[b, t] = x[b, t] + P[first + t]

x and y are (B, T, D), P is (max_positions, D); the first word of each sentence stands at position `first`. Given
dy = dL/dy, return dL/dx, (B, T, D), and dL/dP, (max_positions, D).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def learned_positions_backward(dy, first, max_positions):
    raise NotImplementedError
    return {"dx": dx, "dP": dP}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
