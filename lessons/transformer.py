"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), complete, on NumPy arrays.

    python lessons/transformer.py check           compare every gradient with finite differences
    python lessons/transformer.py train           learn to translate English into German, in minutes
    python lessons/transformer.py translate "The dog ate the apple."

Every gradient is written by hand. A function has two halves, and stands still between them:

    def square(x):
        dy = yield x * x   # y, backward = square(x) ends here: dy = d loss / d y is not known yet
        return 2 * x * dy  # dx = backward(dy) goes on from there: dx = d loss / d x

A weight is W.data, its gradient W.grad. Axes: b sentences, t positions, s positions seen, h heads,
v words, n predictions; d, f, k of d_model, d_ff, d_k.
"""

import re
import sys
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace

import numpy as np  # for a GPU: import cupy as np (but NumPy for files, and to shuffle lists)

PAD, EOS, BOS = range(3)  # the first words of the vocabulary
CORPUS, WEIGHTS = Path(__file__).parent.parent / "data" / "tiny", Path("transformer.npz")
words_in = re.compile(r"[\w-]+|[^\w\s]").findall  # words and punctuation marks
rng = np.random.default_rng(0)
einsum = partial(np.einsum, optimize=True)  # optimize: by matrix products
mean, total = (partial(f, axis=-1, keepdims=True) for f in (np.mean, np.sum))


def differentiable(function):
    """Turn a function with two halves into one that returns y and backward."""

    def forward(*inputs, **weights):
        halves = function(*inputs, **weights)

        def backward(dy):
            try:
                halves.send(dy)  # run the second half
            except StopIteration as end:
                return end.value  # what it returned

        return next(halves), backward

    return forward


@differentiable
def linear(letters, x, W):
    """y = x W, where "btd,df->btf" means y[b,t,f] = sum over d of x[b,t,d] W[d,f]."""
    of_x, of_W, of_y = re.split(",|->", letters)
    dy = yield einsum(letters, x, W.data)
    # the gradient of a factor is a product, too: the letters of the factor and of y change places
    W.grad += einsum(f"{of_x},{of_y}->{of_W}", x, dy)
    return einsum(f"{of_y},{of_W}->{of_x}", dy, W.data)


def dropout(x, P_drop):
    """What to multiply x with: 0 with probability P_drop, else 1 / (1 - P_drop) (§5.4)."""
    return (rng.random(x.shape) >= P_drop).astype(x.dtype) / (1 - P_drop) if P_drop else 1.0


@differentiable
def layer_norm(x, gamma, beta):
    """Bring each vector to mean 0 and standard deviation 1, then scale and shift it (§3.1)."""
    sigma = np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)
    n = (x - mean(x)) / sigma
    dy = yield gamma.data * n + beta.data
    gamma.grad += (dy * n).sum(axis=(0, 1))
    beta.grad += dy.sum(axis=(0, 1))
    dn = dy * gamma.data
    # dx_j = sum over i of dn_i ((1 if i = j else 0) - 1/d - n_i n_j / d) / sigma
    return (dn - mean(dn) - n * mean(dn * n)) / sigma


def log_softmax(x):
    """log of exp(x) / sum(exp(x))."""
    x = x - x.max(axis=-1, keepdims=True)  # the same result, but exp can't overflow
    return x - np.log(total(np.exp(x)))


@differentiable
def softmax(scores, mask):
    """exp(scores) / sum(exp(scores)), and 0 where mask is False."""
    p = np.exp(log_softmax(np.where(mask, scores, -np.inf)))
    dp = yield p  # dscores_j = sum over i of dp_i p_i ((1 if i = j else 0) - p_j)
    return p * (dp - total(p * dp))


@differentiable
def attention(Q, K, V, mask):
    """softmax(Q K^T / sqrt(d_k)) V, for all sentences and heads at once (§3.2.1)."""
    scale = 1 / Q.shape[-1] ** 0.5
    weights, softmax_backward = softmax(einsum("bthk,bshk->bhts", Q, K) * scale, mask)
    dheads = yield einsum("bhts,bshk->bthk", weights, V)
    dV = einsum("bhts,bthk->bshk", weights, dheads)
    dscores = softmax_backward(einsum("bthk,bshk->bhts", dheads, V)) * scale
    return einsum("bhts,bshk->bthk", dscores, K), einsum("bhts,bthk->bshk", dscores, Q), dV


@differentiable
def multi_head_attention(x, memory, mask, W_Q, W_K, W_V, W_O):
    """Concat(head_1, ..., head_h) W_O, in which x attends to memory (§3.2.2)."""
    Q, Q_backward = linear("btd,dhk->bthk", x, W_Q)
    K, K_backward = linear("bsd,dhk->bshk", memory, W_K)
    V, V_backward = linear("bsd,dhk->bshk", memory, W_V)
    heads, heads_backward = attention(Q, K, V, mask)
    y, y_backward = linear("bthk,hkd->btd", heads, W_O)  # Concat and W_O
    dy = yield y
    dQ, dK, dV = heads_backward(y_backward(dy))
    return Q_backward(dQ), K_backward(dK) + V_backward(dV)  # dx and dmemory


@differentiable
def feed_forward(x, W_1, b_1, W_2, b_2):
    """max(0, x W_1 + b_1) W_2 + b_2 (§3.3)."""
    hidden, hidden_backward = linear("btd,df->btf", x, W_1)
    active = np.maximum(0, hidden + b_1.data)
    y, y_backward = linear("btf,fd->btd", active, W_2)
    dy = yield y + b_2.data
    b_2.grad += dy.sum(axis=(0, 1))
    dhidden = y_backward(dy) * (active > 0)
    b_1.grad += dhidden.sum(axis=(0, 1))
    return (hidden_backward(dhidden),)


def positional_encoding(t, d_model):
    """PE of t positions: sin and cos of pos / 10000^(2i / d_model) at 2i and 2i + 1 (§3.5)."""
    angle = np.arange(t)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(t, d_model)


@differentiable
def embed(ids, E, P_drop):
    """Dropout(E[ids] sqrt(d_model) + PE): vectors of words at their positions (§3.4)."""
    t, d_model = ids.shape[1], E.data.shape[1]
    x = E.data[ids] * d_model**0.5
    x += positional_encoding(t, d_model)
    keep = dropout(x, P_drop)
    dy = yield keep * x
    np.add.at(E.grad, ids, keep * dy * d_model**0.5)  # adds up, where a word comes more than once


@differentiable
def add_and_norm(P_drop, sublayer, x, *others, gamma, beta, **weights):
    """LayerNorm(x + Dropout(sublayer(x, ...))) (§3.1)."""
    update, sublayer_backward = sublayer(x, *others, **weights)
    keep = dropout(update, P_drop)
    y, norm_backward = layer_norm(x + keep * update, gamma, beta)
    dy = yield y
    dsum = norm_backward(dy)  # reaches x directly and through the sub-layer
    dx, *dothers = sublayer_backward(keep * dsum)  # dothers: [dmemory] or []
    return dsum + dx, *dothers


@differentiable
def encode(source, model, P_drop):
    """Figure 1, left: from words to vectors."""
    x, embed_backward = embed(source, model.E, P_drop)
    mask, backwards = (source != PAD)[:, None, None, :], []
    for attn, ffn in model.encoder:
        x, attention_backward = add_and_norm(P_drop, multi_head_attention, x, x, mask, **attn)
        x, ffn_backward = add_and_norm(P_drop, feed_forward, x, **ffn)
        backwards += [attention_backward, ffn_backward]
    dx = yield x
    for backward in reversed(backwards):
        dx = sum(backward(dx))  # of attention dx and dmemory: x was both
    return embed_backward(dx)


@differentiable
def decode(target, memory, source, model, P_drop):
    """Figure 1, right: from the words so far to a vector that predicts the next one."""
    x, embed_backward = embed(target, model.E, P_drop)
    past = np.tri(target.shape[1], dtype=bool)  # t sees 0 to t (§3.2.3); padding stands behind
    mask, backwards = (source != PAD)[:, None, None, :], []
    for attn, cross, ffn in model.decoder:
        x, self_backward = add_and_norm(P_drop, multi_head_attention, x, x, past, **attn)
        x, cross_backward = add_and_norm(P_drop, multi_head_attention, x, memory, mask, **cross)
        x, ffn_backward = add_and_norm(P_drop, feed_forward, x, **ffn)
        backwards.append((self_backward, cross_backward, ffn_backward))
    dx = yield x
    dmemory = np.zeros_like(memory)
    for self_backward, cross_backward, ffn_backward in reversed(backwards):
        dx, dshare = cross_backward(sum(ffn_backward(dx)))
        dx, dmemory = sum(self_backward(dx)), dmemory + dshare
    embed_backward(dx)
    return dmemory


@differentiable
def cross_entropy(logits, words, eps_ls):
    """The mean of -sum(q log p): q is eps_ls / V, and 1 - eps_ls more at the right word (§5.4)."""
    n, log_p = np.arange(len(words)), log_softmax(logits)
    q = np.full_like(logits, eps_ls / logits.shape[-1])
    q[n, words] += 1 - eps_ls
    dloss = yield -(q * log_p).sum() / len(words)
    return (np.exp(log_p) - q) * dloss / len(words)  # p - q, because q sums to 1


@differentiable
def loss_of(source, target, model, P_drop=0.0, eps_ls=0.1):
    """The loss of the target's words, each predicted from the source and the words before it."""
    memory, encode_backward = encode(source, model, P_drop)
    x, decode_backward = decode(target[:, :-1], memory, source, model, P_drop)  # reads BOS a b
    is_word = target[:, 1:] != PAD  # predicts a b EOS; no loss at padding
    logits, logits_backward = linear("nd,vd->nv", x[is_word], model.E)  # the same E (§3.4)
    loss, loss_backward = cross_entropy(logits, target[:, 1:][is_word], eps_ls)
    dloss = yield loss
    dx = np.zeros_like(x)
    dx[is_word] = logits_backward(loss_backward(dloss))
    return encode_backward(decode_backward(dx))


def new_model(V, d_model=64, d_ff=256, h=4, N=2, dtype="float32"):  # the paper: 512, 2048, 8, 6
    """Random weights with the standard deviation 1 / sqrt(d_model), W_2 with 1 / sqrt(d_ff)."""
    norm, qkv = {"gamma": [d_model], "beta": [d_model]}, [d_model, h, d_model // h]
    attention = {"W_Q": qkv, "W_K": qkv, "W_V": qkv, "W_O": [h, d_model // h, d_model], **norm}
    ffn = {"W_1": [d_model, d_ff], "b_1": [d_ff], "W_2": [d_ff, d_model], "b_2": [d_model], **norm}
    weights = {}

    def create(place, shapes):
        for name, shape in shapes.items():
            std = (d_ff if name == "W_2" else d_model) ** -0.5
            w = std * rng.standard_normal(shape) if shape[1:] else np.full(shape, name == "gamma")
            w = w.astype(dtype)  # gamma 1, b and beta 0
            weights[place + name] = SimpleNamespace(data=w, grad=0 * w, m=0 * w, v=0 * w)
        return {name: weights[place + name] for name in shapes}

    def layers(stack, **blocks):
        return [[create(f"{stack}.{i}.{name}.", blocks[name]) for name in blocks] for i in range(N)]

    E = create("", {"E": [V, d_model]})["E"]
    encoder = layers("encoder", attention=attention, ffn=ffn)
    decoder = layers("decoder", attention=attention, cross=attention, ffn=ffn)
    return SimpleNamespace(E=E, encoder=encoder, decoder=decoder, weights=weights)


def adam(model, step, warmup_steps=400, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    """A step against the gradients (§5.3); it grows for warmup_steps (there 4000), then shrinks."""
    lrate = model.E.data.shape[1] ** -0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    size = lrate * (1 - beta_2**step) ** 0.5 / (1 - beta_1**step)  # m and v began at 0
    for w in model.weights.values():
        w.m += (1 - beta_1) * (w.grad - w.m)
        w.v += (1 - beta_2) * (w.grad**2 - w.v)
        w.data -= size * w.m / (np.sqrt(w.v) + epsilon)
        w.grad[...] = 0


def batches(pairs, size):
    """Batches of `size` pairs of about the same length, without end (§5.1)."""
    while True:
        rng.shuffle(pairs)
        pairs.sort(key=lambda pair: len(pair[1]))  # pairs of equal length stay shuffled
        for i in rng.permutation(range(0, len(pairs), size)):
            sides = zip(*pairs[i : i + size])
            yield [np.array(list(zip_longest(*side, fillvalue=PAD))).T for side in sides]


def train(steps=1500, size=96, P_drop=0.0):
    """Learn to translate the corpus (§5), by default without dropout."""
    en, de = ((CORPUS / f"train.{language}").read_text("utf-8") for language in ("en", "de"))
    words = ["<pad>", "</s>", "<s>", *sorted({*words_in(en), *words_in(de)})]
    ids = {word: i for i, word in enumerate(words)}
    source = [[*(ids[word] for word in words_in(line)), EOS] for line in en.splitlines()]
    target = [[BOS, *(ids[word] for word in words_in(line)), EOS] for line in de.splitlines()]
    model, checkpoints = new_model(len(words)), []
    for step, batch in zip(range(1, steps + 1), batches(list(zip(source, target)), size)):
        loss, backward = loss_of(*batch, model, P_drop)
        backward(1.0)
        adam(model, step)
        if step % max(1, steps // 30) == 0:
            print(f"step {step} of {steps}: loss {loss:.3f}", flush=True)  # smoothed: at least 1.1
            checkpoints.append({name: w.data.copy() for name, w in model.weights.items()})
    average = {name: np.mean([w[name] for w in checkpoints[-5:]], axis=0) for name in model.weights}
    np.savez(WEIGHTS, words=words, **average)  # averaged as in §6.1
    for sentence in (CORPUS / "test.en").read_text("utf-8").splitlines()[:3]:
        translate(sentence)


def beam_search(source, model, beam=4, alpha=0.6, longer=50):
    """The best translation found of a source (1, s), by log p / length penalty (§6.1)."""
    memory, _ = encode(source, model, 0.0)
    penalty = ((5 + np.arange(source.size + longer + 1)) / 6) ** alpha  # of 0, 1, 2, ... words
    alive, finished = [(0.0, [BOS])], []  # (log p, ids), the likeliest first; (score, ids)
    for n_words in range(1, len(penalty)):
        log_p_so_far, so_far = zip(*alive)
        x, _ = decode(np.array(so_far), memory.repeat(len(alive), axis=0), source, model, 0.0)
        log_p = np.array(log_p_so_far)[:, None] + log_softmax(x[:, -1] @ model.E.data.T)
        log_p[:, [PAD, BOS]] = -np.inf  # never written
        best, V = np.argsort(-log_p, axis=None)[: 2 * beam], log_p.shape[1]  # half may end
        continued = [(log_p.flat[i], [*so_far[i // V], i % V]) for i in best.tolist()]
        finished += [(p / penalty[n_words], ids) for p, ids in continued if ids[-1] == EOS]
        alive = [(p, ids) for p, ids in continued if ids[-1] != EOS][:beam]
        if finished and max(finished)[0] >= alive[0][0] / penalty[-1]:
            break  # log p can only fall: no other sentence will score more
    return [i for i in max(finished or alive)[1] if i not in (BOS, EOS)]


def translate(sentence):
    """Print the German of an English sentence, by the weights that train has saved."""
    saved = dict(np.load(WEIGHTS))
    words = saved.pop("words").tolist()
    if unknown := [word for word in words_in(sentence) if word not in words]:
        sys.exit(f"unknown word {unknown[0]!r}: the model knows those of {CORPUS / 'train.en'}")
    model = new_model(len(words))
    for name, w in model.weights.items():
        w.data = saved[name]
    source = np.array([[*map(words.index, words_in(sentence)), EOS]])
    german = " ".join(words[i] for i in beam_search(source, model))
    print(f"{sentence} -> {re.sub(' (?=[.,?!])', '', german)}")


def check(step=1e-5):
    """Compare each gradient with (loss(w + step) - loss(w - step)) / (2 step) for each number w."""
    model = new_model(V=9, d_model=4, d_ff=8, h=2, N=2, dtype="float64")
    for w in model.weights.values():  # gamma 1 and beta 0 would hide some mistakes
        w.data += 0.3 * rng.standard_normal(w.data.shape)
    source = np.array([[4, 5, 6, 7, EOS], [8, 4, EOS, PAD, PAD]])
    target = np.array([[BOS, 7, 5, 7, EOS, PAD], [BOS, 8, 6, 5, 4, EOS]])
    state = rng.bit_generator.state

    def loss():
        rng.bit_generator.state = state  # the same dropout each time
        return loss_of(source, target, model, P_drop=0.1)

    loss()[1](1.0)  # backward
    errors = []
    for name, w in model.weights.items():
        numeric = np.zeros_like(w.data)
        for i, number in np.ndenumerate(w.data.copy()):
            for change in (step, -step):
                w.data[i] = number + change
                numeric[i] += loss()[0] / (2 * change)
            w.data[i] = number
        errors.append(abs(numeric - w.grad).max() / abs(numeric).max())
        print(f"{name:26} {errors[-1]:.1e}")
    print(f"worst relative error {max(errors):.1e}")
    assert max(errors) < 1e-6, "a gradient is wrong"


if __name__ == "__main__":
    try:
        if sys.argv[1:] in (["check"], ["train"]):
            check() if sys.argv[1] == "check" else train()
        elif sys.argv[1:2] == ["translate"] and sys.argv[2:]:
            translate(" ".join(sys.argv[2:]))
        else:
            sys.exit(__doc__)
    except FileNotFoundError as error:
        sys.exit(f"{error.filename} is missing: `train` writes weights, a clone has the corpus")
