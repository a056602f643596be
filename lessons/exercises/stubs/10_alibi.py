"""10_alibi: what ALiBi adds to the scores (lesson 10).

T queries stand at the last T of S positions, so the last query stands at the last key. Return what each of h heads adds
to its scaled scores, (h, T, S): minus a slope times the distance of query and key, in both directions alike. The slopes
of the heads are 2^(-8/h), 2^(-16/h), ..., 2^-8, the first head's first.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def bias(T, S, h):
    raise NotImplementedError
    return bias


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
