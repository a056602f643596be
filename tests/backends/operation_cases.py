"""Calls of the operations at odd shapes, and what differs from the reference."""

import inspect
import re

import ml_dtypes
import numpy as np

from scratchformer.nn.attention import split_heads
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import PAD, Ops

STORED = {name: np.dtype(name) for name in ("float64", "float32", "float16")}
STORED["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
KEY = DropoutKey(seed=3, step=2, shard=1, site=77)


def cases(stored):
    """(description, function(ops, of) -> arrays), at odd shapes. `of` moves an array to the library of `ops`."""
    random = np.random.default_rng(0)

    def normal(*shape, dtype=stored):
        return random.standard_normal(shape).astype(dtype)

    def float32(*shape):
        return normal(*shape, dtype="float64" if stored == "float64" else "float32")

    def linear(ops, of, dy, x, W, b, dW, db):
        dW, db = of(dW).copy(), None if b is None else of(db).copy()
        y = ops.linear(of(x), of(W), None if b is None else of(b))
        return y, ops.linear_backward(of(dy), of(x), of(W), dW, db), dW, db

    for rows, d_in, d_out in ((7, 5, 300), (1, 1, 1), (0, 2, 3)):
        arrays = (
            normal(rows, 2, d_out),
            normal(rows, 2, d_in),
            normal(d_in, d_out),
            normal(d_out),
            float32(d_in, d_out),
            float32(d_out),
        )
        yield "linear", lambda ops, of, a=arrays: linear(ops, of, *a)
        yield "linear without bias", lambda ops, of, a=arrays: linear(ops, of, *a[:3], None, *a[4:])

    a, b, total = normal(2, 3, 4), normal(2, 4, 5), float32(3, 5)
    yield "matmul", lambda ops, of: ops.matmul(of(a), of(b))

    def in_place(ops, of):
        sums, rows, product = (of(x).copy() for x in (total[0], b[0], total))
        ops.add_rows_inplace(sums, of(b[0]))
        ops.add_to_rows_inplace(rows, of(b[1, 0]))
        ops.add_product_inplace(product, of(a[0]), of(b[0]))
        return sums, rows, product

    yield "sums in place", in_place
    y, dy = normal(3, 100), normal(3, 100)
    yield "relu_backward", lambda ops, of: ops.relu_backward(of(dy), of(y))
    for size in (1, 30):  # 30: exp overflows
        z = (size * y).astype(stored)
        yield f"gelu {size}", lambda ops, of, z=z: (ops.gelu(of(z)), ops.gelu_backward(of(dy), of(z)))

    def dropout(ops, of, x, dy, P_drop, rng):
        y, saved = ops.dropout(of(x), P_drop, rng)
        return y, ops.dropout_backward(of(dy), saved, P_drop)

    def layer_norm(ops, of, x, update, dy, gamma, beta, dgamma, dbeta):
        dgamma, dbeta = of(dgamma).copy(), of(dbeta).copy()
        y, saved = ops.layer_norm(of(x), of(gamma), of(beta), 1e-6)
        return y, ops.layer_norm_backward(of(dy), saved, of(gamma), dgamma, dbeta), dgamma, dbeta

    def add_norm(ops, of, x, update, dy, gamma, beta, dgamma, dbeta, P_drop, rng):
        dgamma, dbeta = of(dgamma).copy(), of(dbeta).copy()
        y, saved = ops.add_norm(of(x), of(update), of(gamma), of(beta), 1e-6, P_drop, rng)
        return y, ops.add_norm_backward(of(dy), saved, of(gamma), dgamma, dbeta, P_drop), dgamma, dbeta

    for shape in ((3, 5, 16), (2, 7, 3), (1, 600), (5, 1), (2, 1030), (0, 4)):
        D = shape[-1]
        arrays = [*(normal(*shape) for _ in range(3)), normal(D), normal(D), float32(D), float32(D)]
        yield f"layer_norm {shape}", lambda ops, of, a=arrays: layer_norm(ops, of, *a)
        for P_drop, rng in ((0.3, KEY), (0.3, None), (0.0, KEY)):
            how = f"{shape}, P_drop {P_drop}, {rng}"
            yield f"dropout {how}", lambda ops, of, a=arrays, d=(P_drop, rng): dropout(ops, of, a[0], a[2], *d)
            yield f"add_norm {how}", lambda ops, of, a=arrays, d=(P_drop, rng): add_norm(ops, of, *a, *d)

    def masked_softmax(ops, of, scores, dweights, lengths, causal):
        weights = ops.masked_softmax(of(scores), 0.3, lengths, causal)
        return weights, ops.masked_softmax_backward(of(dweights), weights, 0.3)

    for B, T, S in ((3, 4, 4), (3, 1, 7), (1, 5, 5), (2, 3, 70)):
        for lengths in (None, np.array([S, 0, 2])[:B]):  # 0: nothing to attend to
            for causal in (False, True):
                mask = normal(B, 2, T, S), normal(B, 2, T, S), lengths, causal
                mask[0][0, 0, -1] = -np.inf  # as after an overflow with fp16
                yield f"masked_softmax {B, T, S, lengths, causal}", lambda ops, of, a=mask: masked_softmax(ops, of, *a)

    def attention(ops, of, projections, widths, dy, lengths, causal, P_drop=0.0):
        q, k, v = (part for x, each in zip(projections, widths) for part in split_heads(of(x), 2, *each))
        y, weights, dropped, kept = ops.attention(q, k, v, 0.25, lengths, causal, P_drop, KEY)
        gradients = ops.attention_backward(of(dy), q, k, v, 0.25, weights, dropped, kept, P_drop)
        rows = [gradient.reshape(*gradient.shape[:2], -1) for gradient in gradients]
        return y, weights, dropped, ops.side_by_side(rows[1:] if len(widths) > 1 else rows), rows

    for T, S, d_k, d_v in ((3, 3, 4, 5), (1, 7, 5, 3), (35, 35, 3, 64), (34, 50, 64, 2), (2, 70, 4, 4), (8, 97, 3, 3)):
        for large in (False, True):
            for lengths, causal in ((None, False), (np.array([S, 2]), True), (np.array([0, S]), False)):
                widths = ((d_k, d_k, d_v),) if S == T else ((d_k,), (d_k, d_v))
                projections = [normal(2, n, 2 * sum(each)) for n, each in zip((T, S), widths)]
                if large:  # scores are numbers of fp16 only after they are scaled, and whole ones, so they are exact
                    for x in projections:
                        of_queries_and_keys = x[..., : -2 * d_v] if S == T or x is projections[1] else x
                        of_queries_and_keys[...] = 64 * random.integers(-3, 4, of_queries_and_keys.shape)
                a = projections, widths, normal(2, T, 2, d_v), lengths, causal
                yield f"attention {T, S, d_k, d_v, large, lengths, causal}", lambda ops, of, a=a: attention(ops, of, *a)
            if d_k < 64:  # otherwise the scaled scores overflow in fp16, too
                yield f"attention {T, S, d_k, d_v, large}, dropped", lambda ops, of, a=a: attention(ops, of, *a, 0.3)

    def embedding(ops, of, ids, E, dx, dE):
        dE = of(dE).copy()
        ops.embedding_backward(of(dx), ids, 2.5, dE)
        return ops.embedding(ids, of(E), 2.5), dE

    frequent = np.full((4, 9), 3)
    for ids in (np.array([[3, 1, 3, PAD, 3], [3, 9, PAD, PAD, PAD]]), np.zeros((1, 2), int), frequent):
        for D in (6, 300):
            words = ids, normal(11, D), normal(*ids.shape, D), float32(11, D)
            yield f"embedding {ids.shape, D}", lambda ops, of, a=words: embedding(ops, of, *a)

    for index in (np.array([4, 0, 5]), np.array([], int)):
        x, rows = normal(2, 3, 300), normal(len(index), 300)
        yield "gather_rows", lambda ops, of, x=x, rows=rows, index=index: (
            ops.gather_rows(of(x), index),
            ops.gather_rows_backward(of(rows), index, x.shape),
        )

    def in_its_place(ops, logits, *rest):
        return ops.cross_entropy(logits, *rest, out=logits)

    for n, V, targets, off_target, offset in (
        (23, 31, random.integers(1, 31, 23), 0.1 / 31, 0),
        (23, 31, random.integers(1, 31, 23), 0.1 / 31, 1e4),
        (5, 700, np.arange(5), 0.0, 0),
        (3, 5, np.zeros(3, int), 0.02, 0),
        (0, 5, np.zeros(0, int), 0.0, 0),
    ):
        logits = (8 * normal(n, V) + offset).astype(stored)
        arguments = logits, targets, 1 - V * off_target, off_target
        yield f"cross_entropy {n, V, offset}", lambda ops, of, a=arguments: ops.cross_entropy(of(a[0]), *a[1:])
        yield f"cross_entropy in place {n, V, offset}", lambda ops, of, a=arguments: in_its_place(
            ops, of(a[0]).copy(), *a[1:]
        )

    for shape, offset in (((2, 3, 40), 0), ((1, 700), 0), ((4, 1), 0), ((2, 300), 1e4), ((0, 3), 0)):
        z = (8 * normal(*shape) + offset).astype(stored)
        yield f"log_sum_exp {shape, offset}", lambda ops, of, z=z: ops.log_sum_exp(of(z))

    for rows, m, n in ((3, 700, 8), (2, 5, 5), (1, 1, 1), (0, 9, 2)):
        x = normal(rows, m, dtype="float64")
        x[:, n:][:, ::3] = -np.inf  # as for a word that may not be written
        yield f"top_indices {rows, m, n}", lambda ops, of, x=x, n=n: ops.top_indices(of(x), n)

    def adam(ops, of, w, g, m, v, norm):
        w, m, v = of(w).copy(), of(m).copy(), of(v).copy()
        ops.adam_inplace(w, of(g), m, v, 0.01, 0.9, 0.98, 1e-9, None if norm is None else of(norm))
        return w, m, v

    def mean(ops, of, g):
        g = of(g).copy()
        return ops.divide_inplace(g, 7), g

    for n in (1, 1000, 70_000):
        w, g, m = (float32(n) for _ in range(3))
        yield "divide_inplace", lambda ops, of, g=g: mean(ops, of, g)
        for norm in (None, 2.0, np.inf, np.nan):
            flat = w, g, m, m * m, None if norm is None else np.asarray(norm)
            yield f"adam, {norm}", lambda ops, of, a=flat: adam(ops, of, *a)


def arrays_in(thing):
    return [array for part in thing for array in arrays_in(part)] if isinstance(thing, (tuple, list)) else [thing]


def in_float32(x):
    return x.astype("float32") if x.dtype.itemsize == 2 else x


def on_host(x):
    return np.asarray(x.get() if hasattr(x, "get") else x, "float64")


def disagreements(ops, stored, tolerance, of=lambda x: x):
    """The descriptions of the cases in which `ops` differ from the reference, which computes in float32 at least."""
    found = []
    for description, function in cases(STORED[stored]):
        with np.errstate(all="ignore"):
            expected, got = (arrays_in(function(*how)) for how in ((Ops(np), in_float32), (ops, of)))
        assert [np.shape(one) for one in expected] == [np.shape(other) for other in got], description
        pairs = [(on_host(one), on_host(other)) for one, other in zip(expected, got) if one is not None]
        if not all(np.allclose(b, a, rtol=tolerance, atol=tolerance * np.abs(a).max(initial=1)) for a, b in pairs):
            found.append(description)
    return found


def called():
    """The names of the operations that the cases call."""
    return set(re.findall(r"ops\.(\w+)\(", inspect.getsource(cases)))


def overridden(kind):
    return {name for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"}


def signatures_that_differ(kind):
    """The overridden operations that are called in another way than the reference's."""

    def signature(of, name):
        return str(inspect.signature(getattr(of, name))).replace("DropoutKey | None", "Array | None")

    return [name for name in overridden(kind) if signature(kind, name) != signature(Ops, name)]
