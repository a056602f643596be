# %% [markdown]
# # Lab notes 11 · The feed-forward network
#
# The controls and side experiments of [lesson 11](../11_feed_forward.py): what two heads can do without a
# feed-forward network, gradient checks across the kink of a ReLU, the recorded translators seed by seed, what holds
# the hidden units down, what is linear in a layer and what isn't, and how many of the model's weights the networks
# hold.

# %% Imports
import course  # noqa: F401  finds lessons/support

import numpy as np

from scratchformer.config import preset
from scratchformer.nn.ops import ops_of
from scratchformer.nn.transformer import DecoderLayer, EncoderLayer, Transformer
from scratchformer.text.bundled import read
from scratchformer.training.run import load_run
from support.agreement import Judge, sentences, trained
from support.hidden_units import hidden_units, networks_of
from support.lesson import QUICK, ROOT, measure, recorded, same, table
from support.numeric import numeric_gradient

random = np.random.default_rng(11)

# %% [markdown]
# ## Experiment 1: two heads, without a feed-forward network
#
# > "Attention only mixes, so all computing is done by the feed-forward network."
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

# %% Two heads by hand
plural = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])      # noun and verb, four sentences


def head(factor):
    """Looks at the two words with scores factor * plural.
    -> the mean of `plural` with those weights, (4,)"""
    e = np.exp(factor * plural)
    return (e * plural).sum(axis=1) / e.sum(axis=1)


y = 1 - 4 * (head(30) - head(0))
measure("by hand: lowest y of a right sentence − highest of a wrong one",
        y[:2].min() - y[2:].max(), 1.99, 2.01)

# %% [markdown]
# So the claim is **false**. Most runs learn the task. (The worst is left near three in four. That two heads can
# compute it doesn't mean that training finds out how.) The values are mixed linearly, but the weights are not linear
# in the words, and each head divides by a sum of its own, so there is no common sum of votes.
#
# The lines by hand show one way. A head with scores of 0 returns the mean of the two words. A sharp one finds a
# plural word if there is one, and a second one adds nothing. Their difference tells equal from unequal. (We haven't
# looked whether the trained heads do it like that.) What is true: one head, asked by a constant query, adds up votes.
#
# The lesson's proof in symbols: let $c_s$ be the scaled score of word $s$, so that its weight is $w_s = e^{c_s} /
# \sum_u e^{c_u}$, and let $r_s$ be what its value adds to the score of "right" minus that of "wrong". (The biases
# behind the head go into every $r_s$, as the weights sum to 1.) The verdict is the sign of $\sum_s w_s r_s$, and so
# of $\sum_s e^{c_s} r_s$, since the common sum is positive. $c_s$ depends on the word and on the query, which is
# always `?`. So $e^{c_s} r_s$ is the vote of word $s$; that of *the* is added to the verb's.
#
# ## Experiment 2: checks across a kink
#
# A central difference goes a step $h$ to both sides. If the kink of a ReLU lies between, it measures a piece of each
# slope, and calls a right gradient wrong:

# %% At the kink
h = 1e-5                                                       # of numeric_gradient
rows = []
for z, truth in (-2, 0), (-0.5, 0.25), (0, 0.5), (0.3, 0.65), (2, 1):
    at = np.array([z * h])
    numeric = numeric_gradient(lambda z: np.maximum(0, z).sum(), at)[0]
    backward = ops_of(at).relu_backward(np.ones(1), np.maximum(0, at))[0]
    assert abs(numeric - truth) < 1e-4
    rows.append([f"{z} h", f"{backward:.0f}", f"{numeric:.2f}"])
table(["z", "backward says", "the central difference"], rows)

# %% [markdown]
# If a check fails at one seed of many, look at the nearest $z$ before you look for a bug. The library's own checks
# take random inputs until every $z$ is further from 0 than a hundred steps (`distance_to_kink` in
# [nn/gradient_cases.py](../../scratchformer/nn/gradient_cases.py)).
#
# ## Experiment 3: the recorded translators, seed by seed
#
# $D = 64$, two layers in encoder and decoder, 300 steps on the bundled corpus, three seeds. The learning rate rises
# to a peak and falls again. *none, 5 layers* is a second control: it gets the missing weights back as more layers of
# attention. Recorded by [benchmarks/feed_forward.py](../../benchmarks/feed_forward.py).

# %% All variants
results = {(row["variant"], row["peak_learning_rate"]): row
           for row in recorded("feed_forward")["results"]}
table(["variant", "peak rate", "weights", "loss", "the seeds"],
      [[variant, peak, f"{row['parameters']:,}", f"{row['final_loss']['mean']:.2f}",
        ", ".join(f"{run['final_loss']:.2f}" for run in row["runs"])]
       for (variant, peak), row in results.items()])

# %% Smallest gain of three seeds
def losses(variant, peak=0.004):
    """-> of the three seeds, (3,); one seed means the same batches for all variants"""
    return np.array([run["final_loss"] for run in results[variant, peak]["runs"]])


for worse, better, peak, lo, hi in [
        ("none", "4 d_model", 0.004, 0.2, 0.5), ("none", "4 d_model", 0.002, 0.2, 0.6),
        ("none, 5 layers", "none", 0.004, 0.5, 1.5),
        ("none, 5 layers", "none", 0.002, 0.1, 0.5),
        ("none", "4 d_model, no ReLU", 0.004, 0.1, 0.25),
        ("4 d_model, no ReLU", "4 d_model", 0.004, 0.05, 0.2),
        ("d_model", "4 d_model", 0.004, 0.05, 0.2),
        ("2 d_model", "4 d_model", 0.004, 0.05, 0.2),
        ("d_model", "2 d_model", 0.004, -0.1, -0.01),
        ("4 d_model", "8 d_model", 0.004, -0.1, -0.01)]:
    gains = losses(worse, peak) - losses(better, peak)
    measure(f"{worse} − {better}, peak {peak}: smallest", gains.min(), lo, hi)
linear, paper, narrow = (losses(variant).mean() for variant in
                         ("4 d_model, no ReLU", "4 d_model", "d_model"))
measure("no ReLU − d_model with ReLU, mean", linear - narrow, -0.1, 0.1)
curves = np.array([run["curve"] for run in results["4 d_model", 0.004]["runs"]])
fall = measure("4 d_model: fall of the loss in the last 50 steps",
               -np.diff(curves[:, -2:, 1]).mean(), 0.4, 0.5)
measure("the ReLU's gain, in steps of that fall", (linear - paper) / fall * 50, 12, 20)

# %% [markdown]
# (A negative smallest gain: the seeds disagree.)
#
# - Without feed-forward networks the loss is higher in every seed and at both rates.
# - No ReLU lies between, in every seed. The ReLU was tried at one rate only.
# - More attention instead did not help: five layers without feed-forward networks end higher than two. They may only
#   be slower to learn.
# - The loss still falls by 0.45 in the last 50 steps. What the ReLU gains, the model without it may reach sixteen
#   steps later. Whether any of these gains lasts, this experiment doesn't say.
#
# ## Experiment 4: what holds the units down?
#
# A trained translator has few active units. Is it the biases? Or something that all the words have in common?

# %% Watching the networks
translator = load_run(ROOT / "data/tiny_model")
NAMES = [f"{stack}, layer {i}" for stack in ("encoder", "decoder") for i in (1, 2)]


def watched(model):
    return hidden_units(model, translator.tokenizer, read("test")[:300])


# %% Shares of active units
new = watched(Transformer(translator.model.config, seed=0))
seen, shares = watched(translator.model), []
for i, network in enumerate(networks_of(translator.model)):
    (x, active), W_1, b_1 = seen[i], network.inner.weight.data, network.inner.bias.data
    mean = x.mean(axis=0)
    shares.append([(new[i][1] > 0).mean(), (active > 0).mean(), (x @ W_1 > 0).mean(),
                   ((x - mean) @ W_1 + b_1 > 0).mean(), (mean @ W_1 < 0).mean(),
                   (~(active > 0).any(axis=0)).sum()])
table(["share of active units", "new", "trained", "b₁ = 0", "x − its mean",
       "mean x W₁ < 0", "never active"],
      [[name, *(f"{share:.3f}" for share in row[:5]), f"{row[5]}"]
       for name, row in zip(NAMES, shares)])
before, after, no_bias, no_mean, away, never = np.array(shares).T
measure("new: mean of the four", before.mean(), 0.45, 0.55)
measure("trained: mean of encoder", after[:2].mean(), 0.055, 0.07)
measure("trained: mean of decoder", after[2:].mean(), 0.18, 0.2)
measure("b₁ = 0: largest rise", (no_bias - after).max(), 0, 0.03)
measure("x − its mean: lowest share", no_mean.min(), 0.4, 0.45)
measure("units of all 1,024 that no word switches on", never.sum(), 0, 5)

# %% [markdown]
# The biases aren't what holds the units down: without them the shares hardly rise. It is what all words have in
# common. With the mean of all $x$ taken off, more than two units in five are active again. Nearly every column of
# $W_1$ points away from that mean, and their product acts like a large negative bias. But hardly a unit is dead. What
# single units react to is a question that Geva et al. (2021, *Transformer Feed-Forward Layers Are Key-Value
# Memories*) took up; here we haven't.
#
# ## Experiment 5: what is linear, and what is not?
#
# A map is linear if the map of a sum is the sum of the maps. With given weights attention is linear in the values,
# exactly. Biases aside, the feed-forward network is not, and neither is attention as a whole, because its weights
# come from the same $x$.

# %% Superposition
def attend(x, weights_from):
    """One head without matrices: weights from one array, values from another"""
    c = weights_from @ weights_from.swapaxes(1, 2)             # (B, T, T)
    e = np.exp(c - c.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ x


def superposition_error(f):
    """How far f(x + u) is from f(x) + f(u), relative"""
    return np.abs(f(x + u) - f(x) - f(u)).max() / np.abs(f(x + u)).max()


x, u = random.normal(size=(2, 2, 5, 6))
W_1, W_2 = random.normal(size=(6, 9)), random.normal(size=(9, 6))
b_1, b_2 = random.normal(size=9), random.normal(size=6)
measure("attention, its weights given",
        superposition_error(lambda v: attend(v, weights_from=x)), 0, 1e-14)
measure("attention, its weights from the input",
        superposition_error(lambda v: attend(v, weights_from=v)), 0.1, 5)
measure("feed-forward, no biases",
        superposition_error(lambda v: np.maximum(0, v @ W_1) @ W_2), 0.1, 5)
same("without ReLU, two maps are one", x @ (W_1 @ W_2) + (b_1 @ W_2 + b_2),
     (x @ W_1 + b_1) @ W_2 + b_2)

# %% [markdown]
# ## Experiment 6: whose weights are they?
#
# > "Two thirds of the weights are in the feed-forward networks."
#
# In matrices, without biases: a feed-forward network has $2 \cdot D \cdot 4D = 8D^2$ weights, an attention $4D^2$. An
# encoder layer has one attention, but a decoder layer two. In the base model:

# %% Counting
base = preset("base").model


def matrices(layer):
    return sum(weight.data.size for weight in layer.parameters().values()
               if weight.data.ndim == 2)


encoder, decoder = EncoderLayer(base, random), DecoderLayer(base, random)
network = matrices(encoder.feed_forward)
measure("encoder layer: feed-forward over attention",
        network / (matrices(encoder) - network), 2, 2)
measure("decoder layer: feed-forward over attention",
        network / (matrices(decoder) - network), 1, 1)
embeddings = 37_000 * base.d_model                             # one shared table
total = base.N * (matrices(encoder) + matrices(decoder)) + embeddings
measure("share of all weights, with 37,000 embeddings", 2 * base.N * network / total,
        0.39, 0.41)

# %% [markdown]
# Two thirds is right for an encoder alone, or for a model without a second attention. In the paper's model the
# feed-forward networks hold four tenths of all weights. (Some call the network's shape a bottleneck. It is the
# inverse, wide in the middle. And the library can also drop hidden units at random in training, `relu_dropout`. The
# paper doesn't mention it; in its public code it is 0 at first and 0.1 later; here it is 0.)
