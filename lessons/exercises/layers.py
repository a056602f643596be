"""The functions of lessons 01 to 12: a layer and what it is made of."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from exercises.function import Call, Case, Function, Mistake
from exercises.observe import Halves, Plain

PADDED = np.arange(5) >= [[3], [5], [2]]
"""Of three sentences of at most five words: where their padding is."""

LATER = ~np.tri(4, dtype=bool)
"""Of four words: which come later than each of them."""


def weight(random: np.random.Generator, *shape: int) -> SimpleNamespace:
    """A weight as in the file, float64."""
    return SimpleNamespace(data=random.normal(size=shape), grad=np.zeros(shape))


# 01 -------------------------------------------------------------------------------------------------------------------


def product(letters: str, x: tuple[int, ...], W: tuple[int, ...]) -> Case:
    """A case of `linear`: letters, shape of x, shape of W."""
    return lambda random, file: Call(letters, random.normal(size=x), weight(random, *W))


LINEAR = Function(
    name="linear",
    lesson="01",
    shapes={"x": "btd", "W": "df", "y": "btf"},
    note='letters names the axes: "btd,df->btf", or others for heads; dW goes to W.grad; return dx, shaped as x',
    cases={
        "two sentences": product("btd,df->btf", (2, 3, 4), (4, 5)),
        "one sentence of one word": product("btd,df->btf", (1, 1, 4), (4, 3)),
        "into heads, btd,dhk->bthk": product("btd,dhk->bthk", (3, 2, 4), (4, 2, 5)),
        "out of heads, bthk,hkd->btd": product("bthk,hkd->btd", (4, 3, 2, 5), (2, 5, 6)),
    },
    observe=Halves("dx"),
    hints=(
        "Backward of a product is two products. W is used at every position of every sentence, so dW is a sum over "
        "all of them, of x at the input times dy at the output. dx takes dy back through W, at each position by "
        "itself.",
        'For "btd,df->btf": dW[d,f] = sum over b and t of x[b,t,d] dy[b,t,f], and dx[b,t,d] = sum over f of '
        "dy[b,t,f] W[d,f]. Both are einsums whose letters are parts of `letters`: of x, of W and of y.",
    ),
    mistakes=(
        Mistake(
            "`x @ W` is y only if W has two axes; with heads it has three, so multiply as `letters` says",
            ("einsum(letters, x, W.data)", "x @ W.data"),
        ),
        Mistake(
            "the letters are fixed; heads have others, so take them from the argument `letters`",
            ("einsum(letters, x, W.data)", 'einsum("btd,df->btf", x, W.data)'),
        ),
        Mistake(
            "dW is a product of matrices that have one row for each position of each sentence; .T reverses all three "
            "axes of x or dy. Flatten the rows first, or sum over b and t by einsum",
            ('einsum(f"{of_x},{of_y}->{of_W}", x, dy)', "x.T @ dy"),
        ),
        Mistake(
            "dW is kept apart for each sentence; W is the same in all of them, so sum over b as well as over t, or "
            "flatten the rows of all sentences first",
            ('einsum(f"{of_x},{of_y}->{of_W}", x, dy)', 'einsum(f"{of_x},{of_y}->b{of_W}", x, dy)'),
        ),
        Mistake(
            "dW is transposed: it has the shape of W, so the axes of x come first",
            ('->{of_W}", x, dy)', '->{of_W[::-1]}", x, dy)'),
        ),
        Mistake(
            "it is divided by the number of sentences; W is used in each of them, so its gradients add up and are not "
            "averaged",
            ('einsum(f"{of_x},{of_y}->{of_W}", x, dy)', 'einsum(f"{of_x},{of_y}->{of_W}", x, dy) / len(x)'),
        ),
        Mistake(
            "it is divided by b t, the number of rows; W is used in each of them, so its gradients add up and are not "
            "averaged",
            (
                'einsum(f"{of_x},{of_y}->{of_W}", x, dy)',
                'einsum(f"{of_x},{of_y}->{of_W}", x, dy) / (x.shape[0] * x.shape[1])',
            ),
        ),
        Mistake(
            "dW is right for matrices, but with heads x, W or dy has one axis more: take the axes from `letters`",
            ('einsum(f"{of_x},{of_y}->{of_W}", x, dy)', "x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])"),
        ),
        Mistake(
            "dx goes through W from its outputs to its inputs; `dy @ W` meets the inputs of W first. Sum over the axes "
            "that y has from W",
            ('einsum(f"{of_y},{of_W}->{of_x}", dy, W.data)', "dy @ W.data"),
        ),
        Mistake(
            "`dy @ W.T` is dx only if W has two axes; with heads it has three, and .T reverses all of them. Take the "
            "axes from `letters`",
            ('einsum(f"{of_y},{of_W}->{of_x}", dy, W.data)', "dy @ W.data.T"),
        ),
    ),
)


# 04 -------------------------------------------------------------------------------------------------------------------


def to_softmax(b: int, h: int, t: int, s: int, hidden: np.ndarray | None = None, where: str = "", size=1.0) -> Case:
    """A case of `softmax`.

    hidden  True where a position must not be seen: (b, s), called `where`, or (t, s)
    size    the scores' standard deviation
    """

    def case(random, file):
        scores = size * random.normal(size=(b, h, t, s))
        if hidden is None:
            return Call(scores, np.ones((b, 1, 1, s), dtype=bool))
        if where == "padding":
            return Call(scores, ~hidden[:, None, None, :], where={where: ("bs", hidden)})
        return Call(scores, ~hidden, where={where: ("ts", hidden)})

    return case


OURS_FORWARD = "p = np.exp(log_softmax(np.where(mask, scores, -np.inf)))"

SOFTMAX = Function(
    name="softmax",
    lesson="04",
    shapes={"scores": "bhts", "mask": "bhts", "p": "bhts"},
    note="mask broadcasts to b h t s and is False where a position must not be seen; yield p, return dscores",
    cases={
        "all is seen": to_softmax(2, 3, 4, 5),
        "one sentence, one head, one word": to_softmax(1, 1, 1, 3),
        "padding": to_softmax(3, 2, 4, 5, PADDED, "padding"),
        "no later words": to_softmax(2, 1, 4, 4, LATER, "a later word"),
        "scores of size 1000": to_softmax(3, 2, 3, 5, size=1000.0),
    },
    observe=Halves("dscores", y="p"),
    hints=(
        "Forward: a score that must not be seen becomes minus infinity, and its exp is 0. Subtract the largest score "
        "of each row before exp, so that nothing overflows. Backward: a score raises its own p and lowers all other p "
        "of its row; the row is the last axis.",
        "p = exp(scores) / sum(exp(scores)), and dscores = p (dp - sum over s of p dp).",
    ),
    mistakes=(
        Mistake(
            "exp overflows where scores are large: subtract the largest of each row first, p stays the same",
            (OURS_FORWARD, "e = np.exp(np.where(mask, scores, -np.inf))\n    p = e / total(e)"),
        ),
        Mistake(
            "it is divided by the sum of everything; each row, the last axis, has a sum of its own (keepdims=True)",
            (OURS_FORWARD, "e = np.exp(np.where(mask, scores - scores.max(), -np.inf))\n    p = e / e.sum()"),
        ),
        Mistake(
            "it is normalized over the positions t that look; each t shares out a sum of 1 over the positions s that "
            "it sees, the last axis",
            (
                OURS_FORWARD,
                "p = np.exp(log_softmax(np.where(mask, scores, -np.inf).swapaxes(-1, -2))).swapaxes(-1, -2)",
            ),
        ),
        *(
            Mistake(
                "mask is the wrong way round: True means that a position may be seen",
                ("np.where(mask, scores, -np.inf)", f"np.where(mask, {low}, scores)"),
            )
            for low in ("-np.inf", "-1e9")
        ),
        Mistake(
            "a hidden score is set to 0, but exp(0) is 1: set it to minus infinity, whose exp is 0",
            ("np.where(mask, scores, -np.inf)", "np.where(mask, scores, 0)"),
        ),
        Mistake(
            "mask is not used: where it is False, the score becomes minus infinity",
            ("np.where(mask, scores, -np.inf)", "scores"),
        ),
        *(
            Mistake(
                "something small is added to the sum below the fraction; exp of the largest score is 1, so the sum is "
                "never 0: leave it out",
                (
                    OURS_FORWARD,
                    "x = np.where(mask, scores, -np.inf)\n    e = np.exp(x - x.max(axis=-1, keepdims=True))\n"
                    f"    p = e / (total(e) + {small})",
                ),
            )
            for small in ("1e-6", "1e-8", "1e-9")
        ),
        Mistake(
            "hidden positions become 0 after the division, so the rest sums to less than 1: hide them before the sum "
            "is taken",
            (OURS_FORWARD, "p = np.exp(log_softmax(scores)) * mask"),
        ),
        Mistake(
            "it is p dp only; a score lowers the other p of its row, too, so subtract sum(p dp) from dp first",
            ("return p * (dp - total(p * dp))", "return p * dp"),
        ),
        Mistake(
            "it is p (1 - p) dp, as if each p depended on its own score alone; through the sum below the fraction a "
            "score changes all p of its row",
            ("return p * (dp - total(p * dp))", "return p * (1 - p) * dp"),
        ),
        Mistake(
            "the factor p is missing: dscores is p times (dp - sum(p dp))",
            ("return p * (dp - total(p * dp))", "return dp - total(p * dp)"),
        ),
        Mistake(
            "the mean of dp is subtracted, in which all positions count alike; each counts with its p: sum(p dp)",
            ("return p * (dp - total(p * dp))", "return p * (dp - mean(dp))"),
        ),
    ),
)


def qkv(b: int, t: int, s: int, h: int, k: int, hidden: np.ndarray | None = None, where: str = "") -> Case:
    """A case of `attention`; hidden and where as for `to_softmax`."""

    def case(random, file):
        Q, K, V = (random.normal(size=(b, n, h, k)) for n in (t, s, s))
        if hidden is None:
            return Call(Q, K, V, np.ones((b, 1, 1, s), dtype=bool))
        if where == "padding":
            return Call(Q, K, V, ~hidden[:, None, None, :], where={where: ("bs", hidden)})
        return Call(Q, K, V, ~hidden)

    return case


ATTENTION = Function(
    name="attention",
    lesson="04",
    shapes={"Q": "bthk", "K": "bshk", "V": "bshk", "mask": "bhts", "y": "bthk"},
    note="mask (broadcasts to b h t s) is False where a position must not be seen; return dQ, dK, dV",
    cases={
        "t and s differ": qkv(2, 3, 4, 6, 5),
        "one sentence, one word, one head": qkv(1, 1, 2, 1, 4),
        "padding": qkv(3, 2, 5, 3, 4, PADDED, "padding"),
        "no later words": qkv(2, 4, 4, 1, 3, LATER),
    },
    observe=Halves(("dQ", "dK", "dV")),
    hints=(
        "Backward goes the same way back, one line at a time. y is a product of weights and V: each of them gets dy "
        "times the other. Then comes the backward of softmax, then the scale, then the product of Q and K, each of "
        "which gets dscores times the other.",
        "dweights = dy V^T, dV = weights^T dy, dscores = softmax_backward(dweights) / sqrt(d_k), "
        "dQ = dscores K, dK = dscores^T Q.",
    ),
    mistakes=(
        Mistake(
            "the scores are divided by sqrt(s), the number of positions seen; a score is a sum of d_k products, so "
            "divide by sqrt(d_k)",
            ("Q.shape[-1] ** 0.5", "K.shape[1] ** 0.5"),
        ),
        Mistake(
            "the scores are divided by sqrt(t), the number of positions; a score is a sum of d_k products, so divide "
            "by sqrt(d_k)",
            ("Q.shape[-1] ** 0.5", "Q.shape[1] ** 0.5"),
        ),
        Mistake(
            "the scores are divided by sqrt(h d_k), which is sqrt(d_model); a score of one head is a sum of d_k "
            "products, so divide by sqrt(d_k)",
            ("Q.shape[-1] ** 0.5", "(Q.shape[-1] * Q.shape[-2]) ** 0.5"),
        ),
        Mistake(
            "mask is not used: hand it to `softmax`, or make hidden scores minus infinity before it",
            ("* scale, mask)", "* scale, np.True_)"),
        ),
        Mistake("the scores are not divided by sqrt(d_k)", ("1 / Q.shape[-1] ** 0.5", "1")),
        Mistake("the scores are divided by d_k, not by its square root", ("Q.shape[-1] ** 0.5", "Q.shape[-1]")),
        Mistake(
            "the factor 1 / sqrt(d_k) is missing on the way back: forward multiplies the scores by it, so backward "
            "multiplies dscores by it",
            ("dheads, V)) * scale", "dheads, V))"),
        ),
        Mistake(
            "it is made of dweights, as if there were no softmax: take dweights back through softmax first",
            (
                'softmax_backward(einsum("bthk,bshk->bhts", dheads, V)) * scale',
                'einsum("bthk,bshk->bhts", dheads, V) * scale',
            ),
        ),
        Mistake(
            "heads are compared with heads: @ multiplies the last two axes, so bring the heads before the positions "
            "first, by swapaxes(1, 2), or name the axes in einsum",
            ('einsum("bthk,bshk->bhts", Q, K)', "(Q @ K.swapaxes(-1, -2))"),
        ),
        Mistake(
            "a reshape mixes heads and positions: it keeps the order of the numbers. To bring the heads before the "
            "positions, swap the two axes",
            (
                "    scale =",
                "    shape = Q.shape\n"
                "    Q, K, V = (a.reshape(len(a), a.shape[2], a.shape[1], -1).swapaxes(1, 2) for a in (Q, K, V))\n"
                "    scale =",
            ),
            (
                'yield einsum("bhts,bshk->bthk", weights, V)',
                'yield einsum("bhts,bshk->bhtk", weights, V).reshape(shape)',
            ),
        ),
    ),
)


# 07 -------------------------------------------------------------------------------------------------------------------


def projections(random: np.random.Generator, d: int, h: int, k: int) -> dict[str, Any]:
    """W_Q, W_K, W_V and W_O."""
    return {name: weight(random, d, h, k) for name in ("W_Q", "W_K", "W_V")} | {"W_O": weight(random, h, k, d)}


def heads(b: int, t: int, s: int, d: int, h: int, k: int, hidden: np.ndarray | None = None) -> Case:
    """A case of `multi_head_attention`; hidden (b, s) is True where the memory is padding."""

    def case(random, file):
        x, memory = random.normal(size=(b, t, d)), random.normal(size=(b, s, d))
        padding = np.zeros((b, s), dtype=bool) if hidden is None else hidden
        where = {} if hidden is None else {"padding": ("bs", hidden)}
        return Call(x, memory, ~padding[:, None, None, :], **projections(random, d, h, k), where=where)

    return case


def heads_on_itself(random: np.random.Generator, file) -> Call:
    """x is memory, too, and no word sees a later one."""
    x = random.normal(size=(2, 4, 6))
    return Call(x, x.copy(), ~LATER, **projections(random, 6, 2, 3))


OURS_HEADS = "heads, heads_backward = attention(Q, K, V, mask)"
RESHAPED = "Q, K, V = (a.reshape(len(a), a.shape[2], a.shape[1], -1).swapaxes(1, 2) for a in (Q, K, V))\n    "
MIXED = "\n    heads = heads.swapaxes(1, 2).reshape(heads.shape)"

MULTI_HEAD_ATTENTION = Function(
    name="multi_head_attention",
    lesson="07",
    shapes={"x": "btd", "memory": "bsd", "mask": "bhts"}
    | {name: "dhk" for name in ("W_Q", "W_K", "W_V")}
    | {"W_O": "hkd", "y": "btd"},
    note="x reads memory; mask (broadcasts to b h t s) as in attention; return dx, dmemory",
    cases={
        "x reads another sentence": heads(3, 4, 5, 7, 2, 6),
        "one sentence, one word, one head": heads(1, 1, 2, 3, 1, 4),
        "padding": heads(3, 2, 5, 6, 2, 3, PADDED),
        "x reads itself, no later words": heads_on_itself,
    },
    observe=Halves(("dx", "dmemory")),
    hints=(
        "Queries are made from x, keys and values from memory, each by `linear`; `attention` does the rest, and W_O "
        "puts the heads together. Backward calls the backward of each of them, the last one first. Memory has been "
        "used twice.",
        "dheads = y_backward(dy); dQ, dK, dV = heads_backward(dheads); dx = Q_backward(dQ); "
        "dmemory = K_backward(dK) + V_backward(dV).",
    ),
    mistakes=(
        Mistake(
            "keys and values are made from x; x asks by its queries, and what it reads is memory: keys and values are "
            "made from memory",
            ('"bsd,dhk->bshk", memory, W_K', '"bsd,dhk->bshk", x, W_K'),
            ('"bsd,dhk->bshk", memory, W_V', '"bsd,dhk->bshk", x, W_V'),
        ),
        Mistake(
            "x and memory are exchanged, or Q and K: x asks, so Q is made from x; K and V are made from memory",
            ('"btd,dhk->bthk", x, W_Q', '"btd,dhk->bthk", memory, W_Q'),
            ('"bsd,dhk->bshk", memory, W_K', '"bsd,dhk->bshk", x, W_K'),
            ('"bsd,dhk->bshk", memory, W_V', '"bsd,dhk->bshk", x, W_V'),
        ),
        Mistake(
            "values are made from x; a key and its value belong to the same position of memory, so both are made from "
            "memory",
            ('"bsd,dhk->bshk", memory, W_V', '"bsd,dhk->bshk", x, W_V'),
        ),
        Mistake(
            "a reshape alone splits the heads; it keeps the order of the numbers and does not bring the heads before "
            "the positions: swap the two axes",
            (OURS_HEADS, RESHAPED + OURS_HEADS),
        ),
        Mistake(
            "the heads are put together in the wrong order: an array b h t k is reshaped, and a reshape keeps the "
            "order of the numbers. Its axes must be b t h k before, as `attention` returns them",
            (OURS_HEADS, OURS_HEADS + MIXED),
        ),
        Mistake(
            "a reshape alone splits the heads and puts them together; it keeps the order of the numbers and does not "
            "bring the heads before the positions: swap the two axes",
            (OURS_HEADS, RESHAPED + OURS_HEADS + MIXED),
        ),
        Mistake(
            "W_K and W_V are exchanged: W_K makes the keys, W_V the values",
            ("memory, W_K", "memory, W"),
            ("memory, W_V", "memory, W_K"),
            ("memory, W)", "memory, W_V)"),
        ),
        Mistake(
            "dy meets attention before W_O: forward ends with W_O, so backward begins with it, by the backward of that "
            "product",
            ("heads_backward(y_backward(dy))", "heads_backward(dy)"),
        ),
        Mistake(
            "dK goes back through W_V, and dV through W_K: backward of attention returns dQ, dK, dV, in this order",
            ("dQ, dK, dV = heads", "dQ, dV, dK = heads"),
        ),
        Mistake(
            "this is the share of the keys alone; memory makes keys and values, so the gradients of both add up",
            ("K_backward(dK) + V_backward(dV)", "(K_backward(dK), V_backward(dV))[0]"),
        ),
        Mistake(
            "this is the share of the values alone; memory makes keys and values, so the gradients of both add up",
            ("K_backward(dK) + V_backward(dV)", "(K_backward(dK), V_backward(dV))[1]"),
        ),
        Mistake(
            "the gradients of x and memory are added up; they are two arguments, of t and of s positions, so return "
            "dx and dmemory apart",
            ("return Q_backward(dQ), K_backward(dK)", "return Q_backward(dQ) + K_backward(dK)"),
        ),
    ),
)


# 08 -------------------------------------------------------------------------------------------------------------------


def words(ids: list[list[int]], v: int, d: int, P_drop: float = 0.0) -> Case:
    """A case of `embed`."""

    def case(random, file):
        array = np.array(ids)
        times = np.bincount(array.ravel(), minlength=v)
        where = {
            "padding": ("bt", array == 0),
            "the row of PAD": ("v", np.arange(v) == 0),
            "the row of a word that comes more than once": ("v", times > 1),
            "the row of a word that does not come": ("v", times == 0),
        }
        return Call(array, weight(random, v, d), P_drop, where=where)

    return case


EMBED = Function(
    name="embed",
    lesson="08",
    shapes={"ids": "bt", "E": "vd", "y": "btd"},
    note="`positional_encoding` and `dropout` are called; dE goes to E.grad; nothing is returned",
    cases={
        "two sentences with repeated words": words([[3, 5, 3], [4, 6, 5]], v=7, d=4),
        "one word": words([[1]], v=3, d=2),
        "padding": words([[3, 4, 2, 0, 0], [2, 5, 6, 7, 1]], v=8, d=6),
        "dropout": words([[3, 5, 3, 1], [4, 6, 5, 5]], v=7, d=6, P_drop=0.3),
    },
    observe=Halves(None),
    hints=(
        "Forward takes the row of E for each id, multiplies it by sqrt(d_model), adds the encoding of the position, "
        "and multiplies the sum by what `dropout` gives. Backward adds to the row of a word what comes from each of "
        "its places. `E.grad[ids] += ...` writes each row once; look up np.add.at.",
        "y = keep (E[ids] sqrt(d_model) + PE); dE[ids[b,t]] += keep[b,t] dy[b,t] sqrt(d_model) for each b and t.",
    ),
    mistakes=(
        Mistake(
            "the vectors of words are not multiplied by sqrt(d_model) before the encoding of positions is added",
            ("x = E.data[ids] * d_model**0.5", "x = E.data[ids]"),
        ),
        Mistake(
            "the vectors of words are multiplied by d_model, not by its square root",
            ("x = E.data[ids] * d_model**0.5", "x = E.data[ids] * d_model"),
        ),
        Mistake(
            "the encoding of positions is multiplied by sqrt(d_model), too; only the vectors of words are",
            ("x = E.data[ids] * d_model**0.5", "x = E.data[ids]"),
            ("x += positional_encoding(t, d_model)", "x = (x + positional_encoding(t, d_model)) * d_model**0.5"),
        ),
        Mistake(
            "the encoding of positions is missing: add positional_encoding(t, d_model)",
            ("    x += positional_encoding(t, d_model)\n", ""),
        ),
        Mistake(
            "dropout is applied to the words alone; apply it after the encoding of positions has been added",
            ("    x += positional_encoding(t, d_model)\n", ""),
            ("yield keep * x", "yield keep * x + positional_encoding(t, d_model)"),
        ),
        Mistake(
            "padding is left out; here PAD is a word like any other, with a vector of its own. The mask of attention "
            "hides it",
            ("x = E.data[ids] * d_model**0.5", "x = E.data[ids] * d_model**0.5 * (ids != PAD)[..., None]"),
            ("keep * dy * d_model**0.5)", "keep * dy * d_model**0.5 * (ids != PAD)[..., None])"),
        ),
        Mistake(
            "`dropout` does not return x after dropout, but what to multiply it with: multiply, and keep it for the "
            "way back",
            ("yield keep * x", "yield keep"),
        ),
        Mistake(
            "of a word that comes more than once only one place counts: `E.grad[ids] += ...` writes each row once, "
            "np.add.at adds up all",
            ("np.add.at(E.grad, ids, keep * dy * d_model**0.5)", "E.grad[ids] += keep * dy * d_model**0.5"),
        ),
        Mistake(
            "the factor sqrt(d_model) is missing on the way back: forward multiplies by it, so backward does",
            ("keep * dy * d_model**0.5)", "keep * dy)"),
        ),
        Mistake(
            "dropout is drawn a second time on the way back; what forward has dropped has no gradient, so multiply dy "
            "by the same array as x",
            ("keep * dy * d_model**0.5)", "dropout(dy, P_drop) * dy * d_model**0.5)"),
        ),
        Mistake(
            "`dropout` gives one thing, what to multiply x with, and no backward: multiply dy by the same",
            ("keep = dropout(x, P_drop)", "keep, _ = dropout(x, P_drop)"),
        ),
        Mistake(
            "dropout is missing on the way back: multiply dy by the same array as x",
            ("keep * dy * d_model**0.5)", "dy * d_model**0.5)"),
        ),
    ),
)


# 09 -------------------------------------------------------------------------------------------------------------------


def positions(t: int, d_model: int) -> Case:
    return lambda random, file: Call(t, d_model)


OURS_ANGLE = "angle = np.arange(t)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)"
OURS_PAIRS = "np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(t, d_model)"

POSITIONAL_ENCODING = Function(
    name="positional_encoding",
    lesson="09",
    shapes={"PE": "td"},
    note="t and d_model are numbers, d_model is even; return PE",
    cases={
        "7 positions, d_model 6": positions(7, 6),
        "one position": positions(1, 4),
        "d_model 2": positions(5, 2),
        "200 positions": positions(200, 16),
    },
    observe=Plain("PE"),
    hints=(
        "The columns come in pairs. Both columns of a pair have the same angle, which grows with the position: the "
        "first is its sine, the second its cosine. The angle of the first pair grows by 1 from one position to the "
        "next, those of later pairs more and more slowly.",
        "PE[pos, 2i] = sin(pos / 10000^(2i / d_model)), PE[pos, 2i + 1] = cos(pos / 10000^(2i / d_model)), for "
        "i = 0 to d_model / 2 - 1 and pos = 0 to t - 1.",
    ),
    mistakes=(
        Mistake(
            "all sines come first, then all cosines; sine and cosine of one angle stand side by side, in columns 2i "
            "and 2i + 1",
            (OURS_PAIRS, "np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)"),
        ),
        Mistake(
            "the exponent is i / d_model; for pair i it is 2i / d_model",
            ("np.arange(0, d_model, 2) / d_model", "np.arange(d_model // 2) / d_model"),
        ),
        Mistake(
            "each column c has an angle of its own, of exponent c / d_model; columns 2i and 2i + 1 have the same "
            "angle, of exponent 2i / d_model",
            ("np.arange(0, d_model, 2) / d_model", "np.arange(d_model) / d_model"),
            ("[np.sin(angle), np.cos(angle)]", "[np.sin(angle[:, ::2]), np.cos(angle[:, 1::2])]"),
        ),
        Mistake(
            "each column c has an angle of its own, of exponent 2c / d_model; columns 2i and 2i + 1 have the same "
            "angle, of exponent 2i / d_model",
            ("np.arange(0, d_model, 2) / d_model", "2 * np.arange(d_model) / d_model"),
            ("[np.sin(angle), np.cos(angle)]", "[np.sin(angle[:, ::2]), np.cos(angle[:, 1::2])]"),
        ),
        Mistake(
            "the exponent is twice too large: for an even column c it is c / d_model, because c = 2i, and the same for "
            "the column after it",
            ("np.arange(0, d_model, 2) / d_model", "2 * np.arange(0, d_model, 2) / d_model"),
        ),
        Mistake(
            "the position is multiplied by 10000^(2i / d_model) and should be divided by it",
            ("[:, None] / 10000", "[:, None] * 10000.0"),
        ),
        Mistake("positions are counted from 1; the first is 0", ("np.arange(t)", "np.arange(1, t + 1)")),
        Mistake(
            "sine and cosine are exchanged: the sine comes first",
            ("[np.sin(angle), np.cos(angle)]", "[np.cos(angle), np.sin(angle)]"),
        ),
    ),
)


# 11 -------------------------------------------------------------------------------------------------------------------


def hidden_layer(random: np.random.Generator, d: int, f: int) -> dict[str, Any]:
    """W_1, b_1, W_2 and b_2."""
    shapes = {"W_1": (d, f), "b_1": (f,), "W_2": (f, d), "b_2": (d,)}
    return {name: weight(random, *shape) for name, shape in shapes.items()}


def feed(b: int, t: int, d: int, f: int) -> Case:
    """A case of `feed_forward`."""
    return lambda random, file: Call(random.normal(size=(b, t, d)), **hidden_layer(random, d, f))


FEED_FORWARD = Function(
    name="feed_forward",
    lesson="11",
    shapes={"x": "btd", "W_1": "df", "b_1": "f", "W_2": "fd", "b_2": "d", "y": "btd"},
    note="the gradients of W_1, b_1, W_2 and b_2 go to their .grad; return the tuple (dx,)",
    cases={
        "two sentences": feed(2, 3, 4, 5),
        "one sentence of one word": feed(1, 1, 3, 6),
        "d_model larger than d_ff": feed(3, 2, 7, 5),
    },
    observe=Halves(("dx",)),
    hints=(
        "Two calls of `linear` with max(0, ...) between them. Backward: a hidden unit that is 0 lets nothing through, "
        "all others let everything through. A bias is added at every position of every sentence, so its gradient is "
        "a sum over b and t.",
        "dactive = y_backward(dy), dhidden = dactive where x W_1 + b_1 > 0, else 0; db_2 = sum of dy, "
        "db_1 = sum of dhidden, both over b and t; dx = hidden_backward(dhidden).",
    ),
    mistakes=(
        Mistake(
            "max(0, ...) is missing between the two products", ("np.maximum(0, hidden + b_1.data)", "hidden + b_1.data")
        ),
        Mistake(
            "b_1 is added after max(0, ...) and belongs inside: max(0, x W_1 + b_1)",
            ("np.maximum(0, hidden + b_1.data)", "np.maximum(0, hidden) + b_1.data"),
        ),
        Mistake("b_1 is not added", ("hidden + b_1.data", "hidden")),
        Mistake("b_2 is not added", ("y + b_2.data", "y")),
        Mistake("b_1 and b_2 are not added", ("hidden + b_1.data", "hidden"), ("y + b_2.data", "y")),
        Mistake(
            "the gradient is let through where x W_1 > 0; what max(0, ...) has seen is x W_1 + b_1",
            ("(active > 0)", "(hidden > 0)"),
        ),
        Mistake(
            "max(0, ...) is left out on the way back: where a hidden unit is 0, its gradient is 0",
            ("y_backward(dy) * (active > 0)", "y_backward(dy)"),
        ),
        Mistake(
            "the gradient is multiplied by the hidden units themselves; max(0, ...) has the slope 1 where they are "
            "above 0, so multiply by 1 there and by 0 elsewhere",
            ("y_backward(dy) * (active > 0)", "y_backward(dy) * active"),
        ),
        Mistake(
            "max(0, ...) is taken of the gradient; what decides is whether the hidden unit is above 0, not the sign "
            "of its gradient",
            ("y_backward(dy) * (active > 0)", "np.maximum(0, y_backward(dy))"),
        ),
        Mistake(
            "it is the sum of the gradient after max(0, ...); b_1 is added inside, so sum what has gone back through "
            "max(0, ...)",
            (
                "dhidden = y_backward(dy) * (active > 0)",
                "dactive = y_backward(dy)\n    dhidden = dactive * (active > 0)",
            ),
            ("b_1.grad += dhidden.sum", "b_1.grad += dactive.sum"),
        ),
    ),
)


# 12 -------------------------------------------------------------------------------------------------------------------


def gamma_and_beta(random: np.random.Generator, d: int) -> dict[str, Any]:
    return {"gamma": weight(random, d), "beta": weight(random, d)}


def rows(numbers: Callable[[np.random.Generator], np.ndarray]) -> Case:
    """A case of `layer_norm`; numbers makes x."""

    def case(random, file):
        x = numbers(random)
        return Call(x, **gamma_and_beta(random, x.shape[-1]))

    return case


OURS_NORMED = "sigma = np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)\n    n = (x - mean(x)) / sigma"
OURS_DX = "return (dn - mean(dn) - n * mean(dn * n)) / sigma"

LAYER_NORM = Function(
    name="layer_norm",
    lesson="12",
    shapes={"x": "btd", "gamma": "d", "beta": "d", "y": "btd"},
    note="1e-6 is added to the variance, under the root; return dx",
    cases={
        "two sentences": rows(lambda random: random.normal(2, 3, size=(2, 3, 5))),
        "one sentence of one word": rows(lambda random: random.normal(size=(1, 1, 4))),
        "all numbers of a vector equal": rows(lambda random: np.full((2, 1, 4), [[[1.0]], [[-2.0]]])),
        "numbers of size 0.001": rows(lambda random: random.normal(size=(3, 2, 6)) / 1000),
    },
    observe=Halves("dx"),
    hints=(
        "Mean and standard deviation are taken over the last axis, for each position by itself (keepdims=True). "
        "Backward: x reaches n in three ways, directly, through the mean and through sigma, so dx has three terms. "
        "gamma and beta serve all positions, so their gradients are sums over b and t.",
        "n = (x - mean(x)) / sigma, sigma = sqrt(mean((x - mean(x))^2) + 1e-6), y = gamma n + beta; dn = gamma dy, "
        "dx = (dn - mean(dn) - n mean(dn n)) / sigma.",
    ),
    mistakes=(
        Mistake(
            "the variance is divided by d - 1 (ddof=1) and should be divided by d, as a mean of squares",
            ("np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)", "np.sqrt(x.var(axis=-1, keepdims=True, ddof=1) + 1e-6)"),
        ),
        Mistake(
            "1e-6 is added to the standard deviation; it belongs under the root, added to the variance",
            ("np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)", "np.sqrt(mean((x - mean(x)) ** 2)) + 1e-6"),
        ),
        Mistake(
            "1e-6 is missing under the root, added to the variance: without it equal numbers lead to 0 / 0",
            ("np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)", "np.sqrt(mean((x - mean(x)) ** 2))"),
        ),
        Mistake(
            "it is divided by the variance; divide by the standard deviation, the square root of it",
            ("np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)", "mean((x - mean(x)) ** 2) + 1e-6"),
        ),
        Mistake(
            "mean and variance are taken over all positions together; each position has its own, over the last axis",
            (OURS_NORMED, "sigma = np.sqrt(x.var() + 1e-6)\n    n = (x - x.mean()) / sigma"),
        ),
        Mistake(
            "mean and variance are taken over the positions, axis 1; each position has its own, over the last axis",
            (OURS_NORMED, OURS_NORMED.replace("mean(", "partial(np.mean, axis=1, keepdims=True)(")),
        ),
        Mistake(
            "a sum stands under the root where a mean should be: the variance is the sum of squares divided by d",
            ("np.sqrt(mean((x - mean(x)) ** 2) + 1e-6)", "np.sqrt(total((x - mean(x)) ** 2) + 1e-6)"),
        ),
        Mistake(
            "it is one number, a sum over all axes; gamma and beta have d numbers each, so sum over b and t only",
            ("gamma.grad += (dy * n).sum(axis=(0, 1))", "gamma.grad += (dy * n).sum()"),
            ("beta.grad += dy.sum(axis=(0, 1))", "beta.grad += dy.sum()"),
        ),
        Mistake(
            "mean and sigma are treated as constants; they depend on x, so two terms are missing: - mean(dn) and "
            "- n mean(dn n)",
            (OURS_DX, "return dn / sigma"),
        ),
        Mistake(
            "sigma is treated as a constant; it depends on x, so a term is missing: - n mean(dn n)",
            (OURS_DX, "return (dn - mean(dn)) / sigma"),
        ),
        Mistake(
            "- mean(dn) is missing: the mean of x was subtracted, and it depends on each x",
            (OURS_DX, "return (dn - n * mean(dn * n)) / sigma"),
        ),
        Mistake(
            "it is not divided by sigma, as n was in forward", (OURS_DX, "return dn - mean(dn) - n * mean(dn * n)")
        ),
        Mistake("gamma is missing: forward multiplies n by it, so dn = dy gamma", ("dn = dy * gamma.data", "dn = dy")),
        Mistake(
            "sums are subtracted where means should be: mean(dn) and mean(dn n) are sums divided by d",
            (OURS_DX, "return (dn - total(dn) - n * total(dn * n)) / sigma"),
        ),
        Mistake(
            "gamma multiplies at the end; forward multiplies n by it, so dy is multiplied by it before the means are "
            "taken",
            ("dn = dy * gamma.data", "dn = dy"),
            (OURS_DX, "return gamma.data * (dn - mean(dn) - n * mean(dn * n)) / sigma"),
        ),
        Mistake(
            "it is made of x; gamma multiplies n, the normalized x, so its gradient is the sum of dy n",
            ("gamma.grad += (dy * n)", "gamma.grad += (dy * x)"),
        ),
    ),
)


def around_attention(random: np.random.Generator, file) -> Call:
    """A case of `add_and_norm`: multi-head attention to another sentence."""
    b, t, s, d, h, k = 3, 4, 5, 7, 2, 6
    x, memory, mask = random.normal(size=(b, t, d)), random.normal(size=(b, s, d)), np.ones((b, 1, 1, s), dtype=bool)
    return Call(
        0.0, file.multi_head_attention, x, memory, mask, **gamma_and_beta(random, d), **projections(random, d, h, k),
        named={"memory": memory}, returns=("dx", "dmemory"),
    )  # fmt: skip


def around_self_attention(random: np.random.Generator, file) -> Call:
    """A case of `add_and_norm`: multi-head attention to the same sentence."""
    x = random.normal(size=(2, 4, 6))
    memory = x.copy()
    return Call(
        0.3, file.multi_head_attention, x, memory, ~LATER, **gamma_and_beta(random, 6), **projections(random, 6, 2, 3),
        named={"memory": memory}, returns=("dx", "dmemory"),
    )  # fmt: skip


def around_feed_forward(b: int, t: int, d: int, f: int, P_drop: float) -> Case:
    """A case of `add_and_norm`."""

    def case(random, file):
        x = random.normal(size=(b, t, d))
        return Call(P_drop, file.feed_forward, x, **gamma_and_beta(random, d), **hidden_layer(random, d, f))

    return case


OURS_SUBLAYER = "update, sublayer_backward = sublayer(x, *others, **weights)"
OURS_NORM = "y, norm_backward = layer_norm(x + keep * update, gamma, beta)"

ADD_AND_NORM = Function(
    name="add_and_norm",
    lesson="12",
    shapes={"x": "btd", "memory": "bsd", "gamma": "d", "beta": "d", "y": "btd"},
    note="sublayer(x, *others, **weights) gives its y and its backward; others is empty, or memory and mask. Its "
    "backward returns the tuple (dx,), or (dx, dmemory); return such a tuple, too",
    cases={
        "attention to another sentence": around_attention,
        "one sentence of one word, feed-forward": around_feed_forward(1, 1, 4, 3, P_drop=0.0),
        "feed-forward, dropout": around_feed_forward(2, 3, 4, 5, P_drop=0.3),
        "attention to itself, dropout": around_self_attention,
    },
    observe=Halves(("dx",)),
    hints=(
        "Three steps: the sub-layer, dropout of what it returns, and layer_norm of x plus that. Backward: through "
        "layer_norm to the sum; from there x is reached in two ways, directly and through dropout and the sub-layer, "
        "and the gradients of both add up.",
        "y = layer_norm(x + keep sublayer(x)); dsum = norm_backward(dy); dx, *dothers = sublayer_backward(keep dsum); "
        "return dsum + dx, *dothers.",
    ),
    mistakes=(
        Mistake(
            "this is pre-norm: layer_norm stands before the sub-layer; in the paper it comes last, after x has been "
            "added",
            (
                OURS_SUBLAYER,
                "n, norm_backward = layer_norm(x, gamma, beta)\n"
                "    update, sublayer_backward = sublayer(n, *others, **weights)",
            ),
            (OURS_NORM, "y = x + keep * update"),
        ),
        Mistake(
            "x is added after layer_norm; add it before, so that the sum is normalized",
            (OURS_NORM, "y, norm_backward = layer_norm(keep * update, gamma, beta)\n    y = x + y"),
        ),
        Mistake(
            "x is not added to what the sub-layer returns",
            ("layer_norm(x + keep * update,", "layer_norm(keep * update,"),
        ),
        Mistake(
            "dropout is applied to the sum; apply it to what the sub-layer returns, and add x whole",
            ("layer_norm(x + keep * update,", "layer_norm(keep * (x + update),"),
        ),
        Mistake(
            "`dropout` does not return its argument after dropout, but what to multiply it with: multiply, and keep it "
            "for the way back",
            ("layer_norm(x + keep * update,", "layer_norm(x + keep,"),
        ),
        Mistake(
            "backward of the sub-layer returns a tuple, of which dx is the first: unpack it before you add, with "
            "`dx, *rest = ...` (attention to another sentence returns two gradients)",
            ("dx, *dothers = sublayer_backward(keep * dsum)", "dx = sublayer_backward(keep * dsum)"),
            ("return dsum + dx, *dothers", "return (dsum + dx,)"),
        ),
        Mistake(
            "`dropout` gives one thing, what to multiply the update with, and no backward: multiply its gradient by "
            "the same",
            ("keep = dropout(update, P_drop)", "keep, _ = dropout(update, P_drop)"),
        ),
        Mistake(
            "dothers is returned as a list inside the tuple: unpack it with *, as it was taken apart",
            ("return dsum + dx, *dothers", "return dsum + dx, dothers"),
        ),
        Mistake(
            "the direct way is missing: x is added to what the sub-layer returns, so dsum is added to its dx",
            ("return dsum + dx,", "return dx,"),
        ),
        Mistake(
            "dy is added where dsum should be: the sum comes before layer_norm, so its gradient is what norm_backward "
            "returns",
            ("return dsum + dx,", "return dy + dx,"),
        ),
        Mistake(
            "dropout is missing on the way back: the sub-layer gets dsum times the array by which its result was "
            "multiplied",
            ("sublayer_backward(keep * dsum)", "sublayer_backward(dsum)"),
        ),
    ),
)

FUNCTIONS = (
    LINEAR, SOFTMAX, ATTENTION, MULTI_HEAD_ATTENTION, EMBED, POSITIONAL_ENCODING, FEED_FORWARD, LAYER_NORM,
    ADD_AND_NORM,
)  # fmt: skip
