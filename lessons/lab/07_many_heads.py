# %% [markdown]
# # Lab notes 07 · Many heads
#
# What stands behind [lesson 07](../07_many_heads.py): why one head can't always keep two answers apart, what one head
# could do, and the number of heads in the paper's Table 3.

# %% Imports
import course  # noqa: F401  finds lessons/support

import numpy as np

from support.lesson import measure

# %% [markdown]
# ## Experiment 1: what one head can and cannot do
#
# The task of the lesson: six boxes with a label and a content each; two labels are asked for; two answers. One head of
# width 16, trained for 300 steps, gets both right in about 21 % of the problems (mean of seeds 0, 1, 2), 26 % if it's
# four times as wide, 19 % with four times the steps. A head set by hand gets 57 % of the lesson's 2,000 test problems;
# the theory says 1/8 + 7/8 · 1/2 = 56.25 %. It gives equal weights to the two boxes and names the smaller content
# first. More problems, three seeds:

# %%
for seed in (0, 1, 2):
    contents = np.random.default_rng(seed).integers(0, 8, (200_000, 2))
    right = contents[:, 0] <= contents[:, 1]
    measure(f"seed {seed}: smaller first, larger second", right.mean(), 0.559, 0.566)

# %% [markdown]
# So a single blend of two equal weights can be right in 56 % of the cases, and what training reaches is less than half
# of that. We don't know whether a single head can do better than 56 %.
#
# **It can't be always right, if its keys read labels only.** Suppose it gives box A the weight $w$ and box B the
# smaller weight $w'$, and suppose these weights don't depend on the contents. Could the second answer always be the
# content of B, the one with the smaller weight? The logits are linear in the contents. In the logits of the second
# answer, let a content add $d$ to its own logit, on average over all contents, and $o$ to that of another one.
#
# 1. The content of B must win against the content of A: $w o + w' d > w d + w' o$. As $w > w'$, this says $o > d$.
# 2. It must also win against a content that is in neither box: $w o + w' d > w o + w' o$. This says $d > o$.
#
# Both can't be true. (The values may carry the labels as well. But what a label adds to a logit is the same whichever
# content stands beside it, so it cancels in the average. The other four boxes cancel too, because their contents are
# independent of those of A and B.) If the keys read contents, the weights depend on them, and if something that isn't
# linear followed the head, the logits wouldn't be linear in the contents. In both cases the argument doesn't hold.
#
# ## Experiment 2: do more than eight heads harm?
#
# Some explanations of the paper say that 16 or 32 heads make it worse. Rows (A) of its Table 3 vary $h$ at equal cost
# (English to German, newstest2013):
#
# | $h$ | 1 | 4 | 8 (base) | 16 | 32 |
# |---|---|---|---|---|---|
# | $d_k$ | 512 | 128 | 64 | 32 | 16 |
# | perplexity | 5.29 | 5.00 | 4.92 | 4.91 | 5.01 |
# | BLEU | 24.9 | 25.5 | 25.8 | 25.8 | 25.4 |
#
# Sixteen don't. The paper says that one head is 0.9 BLEU worse than the best, and that quality also drops "with too
# many heads" (§6.2), which by its table means 32. No setting has an interval or a second seed, so differences of a
# tenth say nothing.
