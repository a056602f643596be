"""14_log_sum_exp: ln of the sum of e^z over the last axis (lesson 14).

z is (..., V) in float64, the result (...). Scores may be around 1000 or -1000, in some rows and not in others. A class
may be forbidden, with a score of -inf; no row has forbidden classes only.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def log_sum_exp(z):
    raise NotImplementedError
    return logs


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
