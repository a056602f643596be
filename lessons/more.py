"""The functions of lessons 17 and 21 to 23: byte pairs, BLEU, GPT, and the block of 2026.

The paper's model doesn't need them. Names, axes and the two halves of a differentiable function
are those of transformer.py.
"""

from collections import Counter

import numpy as np
from transformer import (
    add_and_norm,
    attention,
    cross_entropy,
    differentiable,
    embed,
    feed_forward,
    linear,
    mean,
    multi_head_attention,
    new_model,
)

# Lesson 17. A word is a tuple of symbols, at first its characters: ("▁", "u", "n", "d") -----------


def count_pairs(words):
    """Count each pair of neighbours in words, {word: count of the word} (Sennrich et al. 2016)."""
    pairs = Counter()
    for symbols, count in words.items():
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += count
    return pairs


def merge(symbols, pair):
    """Join the pair wherever it occurs, from left to right (Sennrich et al. 2016)."""
    merged, i = [], 0
    while i < len(symbols):
        width = 2 if symbols[i : i + 2] == pair else 1
        merged.append("".join(symbols[i : i + width]))
        i += width
    return tuple(merged)


def learn_merges(words, n):
    """Merge the most frequent pair, n times, and list these pairs (Sennrich et al. 2016)."""
    merges = []
    while len(merges) < n and (pairs := count_pairs(words)):
        # of equal counts: the shortest when joined, the first in Unicode, the shortest left symbol
        best = min(pairs, key=lambda ab: (-pairs[ab], len("".join(ab)), "".join(ab), len(ab[0])))
        words = {merge(symbols, best): count for symbols, count in words.items()}
        merges.append(best)
    return merges


def bpe_encode(word, merges):
    """The symbols of a word: its characters, after all merges in order (Sennrich et al. 2016)."""
    symbols = tuple(word)
    for pair in merges:
        symbols = merge(symbols, pair)
    return symbols


# Lesson 21. A sentence is a list of words ---------------------------------------------------------


def clipped_counts(hypothesis, reference):
    """n-grams matched, n = 1 to 4; n-grams written; words expected (Papineni et al. 2002)."""
    matched, written = [], []
    for n in (1, 2, 3, 4):
        ours = Counter(zip(*(hypothesis[i:] for i in range(n))))  # how often each n-gram occurs
        theirs = Counter(zip(*(reference[i:] for i in range(n))))
        matched.append((ours & theirs).total())  # &: the smaller count
        written.append(ours.total())
    return np.array([*matched, *written, len(reference)])  # (9,)


def bleu_of_counts(counts):
    """100 BP (p_1 p_2 p_3 p_4)^(1/4) of a sum of clipped_counts (Papineni et al. 2002)."""
    matched, written, r = counts[:4], counts[4:8], counts[8]
    c = max(1, written[0])
    BP = min(1, np.exp(1 - r / c))  # the brevity penalty, if fewer words are written than expected
    return 100 * BP * np.prod(matched / np.maximum(1, written)) ** (1 / 4)


def bleu(hypotheses, references):
    """The BLEU of a corpus, 0 to 100, with a reference for each sentence (Papineni et al. 2002)."""
    pairs = zip(hypotheses, references, strict=True)
    return bleu_of_counts(sum(clipped_counts(*pair) for pair in pairs))


def bootstrap(a, b, references, rng, samples=1000):
    """The middle 95 % of BLEU(b) - BLEU(a) over test sets drawn with replacement (Koehn 2004)."""
    counts_a = np.array([clipped_counts(*pair) for pair in zip(a, references, strict=True)])
    counts_b = np.array([clipped_counts(*pair) for pair in zip(b, references, strict=True)])
    differences = []
    for _ in range(samples):
        drawn = rng.integers(0, len(references), len(references))  # some twice, others not at all
        score_a, score_b = (bleu_of_counts(x[drawn].sum(axis=0)) for x in (counts_a, counts_b))
        differences.append(score_b - score_a)  # paired: both on the same sentences
    return np.quantile(differences, [0.025, 0.975])


# Lesson 22. GPT reads characters, ids (b, t), and predicts each from those before it ----------------


def new_gpt(V, **sizes):
    """The weights of new_model, without those of the encoder and of cross-attention."""
    model = new_model(V, **sizes)
    model.decoder = [(attn, ffn) for attn, cross, ffn in model.decoder]
    kept = [name for name in model.weights if "encoder" not in name and "cross" not in name]
    model.weights = {name: model.weights[name] for name in kept}
    return model


@differentiable
def gpt(ids, model, P_drop):
    """decode without a source: vectors that predict the next character (Radford et al. 2018)."""
    x, embed_backward = embed(ids, model.E, P_drop)
    past, backwards = np.tri(ids.shape[1], dtype=bool), []  # t sees 0 to t
    for attn, ffn in model.decoder:
        x, self_backward = add_and_norm(P_drop, multi_head_attention, x, x, past, **attn)
        x, ffn_backward = add_and_norm(P_drop, feed_forward, x, **ffn)
        backwards.append((self_backward, ffn_backward))
    dx = yield x
    for self_backward, ffn_backward in reversed(backwards):
        dx = sum(ffn_backward(dx))
        dx = sum(self_backward(dx))  # two gradients: x was both x and memory
    embed_backward(dx)


@differentiable
def gpt_loss(ids, model, P_drop=0.0):
    """The mean of -log p of all characters but the first of each row (Radford et al. 2018)."""
    x, gpt_backward = gpt(ids[:, :-1], model, P_drop)  # reads h e l l
    logits, logits_backward = linear("nd,vd->nv", x.reshape(-1, x.shape[-1]), model.E)
    loss, loss_backward = cross_entropy(logits, ids[:, 1:].ravel(), eps_ls=0.0)  # predicts e l l o
    dloss = yield loss
    gpt_backward(logits_backward(loss_backward(dloss)).reshape(x.shape))


# Lesson 23. What a Transformer's block is made of in 2026 (Touvron et al. 2023) -------------------


@differentiable
def rms_norm(x, gamma):
    """gamma x / sqrt(mean(x^2)): layer_norm without mean and beta (Zhang & Sennrich 2019)."""
    rms = np.sqrt(mean(x**2) + 1e-6)
    n = x / rms
    dy = yield gamma.data * n
    gamma.grad += (dy * n).sum(axis=(0, 1))
    dn = dy * gamma.data
    # dx_j = sum over i of dn_i ((1 if i = j else 0) - n_i n_j / d) / rms
    return (dn - n * mean(dn * n)) / rms


@differentiable
def swiglu(x, W_gate, W_value, W_outer):
    """(silu(x W_gate) * (x W_value)) W_outer, where silu(z) = z sigmoid(z) (Shazeer 2020)."""
    gate, gate_backward = linear("btd,df->btf", x, W_gate)
    value, value_backward = linear("btd,df->btf", x, W_value)
    s = (1 + np.tanh(gate / 2)) / 2  # sigmoid(gate) = 1 / (1 + exp(-gate)), but can't overflow
    y, y_backward = linear("btf,fd->btd", gate * s * value, W_outer)
    dy = yield y
    dhidden = y_backward(dy)
    dgate = dhidden * value * (s + gate * s * (1 - s))  # because ds/dgate = s (1 - s)
    return (gate_backward(dgate) + value_backward(dhidden * gate * s),)


@differentiable
def rope(x):
    """Rotate each (x_i, x_(i + k/2)) at position t by t / 10000^(2i / k) (Su et al. 2021)."""
    k = x.shape[-1]  # Su et al. pair x_(2i) and x_(2i + 1)
    angle = np.arange(x.shape[1])[:, None, None] / 10000 ** (np.arange(0, k, 2) / k)  # (t, 1, k/2)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = np.split(x, 2, axis=-1)
    dy = yield np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    da, db = np.split(dy, 2, axis=-1)  # backward rotates by -angle
    return np.concatenate([da * cos + db * sin, db * cos - da * sin], axis=-1)


@differentiable
def grouped_query_attention(x, memory, mask, W_Q, W_K, W_V, W_O):
    """Multi-head attention: each head of K and V serves a group of Q's (Ainslie et al. 2023)."""
    Q, Q_backward = linear("btd,dhk->bthk", x, W_Q)
    K, K_backward = linear("bsd,dhk->bshk", memory, W_K)
    V, V_backward = linear("bsd,dhk->bshk", memory, W_V)
    group = Q.shape[2] // K.shape[2]  # h / h_kv: the first `group` heads of Q use the first one
    heads, heads_backward = attention(Q, K.repeat(group, axis=2), V.repeat(group, axis=2), mask)
    y, y_backward = linear("bthk,hkd->btd", heads, W_O)
    dy = yield y
    dQ, *copies = heads_backward(y_backward(dy))
    dK, dV = (d.reshape(*K.shape[:3], group, -1).sum(axis=3) for d in copies)
    return Q_backward(dQ), K_backward(dK) + V_backward(dV)  # dx and dmemory
