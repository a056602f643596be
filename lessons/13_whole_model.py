# %% [markdown]
# # 13 · Encoder, decoder, the whole model
#
# **All parts pass their checks. How do we know that they are wired together correctly?**
#
# *Needs attention with masks and heads ([04](04_soft_lookup.py), [06](06_masks.py), [07](07_many_heads.py)),
# embeddings and positions ([08](08_embeddings.py), [09](09_positions.py)), the feed-forward network
# ([11](11_feed_forward.py)) and Add & Norm ([12](12_residual_norm_dropout.py)) · you will count the parameters of a
# model by hand, build the paper's model, and test it as a whole.*

# %% Imports
import math

import numpy as np

from scratchformer.config import ModelConfig, preset
from scratchformer.nn.attention import (
    CrossAttention,
    Mask,
    SelfAttention,
    attention_weights,
)
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import (
    Embedding,
    FeedForward,
    PositionalEncoding,
    Unembedding,
)
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.residual import PostNorm
from scratchformer.nn.sizes import parameter_counts
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import PAD
from support.drawing import Drawing
from support.lesson import measure, same, show, table
from support.numeric import numeric_gradient
from support.reversal import SYMBOLS
from support.wires import V, cut, reversals, train

# %% [markdown]
# We have every part of the paper's model, and each part has passed its gradient check. Now we connect them.
#
# Here are two models, put together from the same tested parts. Their task is that of lesson 03: the source is a row
# of 5 random symbols out of 8, and the translation is the same row backwards. We check the gradient of both models
# against finite differences. Then we train both for 200 steps.

# %% Checking and training both
models = []
for name, wire, last in ("first", None, (0, 0.4)), ("second", "memory", (2.0, 2.2)):
    small = Transformer(ModelConfig(V, N=2, d_model=6, d_ff=10, h=2,
                                    P_drop=0.0), dtype="float64")
    report = gradcheck(cut(small, wire) if wire else small,
                       *reversals(np.random.default_rng(5), 3)[:2], directions=2)
    measure(f"{name} model: worst error of its gradient", report.worst.error, 0, 1e-6)
    model, losses = train(wire)
    models.append(model)
    measure(f"{name} model: loss, last 20 steps", np.mean(losses[-20:]), *last)
measure("a guess among 8 symbols: ln 8", math.log(SYMBOLS), 2.079, 2.08)

# %% [markdown]
# Both gradients are right, and both programs run without an error. But the second model doesn't learn: its loss is
# that of a pure guess. What could be wrong with it?
#
# <details><summary>Make a guess, then unfold: both models get another source</summary>
#
# We give each trained model the source of another sentence, and look at its **logits**, the scores before softmax.

# %% Another source
ids, read, _ = reversals(np.random.default_rng(1000), 300)
for name, model, band in zip(("first", "second"), models, ((5, 50), (0, 0))):
    change = (model.forward(np.roll(ids, 1, axis=0), read)[0]
              - model.forward(ids, read)[0])
    measure(f"{name} model: largest change of a logit", np.abs(change).max(), *band)

# %% [markdown]
# In the second model nothing changes, not in a single digit. Its decoder doesn't read the source at all, because we
# cut that one connection. Its gradient is still right: it is the gradient of a model that can't see the source.
#
# </details>
#
# A gradient check compares backward with forward. It can't tell whether *forward* is the model that we wanted. So in
# this lesson we build the whole model, and then look for tests that see such a mistake before training.
#
# ## The picture

# %% Recording the shapes
sizes = ModelConfig(vocab_size=13, N=3, d_model=6, d_ff=10, h=3, P_drop=0.0)
source = np.array([[3, 9, 4, 3, 7], [5, 2, 8, 0, 0]])      # (B, S), 0 is padding
read = np.array([[2, 5, 10, 5], [2, 7, 3, 0]])             # (B, T)
write = np.array([[5, 10, 5, 1], [7, 3, 1, 0]])            # (B, T), shifted by one
B, S, T, H, N = 2, 5, 4, 3, 3
shapes = {}


def watch(layer, name):
    """Note the shape of what a layer writes."""
    forward = layer.forward

    def noting(*inputs, rng=None):
        output, cache = forward(*inputs, rng=rng)
        shapes[name] = str(output.shape)
        return output, cache

    layer.forward = noting


watched = Transformer(sizes, dtype="float64")
for side, stack, embedding in (
    ("encoder", watched.encoder, watched.source_embedding),
    ("decoder", watched.decoder, watched.target_embedding),
):
    watch(embedding, f"{side}, embedding")
    watch(stack.layers[0].self_attention, f"{side}, self-attention")
    watch(stack.layers[0].feed_forward.sublayer.inner, f"{side}, hidden")
    watch(stack.layers[0].feed_forward, f"{side}, feed-forward")
    watch(stack, side)
watch(watched.decoder.layers[0].cross_attention, "decoder, cross-attention")
watch(watched.unembedding, "unembedding")
maps = [weights.shape
        for weights in attention_weights(watched.forward(source, read)[1])]
assert maps == [(B, H, S, S)] * N + [(B, H, T, T), (B, H, T, S)] * N


# %% Drawing the model
def column(drawing, x, side, sublayers):
    """One layer, from below: its sublayers, each with Add & Norm and a way around."""
    for i, (key, words, role) in enumerate(sublayers):
        y = 545 - 140 * i
        box = drawing.box(x, y, words, role, 170, 50, 14)
        norm = drawing.box(x, y - 52, "Add & Norm", "plain", 170, 28, 14)
        drawing.arrow((x, y + 74 if i else y + 89), box.bottom)
        drawing.arrow(box.top, norm.bottom)
        drawing.line([(x, y + 42), (x - 110, y + 42), (x - 110, y - 52)], "line")
        drawing.arrow((x - 110, y - 52), norm.left, "line")
        drawing.text(x + 12, y - 78, shapes[f"{side}, {key}"], "soft", 13, "start")


picture = Drawing(740, 800)
for x, top, side in (150, 308, "encoder"), (560, 168, "decoder"):
    picture.rectangle(x, (top + 612) / 2, 250, 612 - top, "line", 0.06)
    picture.text(x - 120, top - 14, f"3 {side} layers", "ink", 13, "start")
self_words = "self-attention\nweights "
column(picture, 150, "encoder", [
    ("self-attention", f"{self_words}{maps[0]}", "plain"),
    ("feed-forward", f"feed-forward\nhidden {shapes['encoder, hidden']}", "plain")])
column(picture, 560, "decoder", [
    ("self-attention", f"causal {self_words}{maps[N]}", "plain"),
    ("cross-attention", f"cross-attention\nweights {maps[N + 1]}", "value"),
    ("feed-forward", f"feed-forward\nhidden {shapes['decoder, hidden']}", "plain")])
embedded = {}
for x, side, words, ids in (150, "encoder", "source ids", source), (
        560, "decoder", "target ids, shifted right", read):
    embedded[side] = picture.box(x, 715, "embedding, × √d_{model}", "plain", 170, 36,
                                 14)
    positions = picture.box(x, 650, "+ positions", "plain", 170, 32, 14)
    picture.text(x, 778, f"{words} {ids.shape}", size=14)
    picture.arrow((x, 765), embedded[side].bottom)
    picture.arrow(embedded[side].top, positions.bottom)
    picture.text(x + 12, 682, shapes[f"{side}, embedding"], "soft", 13, "start")
picture.line([(150, 339), (150, 265), (345, 265), (345, 405)], "value", 5)
picture.line([(343, 405), (468, 405)], "value", 5)
picture.polygon([(475, 405), (461, 396), (461, 414)], "value")
picture.text(162, 248, f"memory {shapes['encoder']}", "value", 15, "start", bold=True)
picture.text(355, 385, "keys and", "value", 13, "start")
picture.text(355, 424, "values, in", "value", 13, "start")
picture.text(355, 441, "every layer", "value", 13, "start")
picture.text(572, 442, "queries", "query", 13, "start")
last = picture.box(560, 100, "unembedding, × E^T", "plain", 170, 36, 14)
picture.arrow((560, 199), last.bottom)
picture.arrow(last.top, (560, 38))
picture.text(560, 22, f"logits {shapes['unembedding']}", size=14)
table_E = picture.box(355, 715, f"E {watched.unembedding.weight.shape}", "key", 96, 36)
for points in ([embedded["encoder"].right, table_E.left],
               [table_E.right, embedded["decoder"].left],
               [embedded["decoder"].right, (712, 715), (712, 100), last.right]):
    picture.line(points, "key", 1.8, dashed=True)
show(picture, "13_architecture",
     alt="The Transformer as boxes and arrows, with shapes. Left, the encoder: source "
     "ids (2, 5), embedding and positions (2, 5, 6), then three layers of "
     "self-attention and feed-forward, each with Add & Norm and a way around, up to "
     "the memory (2, 5, 6). Right, the decoder: target ids shifted right (2, 4), "
     "embedding and positions (2, 4, 6), then three layers of causal self-attention, "
     "cross-attention and feed-forward. A thick amber arrow takes the memory to the "
     "keys and values of the cross-attention in every decoder layer. On top, the "
     "unembedding gives logits (2, 4, 13). A dashed line joins the matrix E (13, 6) to "
     "both embeddings and to the unembedding.",
     caption="The paper's own Figure 1, with the shapes of a real run. Only one arrow "
     "leads from the encoder to the decoder, the memory. The dashed line is the one "
     "matrix E, used in three places.")

# %% [markdown]
# The shapes come from a run of the library's model. It reads a batch of $B = 2$ pairs, with $S = 5$ source and $T =
# 4$ target positions. The width is $D = d_{model} = 6$, and the hidden layer has $F = d_{ff} = 10$
# numbers. There are $h = 3$ heads, $N = 3$ layers on each side and $V = 13$ words.
#
# The left column is the **encoder**. It reads the source, and what its last layer writes is called the **memory**.
# The right column is the **decoder**. It reads the target so far, and its output becomes the logits of the next word.
#
# Follow one column from bottom to top: the shape stays the same, so you can stack as many layers as you like. Source
# and target length meet only in the weights of cross-attention, $(B, h, T, S)$.
#
# The three kinds of attention are the same function (§3.2.3). They differ in who asks whom:
#
# | attention | queries from | keys and values from | may look at |
# |---|---|---|---|
# | encoder, self | source | source | every source word |
# | decoder, self | target so far | target so far | itself and earlier words |
# | decoder, cross | target so far | memory | every source word |
#
# ## Counting by hand
#
# Let's count the parameters of the smallest model of this kind: $D = 2$, $F = 4$, one head, one layer on each side,
# $V = 5$ words.
#
# | part | its arrays | numbers in one | how many | together |
# |---|---|--:|--:|--:|
# | attention | 4 matrices 2 × 2, 4 biases of 2 | 16 + 8 = 24 | 3 | 72 |
# | feed-forward | 2 × 4, bias of 4, 4 × 2, bias of 2 | 8 + 4 + 8 + 2 = 22 | 2 | 44 |
# | LayerNorm | $\gamma$ and $\beta$ of 2 | 4 | 5 | 20 |
# | matrix $E$ | 5 × 2 | 10 | 1 | 10 |
# | all | | | | **146** |
#
# Look at the column "how many". There are three attentions, because the decoder layer has two. There are five
# LayerNorms, because each sublayer has one. $E$ counts once, although it's used in three places.
#
# **Your turn.** Open `exercises/13_count.py`, write the count for any sizes, and run `scratchformer learn check 13`. In
# general the heads have widths $d_k$ and $d_v$. So $W_Q$ and $W_K$ are $(D, h d_k)$, $W_V$ is $(D, h d_v)$, and $W_O$
# is $(h d_v, D)$. Each of the four has a bias as long as its row.

# %% Our solution
def count(V, N, D, F, h, d_k, d_v):
    attention = 2 * D * h * d_k + 2 * D * h * d_v + 2 * h * d_k + h * d_v + D
    return V * D + N * (3 * attention + 2 * (2 * D * F + F + D) + 5 * 2 * D)


measure("the smallest model", count(5, 1, 2, 4, 1, 2, 2), 146, 146)
measure("the model of figure 1", count(13, 3, 6, 10, 3, 2, 2), 2586, 2586)
base = preset("base").model
of_base = count(37_000, base.N, base.d_model, base.d_ff, base.h, base.d_k, base.d_v)
measure("the paper's base model, V = 37,000, in millions", of_base / 1e6, 63.08, 63.09)
assert of_base == sum(parameter_counts(base).values())

# %% [markdown]
# The paper says 65 million for the base model, and "about 37000" words. Where do the other two millions come from?
# [Lab notes 13, experiment 4](lab/13_whole_model.py#experiment-4-is-it-as-large-as-the-paper-says) look for them in the
# other rows of its Table 3.
#
# ## In general
#
# We write $A(x \mid y)$ for multi-head attention with queries from $x$, and keys and values from $y$. Add & Norm
# around a sublayer $f$ is the box of lesson 12, here without dropout:
#
# $$\mathrm{box}_f(x, \dots) = \mathrm{LayerNorm}(x + f(x, \dots))$$
#
# An encoder layer turns the source states $s$ $(B, S, D)$ into
#
# $$s' = \mathrm{box}_{A}(s \mid s) \qquad s'' = \mathrm{box}_{FFN}(s')$$
#
# A decoder layer has target states $x$ $(B, T, D)$ and reads the memory $M$ $(B, S, D)$. The first of its lines has a
# causal mask:
#
# $$x' = \mathrm{box}_{A}(x \mid x) \qquad x'' = \mathrm{box}_{A}(x' \mid M) \qquad
# x''' = \mathrm{box}_{FFN}(x'')$$
#
# And the whole model, with $P$ for the positions:
#
# $$M = \mathrm{encoder}(\sqrt{D} E[\mathrm{source}] + P) \qquad
# \mathrm{logits} = \mathrm{decoder}(\sqrt{D} E[\mathrm{read}] + P, M) \, E^T$$
#
# **Your turn.** Open `exercises/13_decoder_layer.py`, put a decoder layer together from its parts, and run
# `scratchformer learn check 13`. Our solution uses the library's sublayers, and `PostNorm` is the box:

# %% Our solution
def boxed(kind, sizes, init):
    """A sublayer in the box Add & Norm"""
    width = sizes.d_ff if kind is FeedForward else sizes.h
    return PostNorm(kind(sizes.d_model, width, init, "float64"), sizes, "float64")


class EncoderLayer(Layer):
    """s (B, S, D) -> (B, S, D)"""

    def __init__(self, sizes, init):
        self.self_attention = boxed(SelfAttention, sizes, init)
        self.feed_forward = boxed(FeedForward, sizes, init)

    def forward(self, s, source_mask, rng=None):
        s, attention_cache = self.self_attention.forward(s, source_mask)
        s, feed_forward_cache = self.feed_forward.forward(s)
        return s, (attention_cache, feed_forward_cache)

    def backward(self, ds, cache):
        attention_cache, feed_forward_cache = cache
        ds = self.feed_forward.backward(ds, feed_forward_cache)
        return self.self_attention.backward(ds, attention_cache)


class DecoderLayer(Layer):
    """x (B, T, D), memory (B, S, D) -> (B, T, D)"""

    def __init__(self, sizes, init):
        self.self_attention = boxed(SelfAttention, sizes, init)
        self.cross_attention = boxed(CrossAttention, sizes, init)
        self.feed_forward = boxed(FeedForward, sizes, init)

    def forward(self, x, memory, mask, source_mask, rng=None):
        x, self_cache = self.self_attention.forward(x, mask)
        x, cross_cache = self.cross_attention.forward(x, memory, source_mask)
        x, feed_forward_cache = self.feed_forward.forward(x)
        return x, (self_cache, cross_cache, feed_forward_cache)

    def backward(self, dx, cache):
        self_cache, cross_cache, feed_forward_cache = cache
        dx = self.feed_forward.backward(dx, feed_forward_cache)
        dx, dmemory = self.cross_attention.backward(dx, cross_cache)
        return self.self_attention.backward(dx, self_cache), dmemory


# %% [markdown]
# ## Backward: every layer has read the memory
#
# The gradient of each part is known. What is new is one place: the memory goes into *every* decoder layer. A
# miniature shows what this means. Every array becomes one number, and there are three decoder layers. Each layer
# doubles the number that it gets from the layer before, and adds the memory:
#
# $$x_n = 2 x_{n-1} + M \qquad x_0 = 0 \qquad M = 1 \qquad \mathrm{loss} = x_3$$

# %% Drawing the memory in three layers
def chain(backward):
    """Figures 2 and 3: three layers that read one memory"""
    drawing = Drawing(720, 250)
    drawing.vector(360, 205, [1], "value", 60, below="memory M")
    xs, edge = (0, 1, 3, 7), None
    for n in range(4):
        x = 60 + 200 * n
        cell = drawing.vector(x, 60, [xs[n]], "plain", 46, above=f"x_{n}")
        if edge:
            drawing.arrow(edge.right, cell.left)
        if n < 3:
            edge = drawing.box(x + 100, 60, f"layer {n + 1}", "plain", 76, 40, 14)
            drawing.arrow(cell.right, edge.left)
            drawing.arrow((360 + 22 * (n - 1), 188), edge.bottom, "value", width=2.5)
            if backward:
                drawing.gradient(x + (90, 118, 128)[n], 114, -2 ** (2 - n),
                                 f"+{2 ** (2 - n)}", largest=4)
        if backward:
            drawing.gradient(x - 4, 100, -2 ** (3 - n), f"+{2 ** (3 - n)}",
                             largest=8)
    if backward:
        drawing.gradient(412, 205, -7, "+7 = 4 + 2 + 1", largest=7)
    return drawing


show(chain(backward=False), "13_memory",
     alt="A row of numbers and boxes from left to right: x0 is 0, layer 1, x1 is 1, "
     "layer 2, x2 is 3, layer 3, x3 is 7. Below stands the memory, 1, with an arrow "
     "to each of the three layers.",
     caption="A decoder of three layers that read one memory. Each layer doubles and "
     "adds M.")

# %% [markdown]
# Now let $M$ grow a little, by 0.1. By how much does $x_3$ grow? In other words: what is the gradient of $M$?
#
# <details><summary>Make a guess, then unfold: figure 3</summary>

# %% Drawing the way back
show(chain(backward=True), "13_memory_backward",
     alt="The same drawing with gradients: 1 at x3, 2 at x2, 4 at x1, 8 at x0. Layer 3 "
     "gives the memory a share of 1, layer 2 of 2, layer 1 of 4; the memory's gradient "
     "is their sum, 7.",
     caption="The way back, from right to left. Each layer hands twice its gradient "
     "to the layer before it, and gives the memory a share. The shares add up to 7. "
     "Triangles point down, because smaller numbers make the loss smaller.")

# %% [markdown]
# $x_3$ grows by 0.7: with $M = 1.1$ the numbers are 0, 1.1, 3.3 and 7.7. So the gradient of $M$ is 7.
#
# Backward finds it layer by layer. At $x_3$ the gradient is 1. **Layer 3** adds $M$ once, so its share is 1. It
# doubles $x_2$, so it hands 2 on. **Layer 2** gets 2: its share is 2, and it hands 4 on. **Layer 1** has the share 4.
# Together $1 + 2 + 4 = 7$.
#
# </details>
#
# **The general rule.** A number that reaches the loss in several ways gets the sum of what comes back (lesson 01).
# Each way from the memory to the loss enters the decoder in exactly one layer. So with one share from each layer, no
# way is forgotten and none is counted twice:
#
# $$dM = \sum_{n=1}^{N} (\text{share of layer } n)$$
#
# The share of layer $n$ is computed from $dx_n$, the gradient of *its own* output, which the layers above have handed
# down. Only the finished sum goes into the encoder. So the whole decoder has to be walked back before the encoder's
# backward can begin.
#
# The same rule works in three more places: the input of a sublayer is used twice (lesson 12), the input of
# self-attention three times (lesson 04), and the matrix $E$ three times (lesson 08). Those parts do their own sums.
#
# **Your turn.** Open `exercises/13_memory_gradient.py`, and run `scratchformer learn check 13`. A classic slip is to
# overwrite `dmemory` in the loop, which leaves only the last share: 4 instead of 7 in the miniature. Our solution:

# %% Our solution
class Encoder(Layer):
    """s (B, S, D) -> memory (B, S, D)"""

    def __init__(self, sizes, init):
        self.layers = [EncoderLayer(sizes, init) for _ in range(sizes.N)]

    def forward(self, s, source_mask, rng=None):
        caches = []
        for layer in self.layers:
            s, cache = layer.forward(s, source_mask)
            caches.append(cache)
        return s, caches

    def backward(self, ds, caches):
        for layer, cache in zip(reversed(self.layers), reversed(caches)):
            ds = layer.backward(ds, cache)
        return ds


class Decoder(Layer):
    """x (B, T, D), memory (B, S, D) -> (B, T, D)"""

    def __init__(self, sizes, init):
        self.layers = [DecoderLayer(sizes, init) for _ in range(sizes.N)]

    def forward(self, x, memory, mask, source_mask, rng=None):
        caches = []
        for layer in self.layers:
            x, cache = layer.forward(x, memory, mask, source_mask)
            caches.append(cache)
        return x, caches

    def backward(self, dx, caches):
        shares = []
        for layer, cache in zip(reversed(self.layers), reversed(caches)):
            dx, share = layer.backward(dx, cache)
            shares.append(share)
        return dx, self.joined(shares)

    def joined(self, shares):
        return sum(shares)                      # every layer has read the same memory


# %% [markdown]
# ## The whole model in code
#
# `Mask(causal=True)` stands in one place, the decoder's self-attention. The padding mask of the source stands in two,
# wherever source words are keys. Positions are added as constants, so the gradient passes them unchanged. (`rng`
# would carry dropout; this page doesn't use it.)

# %%
class Model(Layer):
    """source (B, S), read (B, T) ids -> logits (B, T, V)"""

    def __init__(self, sizes, seed=0, decoder=Decoder):
        init = np.random.default_rng(seed)
        E = Embedding.new_weight(sizes.vocab_size, sizes.d_model, init, "float64")
        self.embedding, self.unembedding = Embedding(E), Unembedding(E)
        self.source_positions = self.target_positions = PositionalEncoding()
        self.encoder, self.decoder = Encoder(sizes, init), decoder(sizes, init)
        self.store = ParameterStore(self.parameters())

    def forward(self, source, read, rng=None):
        source_mask = Mask(key_lengths=(source != PAD).sum(axis=1))
        s, source_cache = self.embedding.forward(source)                # (B, S, D)
        s, _ = self.source_positions.forward(s)
        memory, encoder_cache = self.encoder.forward(s, source_mask)    # (B, S, D)
        x, read_cache = self.embedding.forward(read)                    # (B, T, D)
        x, _ = self.target_positions.forward(x)
        x, decoder_cache = self.decoder.forward(x, memory, Mask(causal=True),
                                                source_mask)            # (B, T, D)
        logits, logits_cache = self.unembedding.forward(x)              # (B, T, V)
        return logits, (source_cache, encoder_cache, read_cache, decoder_cache,
                        logits_cache)

    def backward(self, dlogits, cache):
        source_cache, encoder_cache, read_cache, decoder_cache, logits_cache = cache
        dx = self.unembedding.backward(dlogits, logits_cache)   # first share of dE
        dx, dmemory = self.decoder.backward(dx, decoder_cache)
        self.embedding.backward(dx, read_cache)                 # the second
        ds = self.encoder.backward(dmemory, encoder_cache)
        self.embedding.backward(ds, source_cache)               # the third


# %% Checks
ours, theirs = Model(sizes), Transformer(sizes, dtype="float64")
logits, cache = ours.forward(source, read)
same("logits: this page and the library", logits, theirs.forward(source, read)[0])
ours.backward(cross_entropy(logits, write)[2], cache)
batch_loss_backward(theirs, (source, read), write)
same("gradient of all 2,586 parameters, likewise", ours.store.grad, theirs.store.grad)
random = np.random.default_rng(1)
x, dy, memory = *random.normal(size=(2, B, T, 6)), random.normal(size=(B, S, 6))
masks = Mask(causal=True), Mask(key_lengths=np.array([5, 3]))
stack = ours.decoder
numeric = numeric_gradient(
    lambda memory: (stack.forward(x, memory, *masks)[0] * dy).sum(), memory)
same("dmemory and central differences",
     stack.backward(dy, stack.forward(x, memory, *masks)[1])[1], numeric, 1e-8)

# %% [markdown]
# ## Testing the whole
#
# Which tests would have found the mistake of the opening? We try three of them. None needs any training.
#
# **The gradient.** Let $w$ hold all parameters, $g$ the gradient that backward computes, and $u$ a random direction
# with as many numbers. If $g$ is right, a small step $\delta$ along $u$ changes the loss by what $g$ says:
#
# $$g \cdot u \approx \frac{L(w + \delta u) - L(w - \delta u)}{2 \delta}$$
#
# This costs two forward passes, however many parameters there are. We try six directions. ([Lab notes 13, experiment
# 2](lab/13_whole_model.py#experiment-2-what-a-check-along-random-directions-sees): what they see, and what they miss)
#
# **The flow.** Change one input word, and see which logits change. A source word must change all logits of its
# sentence. A target word must change the logits at its own position and later, and none before. Padding added to the
# source must change nothing.
#
# **The number of parameters.** It must equal the count above. We wrote that count from the equations, without looking
# at the code of the model.

# %% The three tests
def loss_of(model):
    return cross_entropy(model.forward(source, read)[0], write)[0]


def gradient_of(model):
    logits, cache = model.forward(source, read)
    model.store.grad[...] = 0
    model.backward(cross_entropy(logits, write)[2], cache)
    return model.store.grad.copy()


def along(model, u, delta=1e-5):
    """The derivative of the loss along u (n,), from forward alone"""
    w, losses = model.store.data.copy(), []
    for step in delta, -delta:
        model.store.data[...] = w + step * u
        losses.append(loss_of(model))
    model.store.data[...] = w
    return (losses[0] - losses[1]) / (2 * delta)


def gradient_is_right(model):
    """Along six random directions of length about 1"""
    g = gradient_of(model)
    us = np.random.default_rng(0).normal(size=(6, g.size)) / math.sqrt(g.size)
    error = max(abs(g @ u - along(model, u)) for u in us)
    return error < 1e-6 * np.linalg.norm(g) / math.sqrt(g.size)


def moved(model, source_2, read_2):
    """Which logits change with these inputs: bool (B, T)"""
    before, after = (model.forward(*ids)[0][:, :T]
                     for ids in ((source, read), (source_2, read_2)))
    return (np.abs(after - before) > 1e-9).any(axis=-1)


def flow_is_right(model):
    for s in range(3):                          # both sources have three real words
        other = np.where(np.arange(S) == s, 11, source)
        if not moved(model, other, read).all():
            return False
    for t in range(T):
        other = np.where(np.arange(T) == t, 11, read)
        if not np.array_equal(moved(model, source, other)[0], np.arange(T) >= t):
            return False
    return not moved(model, np.pad(source, [(0, 0), (0, 2)]), read).any()


def number_is_right(model):
    return model.store.data.size == count(13, 3, 6, 10, 3, 2, 2)


# %% [markdown]
# Now we put six models together wrongly, on purpose:
#
# 1. `dmemory` is overwritten in the loop, not summed.
# 2. The decoder doesn't read the memory (the opening).
# 3. There is no causal mask.
# 4. There is no padding mask.
# 5. The decoder's list is `[layer] * N`. This is *one* layer, N times.
# 6. The factor $\sqrt{d_{model}}$ of the embedding is missing.
#
# Which test finds which fault? And which fault does no test find?
#
# <details><summary>Make a guess, then unfold: who finds what</summary>

# %% Six faults and three tests
class OverwritingDecoder(Decoder):
    def joined(self, shares):
        return shares[-1]


class OneLayerManyTimes(Decoder):
    def __init__(self, sizes, init):
        self.layers = [DecoderLayer(sizes, init)] * sizes.N


def without_scale(sizes):
    model = Model(sizes)
    model.embedding.scale = 1.0
    return model


BUILDS = {
    "nothing is wrong": Model,
    "1 dmemory overwritten": lambda sizes: Model(sizes, decoder=OverwritingDecoder),
    "2 memory not read": lambda sizes: cut(Model(sizes), "memory"),
    "3 no causal mask": lambda sizes: cut(Model(sizes), "causal mask"),
    "4 no padding mask": lambda sizes: cut(Model(sizes), "padding mask"),
    "5 one layer, N times": lambda sizes: Model(sizes, decoder=OneLayerManyTimes),
    "6 no factor √d_model": without_scale,
}
TESTS = gradient_is_right, flow_is_right, number_is_right
found = [[not test(build(sizes)) for test in TESTS] for build in BUILDS.values()]
assert np.array_equal(found, [[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 1, 0],
                              [0, 0, 1], [0, 0, 0]])
table(["fault", "gradient", "flow", "number"],
      [[fault, *("finds it" if each else "–" for each in row)]
       for fault, row in zip(BUILDS, found)])

# %% [markdown]
# - The **gradient** test finds fault 1, the only one in backward. In the other models backward fits the wrong
#   forward.
# - The **flow** test finds what reads too much or too little: faults 2, 3 and 4.
# - The **number** finds parameters that aren't there: faults 2 and 5. (Fault 2 removes the parameters of
#   cross-attention, too. In fault 5 three layers share one set.)
# - **Fault 6 passes all three.** The factor is missing in forward and in backward. That's a different model, with a
#   right gradient and the right flow. To find it you have to read the paper, or compare with a forward pass that
#   somebody else wrote.
#
# </details>
#
# So each test sees its own kind of fault, and you need all three. None of them proves that the model is the paper's.
#
# Couldn't we simply train, and look at the loss? Sometimes. We trained models on the bundled corpus for 500 steps,
# with one connection cut at a time. Without the memory the loss is about 1.5 nats higher. Without the encoder's
# self-attention it is even a little *lower*, in all three runs. Such a fault hides in the loss curve of a short run.
# ([Lab notes 13, experiment 3](lab/13_whole_model.py#experiment-3-would-the-loss-curve-tell))
#
# ## Paper and code
#
# - The paper: Figure 1, §3.1 (six layers on each side), §3.2.3 (who asks whom), §3.4 (one matrix $E$), Table 3
#   (sizes).
# - In the library: `EncoderLayer`, `DecoderLayer`, `Encoder`, `Decoder` and `Transformer` in
#   [nn/transformer.py](../scratchformer/nn/transformer.py), the counts in
#   [nn/sizes.py](../scratchformer/nn/sizes.py). [tests/nn/test_checks.py](../tests/nn/test_checks.py)
#   tests the flow. [tests/oracle/test_whole_model.py](../tests/oracle/test_whole_model.py) compares the whole model
#   with one that we put together from PyTorch's parts.
# - *We differ from the paper:* our attention projections have biases, as in the authors' first public code. The
#   paper's equations have none (`attention_bias=False`). *We differ from that code:* our decoder starts from a
#   learned `<s>`, not from zeros. All differences are in [the correctness report](../docs/correctness.md).
#
# ## What to remember
#
# The encoder turns the source into one array, the memory, and every decoder layer reads it. So on the way back the
# memory gets the sum of one share from each layer. Checks of the parts can't see a wrong connection. Test the whole:
# is the gradient that of the loss, which input reaches which output, and how many parameters are there?
#
# **Exercises** `13_count` · `13_decoder_layer` · `13_memory_gradient` · `13_find_the_wire` (you get a model as a
# function from ids to logits: which of its connections is cut?) · a puzzle:
#
# *In a correct model, somebody sets `dmemory` to zero. Which parameters still learn? What does the model become?*
#
# <details><summary>Answer</summary>
#
# The decoder's parameters learn as before. $E$ learns from two of its three uses. The encoder's own parameters keep
# their random start values. So the memory is what a random encoder makes of the word vectors, and the decoder learns
# to read it as well as it can.
#
# </details>
#
# **Next:** [14 · The loss, and label smoothing](14_label_smoothing.py). The loss of this page wants all probability
# on one word. Is that a good thing to ask for?
