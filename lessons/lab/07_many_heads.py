# %% [markdown]
# # Lab notes 07 · Many heads
#
# What stands behind [lesson 07](../07_many_heads.py): where the readers of six boxes look, what a linear map can read
# in the blend of one head, and the number of heads in the paper's Table 3.

# %% Imports
import course  # noqa: F401  finds lessons/support

import numpy as np

from support.lesson import measure
from support.six_boxes import KINDS, Reader

# %% [markdown]
# ## Where the readers look
#
# The mean weights of the two boxes asked for, in three runs. One head alone looks at both boxes almost equally. If a
# ReLU reads its blend, the weights become unequal. Two heads look at one box each:

# %%
READERS = {"1 head": {},
           "1 head, then two maps with a ReLU between": {"behind": "ReLU"},
           "2 heads": {"h": 2, "d_k": 8}}
for name, settings in READERS.items():
    rows = [Reader(run, **settings).train().mean_weights() for run in range(3)]
    print(name)
    for run, heads in enumerate(rows, 1):
        print(f"    run {run}:", "; ".join(f"{a:.2f} and {b:.2f}" for a, b in heads))

# %% [markdown]
# ## What one head and a linear map cannot do
#
# **They can't be always right, if the keys read labels only.** Suppose the head gives box A the weight $w$ and box B
# the smaller or equal weight $w'$, whatever the contents are. Could the second answer always be the content of B? The
# logits are linear in the contents. In the logits of the second answer, let a content add $d$ to its own logit, on
# average over all contents, and $o$ to that of another one.
#
# 1. The content of B must win against the content of A: $w o + w' d > w d + w' o$, so $(w - w') (o - d) > 0$. For equal
#    weights this is false. Otherwise it says $o > d$.
# 2. It must also win against a content that is in neither box: $w o + w' d > w o + w' o$. This says $d > o$.
#
# Both can't be true. The values may carry the labels as well. But what a label adds to a logit is the same whichever
# content stands beside it, so it cancels in the average. The other four boxes cancel too, because their contents are
# independent of those of A and B. If the keys read contents, the weights depend on them, and the argument doesn't hold.
#
# **They can be right more often than ours.** Here nothing is trained. The head gives both boxes the weight 1/2. The
# matrix prefers small contents in the first answer and large ones in the second. So both answers are right if the
# smaller content is in the first box, and if the contents are equal: 7/8 · 1/2 + 1/8 = 56 %.

# %% A head without training
by_hand = Reader(0, d_k=KINDS)
W_Q, W_K, W_V, W_O = (weight.data for weight in by_hand.attention.values())
for data in W_Q, W_K, W_V, W_O:
    data[...] = 0
one, rank = np.eye(KINDS), np.arange(KINDS) / KINDS
W_Q[:, 0] = 60 * np.concatenate([one, one])             # both labels
W_K[:KINDS, 0], W_V[KINDS:, 0] = one, one               # keys: labels; values: contents
W_O[0] = np.concatenate([one * (2 - rank), one * (1 + rank)], axis=1)
measure("a head set by hand: both right", by_hand.share_right(), 0.54, 0.59)

# %% [markdown]
# ## Check the claim: more than eight heads harm
#
# Rows (A) of the paper's Table 3 vary $h$ at equal cost (English to German, newstest2013):
#
# | $h$ | 1 | 4 | 8 (base) | 16 | 32 |
# |---|---|---|---|---|---|
# | $d_k$ | 512 | 128 | 64 | 32 | 16 |
# | perplexity | 5.29 | 5.00 | 4.92 | 4.91 | 5.01 |
# | BLEU | 24.9 | 25.5 | 25.8 | 25.8 | 25.4 |
#
# Sixteen don't harm. The paper says that quality drops "with too many heads" (§6.2), which by its table means 32. No
# row has an interval or a second seed, so differences of a tenth say nothing.
