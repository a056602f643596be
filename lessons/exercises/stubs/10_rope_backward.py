"""10_rope_backward: through a rotation, back to queries and keys (lesson 10).

    turned_q_t = R_t q_t,   turned_k_s = R_s k_s          R_p as in 10_rope: pair i turns by p 10000^(-2i / K)
    scores_ts = turned_q_t . turned_k_s                   in each head

Given dscores = dL/dscores (B, H, T, T), turned_q and turned_k (B, T, H, K) and positions (T,), which hold for queries
and keys alike, return dL/dq and dL/dk, (B, T, H, K).
"""

import numpy as np

from scratchformer.commands.learn import check_file


def rope_backward(dscores, turned_q, turned_k, positions):
    raise NotImplementedError
    return {"dq": dq, "dk": dk}


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
