# %% [markdown]
# # Lab notes 18 · Batches
#
# What the mean of means of [lesson 18](../18_batches.py) does to the gradient and to training, with the library's
# batches and its model.
#
# How wrong the gradient is depends on how the micro-batches are made. They are the library's, which hold about as many
# tokens each; or sorted pairs, cut by number; or the last one holds a rest of one pair. (The *Annotated Transformer*
# divides each micro-batch by its own tokens and adds up the means.)

# %% The pairs, and a small model
import course  # noqa: F401  finds lessons/support

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.loss import batch_loss, batch_loss_backward, cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import BatchPlan, encode_pairs
from scratchformer.text.corpora import read_pairs
from scratchformer.text.tokenizer import PAD, Tokenizer
from support.lesson import QUICK, ROOT, measure, same

SEEDS = (0,) if QUICK else (0, 1, 2)
tokenizer = Tokenizer.load(ROOT / "data" / "tiny_model" / "tokenizer.model")


def bundled(split):
    """The pairs of "train" or "val" in the pieces of the bundled model"""
    paths = (ROOT / f"data/tiny/{split}.{language}" for language in ("en", "de"))
    return encode_pairs(tokenizer.encode, read_pairs(*paths), max_length=256,
                        tokens_per_batch=512)


def small_model(seed, dtype="float32"):
    """One layer of width 24, without dropout"""
    sizes = dict(N=1, d_model=24, d_ff=48, h=2, P_drop=0.0)
    return Transformer(ModelConfig(tokenizer.vocab_size, **sizes), seed, dtype)


pairs, validation = bundled("train"), bundled("val")
shuffled = np.random.default_rng(0).permutation(len(pairs))


def cut(order, size):
    return [order[start:start + size] for start in range(0, len(order), size)]


def mean_gradient(model, batch):
    """Set the gradient to that of the mean over the tokens -> (parameters,), tokens"""
    model.zero_grad()
    n = batch_loss_backward(model, batch.inputs, batch.targets)[1]
    model.store.grad /= n
    return model.store.grad.copy(), n


# %% The error of the gradient
model, draws = small_model(0, "float64"), cut(shuffled[:160], 32)
library_plan = BatchPlan(pairs, 128, accumulation=4, seed=0)
ways = {"the library's four": [[batch.indices
                                for batch in library_plan.micro_batches(indices)]
                               for indices in library_plan.epoch(0)[:5]],
        "four of 8 pairs, sorted": [cut(pairs.by_length(draw), 8) for draw in draws],
        "three of 8 pairs, and a rest of one": [cut(draw[:25], 8) for draw in draws]}
for (name, steps), (lo, hi) in zip(ways.items(),
                                   [(0.005, 0.06), (0.1, 0.2), (0.25, 0.8)]):
    errors = []
    for parts in steps:
        means, counts = map(np.array, zip(*(mean_gradient(model, pairs.batch(part))
                                            for part in parts)))
        right = counts @ means / counts.sum()
        errors.append(np.linalg.norm(means.mean(axis=0) - right)
                      / np.linalg.norm(right))
    measure(f"{name}: error of the gradient, mean of five steps", np.mean(errors), lo,
            hi)

# %% [markdown]
# What comes of it in training? There a step has twelve pairs, and each is a micro-batch of its own, as on a machine
# with room for one. As a control a third model never divides at all: that is a factor, the same for all tokens of a
# step and nearly the same for all steps, and Adam forgives a constant factor ([lesson 15](../15_adam_and_warmup.py)).

# %%
def each_pair_a_mean(model, batch):
    model.zero_grad()
    logits, cache = model.forward(*batch.inputs)               # (B, T, V)
    dlogits = cross_entropy(logits, batch.targets)[2]
    n = (batch.targets != PAD).sum(axis=1)[:, None, None].astype("float32")
    model.backward(dlogits / n / np.float32(len(n)), cache)


def never_divided(model, batch):
    model.zero_grad()
    batch_loss_backward(model, batch.inputs, batch.targets)


def trained(seed, batches, gradient):
    """A small model after these batches, one a step; the rate rises over 20 steps"""
    model = small_model(seed)
    optimizer = Adam(model)
    for number, indices in enumerate(batches, start=1):
        gradient(model, pairs.batch(indices))
        optimizer.step(0.01 * min(1, number / 20))
    return model


def loss_by_thirds(model):
    """Of the shortest, middle and longest third of the validation pairs: (3,)"""
    thirds = np.array_split(validation.by_length(np.arange(len(validation))), 3)
    sums, counts = zip(*(batch_loss(model, batch.inputs, batch.targets)
                         for batch in map(validation.batch, thirds)))
    return np.array([float(each) / count for each, count in zip(sums, counts)])


step = np.random.default_rng(1).permutation(len(pairs))[:24]
each_pair_a_mean(model, pairs.batch(step))
same("all in one batch, and pair by pair", model.store.grad.copy(),
     np.mean([mean_gradient(model, pairs.batch(part))[0] for part in cut(step, 1)],
             axis=0))
change = {each_pair_a_mean: [], never_divided: []}
for seed in SEEDS:
    dealt = np.random.default_rng(seed).integers(0, len(pairs), (60, 12))
    right = loss_by_thirds(trained(seed, dealt, mean_gradient))
    for mistake, changes in change.items():
        changes.append(loss_by_thirds(trained(seed, dealt, mistake)) - right)
        print(f"{mistake.__name__:17} loss of the thirds changes by",
              *(f"{third:+.3f}" for third in changes[-1]))
long_third = {mistake: np.array(changes)[:, 2] for mistake, changes in change.items()}
for name, f, lo, hi in ("least", np.min, 0.03, 0.09), ("most", np.max, 0.03, 0.2):
    measure(f"mean of means: the long third loses, at {name}",
            f(long_third[each_pair_a_mean]), lo, hi)
measure("never divided: the long third changes by, mean",
        long_third[never_divided].mean(), -0.03, 0.03)

# %% [markdown]
# In training, tokens of long sentences count less, and the long third is worse in every run. The control hardly moves
# it. The effect is small, but no error message and no gradient check of one batch shows it.
#
# Bugs of others of this kind: `mean-of-means`, `short-sentences-first`, `partial-accumulation-divided-in-full` and
# `remainder-dropped` in [the correctness report](../../docs/correctness.md).
