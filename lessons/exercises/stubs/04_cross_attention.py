"""04_cross_attention: repair a cross-attention that passes every gradient check (lesson 04).

x (B, T, D) is the sentence being written, memory (B, S, D) the sentence being read; W_Q, W_K (D, d_k), W_V (D, d_v).
The result is (B, T, d_v). The function below takes what it needs from the wrong sides, as a public implementation did.
That one ran, it trained, and its gradient was right: that of the wrong function. All its sentences had one length.
Repair it, and take out the line that raises.
"""

import numpy as np

from scratchformer.commands.learn import check_file


def cross_attention(x, memory, W_Q, W_K, W_V):
    raise NotImplementedError                                  # take this line out
    q, k, v = memory @ W_Q, memory @ W_K, x @ W_V
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


if __name__ == "__main__":
    raise SystemExit(check_file(__file__))
