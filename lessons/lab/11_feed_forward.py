# %% [markdown]
# # Lab notes 11 · The feed-forward network
#
# What [lesson 11](../11_feed_forward.py) rests on: what two heads can do without a feed-forward network, and the
# recorded translators with and without one.

# %% Imports
import course  # noqa: F401  finds lessons/support

import numpy as np

from support.feed_forward import Judge, sentences, trained
from support.lesson import QUICK, measure, recorded, table

# %% [markdown]
# ## Two heads, without a feed-forward network
#
# The proof in the lesson is about one head whose query is the same in every sentence. Now two heads, and no
# feed-forward network:

# %% Two heads
ids, is_right, is_new = sentences()
seeds = range(7, 10) if QUICK else range(1, 10)
shares = np.array([trained(Judge(seed, h=2)).share_right(ids[is_new], is_right[is_new])
                   for seed in seeds])
measure("new pairs judged rightly, best run", shares.max(), 0.95, 1)
measure("share of runs with more than nine in ten", (shares > 0.9).mean(), 0.6, 0.95)
measure("new pairs judged rightly, worst run", shares.min(), 0.65, 0.8)

# %% [markdown]
# Most runs learn the task. (The worst is left near three in four. That two heads can compute it doesn't mean that
# training finds out how.) Here is one way: a head with scores of 0 returns the mean of the two words, and a sharp head
# finds a plural word if there is one. Their difference tells equal from unequal. We haven't looked whether the trained
# heads do it like that.
#
# ## The recorded translators
#
# $D = 64$, two layers in encoder and decoder, 300 steps on the bundled corpus, three seeds. The learning rate rises to
# a peak and falls again. *No ReLU* is the control: it has all the weights of the paper's network and computes two
# linear maps. *none, 5 layers* gets the missing weights back as more layers of attention. Recorded by
# [benchmarks/feed_forward.py](../../benchmarks/feed_forward.py).

# %% All variants
results = {(row["variant"], row["peak_learning_rate"]): row
           for row in recorded("feed_forward")["results"]}
table(["variant", "peak rate", "weights", "loss", "the seeds"],
      [[variant, peak, f"{row['parameters']:,}", f"{row['final_loss']['mean']:.2f}",
        ", ".join(f"{run['final_loss']:.2f}" for run in row["runs"])]
       for (variant, peak), row in results.items()])

# %% The ReLU's part
def losses(variant, peak=0.004):
    """-> of the three seeds, (3,); one seed means the same batches for all variants"""
    return np.array([run["final_loss"] for run in results[variant, peak]["runs"]])


none, linear, paper = map(losses, ("none", "4 d_model, no ReLU", "4 d_model"))
measure("none: mean loss", none.mean(), 1.745, 1.755)
measure("4 d_model, no ReLU: mean loss", linear.mean(), 1.525, 1.535)
measure("4 d_model: mean loss", paper.mean(), 1.385, 1.395)
measure("none − 4 d_model: smallest of the seeds", (none - paper).min(), 0.2, 0.5)
measure("no ReLU − 4 d_model: smallest of the seeds", (linear - paper).min(), 0.05, 0.2)
measure("share of the gap that “no ReLU” closes",
        (none - linear).mean() / (none - paper).mean(), 0.5, 0.7)

# %% [markdown]
# So 61 % of what the network gains comes without its ReLU. The sublayer brings more than its ReLU: more weights, and a
# box "Add & Norm" of its own. A box with nothing in it would tell these apart, and we haven't trained one here. (All of
# this is about the first 300 steps, in which the loss still falls fast.)
