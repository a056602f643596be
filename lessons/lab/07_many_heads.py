# %% [markdown]
# # Lab notes 07 · Many heads
#
# What stands behind [lesson 07](../07_many_heads.py): where the readers of six boxes look, why a linear map can't read
# the blend of one head, and the number of heads in the paper's Table 3.

# %% Imports
import course  # noqa: F401  finds lessons/support

from support.lesson import table
from support.six_boxes import Reader

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
# Is it their width that makes 16 heads fail? Here they are as wide as the one head, with 16 times its weights. The one
# head gains little from four times its width:

# %%
table(["both right", "run 1", "run 2", "run 3"],
      [[name, *(f"{Reader(run, **settings).train().share_right():.0%}"
                for run in range(3))]
       for name, settings in (("16 heads of width 16", {"h": 16}),
                              ("1 head of width 64", {"d_k": 64}))])

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
