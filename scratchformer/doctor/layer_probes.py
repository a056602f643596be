"""Probes of the layers for `scratchformer doctor`: what each computes, its gradient, its contract and its dropout.

They run the situations of `nn/gradient_cases.py`, in float64, with shapes in which no two dimensions are equal. The
gradient check alone is not enough: a wrong formula can have a correct gradient, and so can a bad initialization.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Literal

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import STANDS_FOR, Check, CheckFailed, CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import DropoutRecorder, random
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import arrays_in, gradcheck, map_arrays, random_arrays
from scratchformer.nn.gradient_cases import CASES, FLOAT64, B, GradientCase, H, N, T, V
from scratchformer.nn.head_gate import gated
from scratchformer.nn.layers import Embedding, LayerNorm, LearnedPositions
from scratchformer.nn.next_word import NextWord
from scratchformer.nn.ops import PAD, Ops, using
from scratchformer.nn.parameter import Layer
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` should be of a small model, since it is built several times."""
    return [structure(config), INITIAL_SIZES, FORMULAS, GRADIENTS, CONTRACT, DROPOUT]


def of_cases(check: Callable[[GradientCase], Any]) -> list[tuple[str, Check]]:
    """For each component, the check of all its cases. It returns the largest number that the check returns, if any."""

    def check_all(cases: list[GradientCase]) -> str | None:
        errors = [error for error in map(check, cases) if error is not None]
        return f"(error {max(errors):.0e})" if errors else None

    cases: dict[str, list[GradientCase]] = {}
    for case in CASES:
        cases.setdefault(STANDS_FOR.get(case.layer, case.layer), []).append(case)
    return [(component, partial(check_all, of_component)) for component, of_component in cases.items()]


# Structure ------------------------------------------------------------------------------------------------------------


def structure(config: ModelConfig) -> CodeProbe:
    return CodeProbe(
        "structure",
        "as many parameters as the model of Figure 1, all in one flat buffer; tied embeddings are one parameter; the "
        "initial weights depend on the seed only",
        "the same layer is used N times; a tied matrix is copied; a generator is created again with the same seed; "
        "layers are in a dictionary, where `parameters()` does not find them",
        [
            ("Encoder", partial(check_stack_size, Encoder, EncoderLayer, config)),
            ("Decoder", partial(check_stack_size, Decoder, DecoderLayer, config)),
            ("Transformer", partial(check_flat_buffer, config)),
            ("Transformer", partial(check_tied_embeddings, config)),
            ("Transformer", partial(check_seed, config)),
        ],
    )


def size(layer: Layer) -> int:
    """The number of weights of a layer."""
    return sum(parameter.data.size for parameter in layer.parameters().values())


def check_stack_size(kind: Callable[..., Layer], of_layers: Callable[..., Layer], config: ModelConfig) -> None:
    found = size(kind(config, random()))
    expected = config.N * size(of_layers(config, random())) + {"post": 0, "rms": 1}.get(config.norm, 2) * config.d_model
    expect(found == expected, f"{found} parameters in {config.N} layers, expected {expected}")


def check_flat_buffer(config: ModelConfig) -> None:
    model = Transformer(config)
    views = model.store.named_views(model.store.data)
    expect(size(model) == model.store.data.size, f"{size(model)} parameters, {model.store.data.size} in the buffer")
    expect(list(views) == list(model.parameters()), "the flat buffer has other names than the model")
    for name, parameter in model.parameters().items():
        same = np.shares_memory(parameter.data, views[name]) and np.array_equal(parameter.data, views[name])
        expect(same, f"{name} is not in the flat buffer")


def check_tied_embeddings(config: ModelConfig) -> None:
    choices: list[tuple[Literal["all", "target", "none"], int]] = [("all", 1), ("target", 2), ("none", 3)]
    for tied, expected in choices:
        model = Transformer(replace(config, tied=tied))
        target, output = model.target_embedding.weight, model.unembedding.weight
        found = len({id(weight) for weight in (model.source_embedding.weight, target, output)})
        expect(found == expected, f"tied = {tied}: {found} embedding matrices, expected {expected}")
        expect(tied == "none" or target is output, f"tied = {tied}: the output does not use the target embedding")


def check_seed(config: ModelConfig) -> None:
    first, again, other = (Transformer(config, seed).store.data for seed in (1, 1, 2))
    expect(np.array_equal(first, again), "the same seed gives different weights")
    expect(not np.array_equal(first, other), "two seeds give the same weights")
    in_float64 = Transformer(config, 1, FLOAT64).store.data
    expect(np.array_equal(first, in_float64.astype("float32")), "float32 and float64 begin with different weights")


# Initial sizes --------------------------------------------------------------------------------------------------------


def check_first_weights(component: str, make: Callable[[], Layer]) -> None:
    """Check the distribution of every parameter of a new layer of d_model = 64."""
    for name, parameter in make().parameters().items():
        data, kind = parameter.data, name.split(".")[-1]
        if kind in ("bias", "beta", "gamma"):
            expect((data == (kind == "gamma")).all(), f"{name} does not begin with {float(kind == 'gamma')}")
            continue
        expected = math.sqrt(2 / sum(data.shape)) if component == "Linear" else 64**-0.5
        deviation, mean = float(data.std()), abs(float(data.mean()))
        problem = f"{name}: standard deviation {deviation:.4f} and mean {mean:.4f}, expected {expected:.4f} and 0"
        expect(abs(deviation / expected - 1) < 0.02 and mean < 0.01, problem)
        if component == "Linear":  # Glorot's, of the fused shape: uniform
            limit, largest = expected * math.sqrt(3), np.abs(data).max()
            expect(0.99 * limit < largest <= limit, f"{name}: numbers up to {largest:.4f}, expected {limit:.4f}")


NEW_LAYERS: dict[str, Callable[[], Layer]] = {
    "Linear": lambda: SelfAttention(64, 4, random()),  # which joins several projections in one
    "Embedding": lambda: Embedding(Embedding.new_weight(500, 64, random(), "float32")),
    "LearnedPositions": lambda: LearnedPositions(500, 64, random()),
    "LayerNorm": lambda: LayerNorm(64),
}
INITIAL_SIZES = CodeProbe(
    "initial sizes",
    "words and positions have variance 1 / d_model, projections Glorot's; gammas are 1, betas and biases 0",
    "a matrix is drawn from N(0, 1), as frameworks do by default; an initialization with the wrong fan-in",
    [(component, partial(check_first_weights, component, make)) for component, make in NEW_LAYERS.items()],
)

# Formulas -------------------------------------------------------------------------------------------------------------


def affine(layer: Any, x: np.ndarray) -> np.ndarray:
    """x W + b"""
    return np.einsum("...d,df->...f", x, layer.weight.data) + (layer.bias.data if layer.bias else 0)


def sinusoids(positions: Any, d_model: int) -> np.ndarray:
    """PE(positions): (..., d_model)"""
    angles = np.asarray(positions)[..., None] / 10000 ** (2 * np.arange(d_model / 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(*angles.shape[:-1], d_model)


def patches(layer: Any, images: np.ndarray) -> np.ndarray:
    """The pixels of each square times W, row by row."""
    P, (_, height, width) = layer.patch_size, images.shape
    corners = [(top, left) for top in range(0, height, P) for left in range(0, width, P)]
    squares = [images[:, top : top + P, left : left + P].reshape(len(images), -1) for top, left in corners]
    return affine(layer.projection, np.stack(squares, axis=1))


def normalized(norm: Any, x: np.ndarray) -> np.ndarray:
    """gamma (x - mean) / sqrt(variance + eps) + beta; without mean and beta, gamma x / sqrt(mean(x^2) + eps)"""
    if not hasattr(norm, "beta"):
        return norm.gamma.data * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + norm.eps)
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return norm.gamma.data * (x - mean) / np.sqrt(variance + norm.eps) + norm.beta.data


def feed_forward(layer: Any, x: np.ndarray) -> np.ndarray:
    h = affine(layer.inner, x)
    gelu = h / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    return affine(layer.outer, gelu if layer.activation == "gelu" else np.maximum(h, 0))


def gated_feed_forward(layer: Any, x: np.ndarray) -> np.ndarray:
    gate, value = np.split(affine(layer.inner, x), 2, axis=-1)
    return affine(layer.outer, gate / (1 + np.exp(-gate)) * value)


def rotated(layer: Any, qk: np.ndarray, first: int = 0) -> np.ndarray:
    """Each pair of coordinates as a complex number, times e^(i angle)."""
    half = qk.shape[-1] // 2
    angles = np.outer(first + np.arange(qk.shape[1]), layer.theta ** (-np.arange(half) / half))
    turned = (qk[..., :half] + 1j * qk[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def with_biases(layer: Any, qk: np.ndarray, first: int = 0) -> np.ndarray:
    """One more coordinate: the slope of each head for q, the position for k; divided by sqrt(d_k + 1) in attention."""
    h, wider = layer.h, math.sqrt(qk.shape[-1] + 1)
    q, k = qk[:, :, :h] * wider / math.sqrt(qk.shape[-1]), qk[:, :, h:]
    slopes = np.array([2 ** (-8 * (i + 1) / h) for i in range(h)]) * wider
    places = first + np.arange(qk.shape[1])
    columns = np.broadcast_to(slopes, q.shape[:-1]), np.broadcast_to(places[:, None], k.shape[:-1])
    return np.concatenate([np.concatenate([x, c[..., None]], axis=-1) for x, c in zip((q, k), columns)], axis=2)


def grouped(layer: Any, x: np.ndarray, mask: Mask = Mask()) -> np.ndarray:
    """Query head i reads the keys and values of head i // (h / h_kv)."""
    widths = [layer.h * layer.d_k, layer.h_kv * layer.d_k, layer.h_kv * layer.d_v]
    parts = np.split(affine(layer.qkv, x), np.cumsum(widths)[:-1], axis=-1)
    q, k, v = (part.reshape(*x.shape[:2], h, -1) for part, h in zip(parts, (layer.h, layer.h_kv, layer.h_kv)))
    if layer.positions:
        qk = call(layer.positions, np.concatenate([q, k], axis=2))
        q, k = qk[:, :, : layer.h], qk[:, :, layer.h :]
    of_query = np.arange(layer.h) // (layer.h // layer.h_kv)
    return multi_head(layer, q, k[:, :, of_query], v[:, :, of_query], mask)


def attended(layer: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Mask = Mask()) -> np.ndarray:
    """Equation 1, one query and one head at a time. A restricted attention (r) reads r positions only."""
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    keys, lengths = np.arange(k.shape[1]), lengths_of(k, mask)
    for b, t, h in np.ndindex(q.shape[:-1]):
        ahead = keys - t - (len(keys) - q.shape[1])  # the queries are the last of the keys
        may = (keys < lengths[b]) & (ahead <= (0 if mask.causal else np.inf))
        if hasattr(layer, "r"):
            may &= np.isin(ahead, window(layer.r, 1, mask.causal))
        weights = np.exp(k[b, may, h] @ q[b, t, h] / math.sqrt(q.shape[-1]))
        y[b, t, h] = weights @ v[b, may, h] / weights.sum() if may.any() else 0
    return y


def lengths_of(x: np.ndarray, mask: Mask) -> np.ndarray:
    """The number of positions of each sequence that are not padding."""
    return np.full(len(x), x.shape[1]) if mask.key_lengths is None else mask.key_lengths


def window(size: int, dilation: int, causal: bool) -> list[int]:
    """The positions that a window reads, counted from its own: as many before as after it, or none after it."""
    first = -dilation * (size - 1)
    return [(first if causal else math.ceil(first / 2)) + dilation * place for place in range(size)]


def gate_heads(layer: Any, heads: np.ndarray) -> np.ndarray:
    return np.stack([xi * heads[:, :, h] for h, xi in enumerate(layer.xi.data)], axis=2)


def heads_of(x: np.ndarray, linear: Any, *widths: int) -> list[np.ndarray]:
    """Split x W + b into heads of each width: (B, ., h, width) for each of `widths`."""
    y = affine(linear, x)
    h = y.shape[-1] // sum(widths)
    parts = np.split(y, np.cumsum([h * width for width in widths])[:-1], axis=-1)
    return [np.stack(np.split(part, h, axis=-1), axis=2) for part in parts]


def multi_head(layer: Any, *q_k_v_mask: Any) -> np.ndarray:
    """Concat(head_1, ..., head_h) W_O + b_O"""
    heads = attended(layer.attention, *q_k_v_mask)
    return affine(layer.output, heads.reshape(*heads.shape[:2], -1))


def self_attention(layer: Any, x: np.ndarray, mask: Mask = Mask()) -> np.ndarray:
    return multi_head(layer, *heads_of(x, layer.qkv, layer.d_k, layer.d_k, layer.d_v), mask)


def cross_attention(layer: Any, x: np.ndarray, memory: np.ndarray, mask: Mask = Mask()) -> np.ndarray:
    (q,), (k, v) = heads_of(x, layer.q, layer.d_k), heads_of(memory, layer.kv, layer.d_k, layer.d_v)
    return multi_head(layer, q, k, v, mask)


def convolution(layer: Any, x: np.ndarray, mask: Mask = Mask()) -> np.ndarray:
    """The sum of x W_i over a window, one position at a time."""
    T, y = x.shape[1], np.zeros_like(x)
    x = x * (np.arange(T) < lengths_of(x, mask)[:, None])[..., None]
    for t in range(T):
        for i, ahead in enumerate(window(layer.k, layer.dilation, mask.causal)):
            if 0 <= t + ahead < T:
                W, read = layer.weight.data[i], x[:, t + ahead]
                y[:, t] += read @ W if W.ndim == 2 else read * W
    return affine(layer.pointwise, y) if hasattr(layer, "pointwise") else y + layer.bias.data


def next_word(layer: Any, x: np.ndarray, memory: np.ndarray, k: np.ndarray, mask: Mask) -> np.ndarray:
    row = np.minimum(k, np.maximum(lengths_of(memory, mask), 1)[:, None] - 1)
    return x + memory[np.arange(len(x))[:, None], row] + sinusoids(row, x.shape[-1])


def call(layer: Layer, *inputs: Any) -> Any:
    """The output of a part, which has a formula of its own."""
    return layer.forward(*inputs)[0]


def stack(stack: Any, x: np.ndarray, *others: Any) -> np.ndarray:
    for layer in stack.layers:
        x = call(layer, x, *others)
    return normalized(stack.final_norm, x) if stack.final_norm else x


FORMULA_OF: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "Linear": ("x W + b", affine),
    "Embedding": (
        "sqrt(d_model) E[ids], 0 for padding",
        lambda layer, ids: math.sqrt(layer.weight.shape[1]) * layer.weight.data[ids] * (ids != PAD)[..., None],
    ),
    "Unembedding": ("y E^T", lambda layer, y: np.einsum("btd,vd->btv", y, layer.weight.data)),
    "PositionalEncoding": ("x + PE", lambda _, x, first=0: x + sinusoids(first + np.arange(x.shape[1]), x.shape[2])),
    "LearnedPositions": ("x + P", lambda layer, x, first=0: x + layer.weight.data[first : first + x.shape[1]]),
    "TokenTypes": ("x + G", lambda layer, x, types: x + layer.weight.data[types]),
    "PatchEmbedding": ("the pixels of each square times W", patches),
    "ClassToken": (
        "the token, then x",
        lambda layer, x: np.concatenate([np.tile(layer.weight.data, (len(x), 1, 1)), x], axis=1),
    ),
    "HeadGate": ("xi heads", gate_heads),
    "GatedAttention": ("xi heads", lambda layer, *inputs: gate_heads(layer.gate, attended(layer.attention, *inputs))),
    "LayerNorm": ("gamma (x - mean) / sqrt(variance + eps) + beta", normalized),
    "AddNorm": ("LayerNorm(x + update)", lambda layer, x, update: normalized(layer, x + update)),
    "FeedForward": ("max(0, x W_1 + b_1) W_2 + b_2", feed_forward),
    "ScaledDotProductAttention": ("softmax(Q K^T / sqrt(d_k)) V", attended),
    "SelfAttention": ("Concat(head_1, ..., head_h) W_O", self_attention),
    "CrossAttention": ("attention with queries from x, keys and values from memory", cross_attention),
    "Convolution": ("sum over the window of x W_i", convolution),
    "SeparableConvolution": ("sum over the window of x W_i", convolution),
    "RestrictedAttention": ("softmax(Q K^T / sqrt(d_k)) V within the window", attended),
    "RestrictedSelfAttention": ("Concat(head_1, ..., head_h) W_O", self_attention),
    "RMSNorm": ("gamma x / sqrt(mean(x^2) + eps)", normalized),
    "SwiGLU": ("(silu(x W_gate) x W_value) W_outer", gated_feed_forward),
    "NoPositions": ("x", lambda _, x: x),
    "RotaryPositions": ("each pair of coordinates turned", rotated),
    "AlibiPositions": ("q and k with one more coordinate", with_biases),
    "GroupedQueryAttention": ("Concat(head_1, ..., head_h) W_O with shared keys and values", grouped),
    "PostNorm": ("LayerNorm(x + sublayer(x))", lambda f, x, *more: normalized(f.norm, x + call(f.sublayer, x, *more))),
    "PreNorm": ("x + sublayer(norm(x))", lambda f, x, *more: x + call(f.sublayer, normalized(f.norm, x), *more)),
    "NextWord": ("x + memory[k] + PE(k)", next_word),
    "EncoderLayer": (
        "self-attention, then feed-forward",
        lambda layer, x, mask: call(layer.feed_forward, call(layer.self_attention, x, mask)),
    ),
    "DecoderLayer": (
        "self-attention, attention to memory, then feed-forward",
        lambda layer, x, memory, mask, of_memory: call(
            layer.feed_forward, call(layer.cross_attention, call(layer.self_attention, x, mask), memory, of_memory)
        ),
    ),
    "Encoder": ("all layers in turn", stack),
    "Decoder": ("all layers in turn", stack),
}
"""Layer -> its formula in words, and a function of the layer and the inputs of forward that computes it."""


def check_formula(case: GradientCase) -> None:
    layer, inputs, rng = case.make()
    if case.layer in FORMULA_OF and rng is None:
        what, formula = FORMULA_OF[case.layer]
        expect_close(f"{what}, {case.description}", layer.forward(*inputs)[0], formula(layer, *inputs))


def check_count_of_tags() -> None:
    found = NextWord(n_tags=3).count(np.array([[2, 6, 4, 8], [2, 7, 7, 3], [5, 4, 6, 10]]))
    expected = np.array([[0, 1, 2, 2], [0, 0, 0, 0], [1, 2, 3, 3]])
    expect(np.array_equal(found, expected), f"the number of tags read so far is {found.tolist()}")


def check_gates() -> None:
    """Open gates change no bit, closed ones leave nothing but the bias of the output, and all go after the block."""
    layer: Any = gradient_cases.cross_attention(random(), 0.0)
    x, memory = random().normal(size=(2, B, T, gradient_cases.D))
    before, names = call(layer, x, memory), list(layer.parameters())
    with gated([layer]) as (gate,):
        expect(np.array_equal(call(layer, x, memory), before), "an open gate changes the output")
        gate.xi.data[...] = 0
        with gated([layer]):  # an open one behind a closed one
            expect((call(layer, x, memory) == layer.output.bias.data).all(), "closed gates leave something")
    same = np.array_equal(call(layer, x, memory), before) and list(layer.parameters()) == names
    expect(same, "a gate stays after its block")


def check_equal_numbers() -> None:
    y, _ = LayerNorm(16).forward(np.full((B, 16), 3.0, "float32"))
    expect(not y.any(), "a row of equal numbers does not give 0: eps belongs under the square root")


def check_large_scores() -> None:
    q, k = 1e3 * random().normal(size=(2, B, T, H, T))
    y, _ = ScaledDotProductAttention().forward(q, k, k, Mask(causal=True))
    expect(np.isfinite(y).all(), "large scores overflow: subtract each row's maximum before exp")


FORMULAS = CodeProbe(
    "formulas",
    "each layer's output is what the formula in the paper gives",
    "a transpose, a term or a scale is missing; heads are split or joined in the wrong order; the mask is missing, "
    "shifted by one, of rows instead of columns, or added after the softmax; another base or exponent in the "
    "positions; queries, keys or values from the wrong side",
    [(component, check) for component, check in of_cases(check_formula) if component in FORMULA_OF]
    + [("GatedAttention", check_gates), ("NextWord", check_count_of_tags)]
    + [("LayerNorm", check_equal_numbers), ("ScaledDotProductAttention", check_large_scores)],
)

# Gradients and the contract of a layer --------------------------------------------------------------------------------


def check_gradient(case: GradientCase) -> float:
    """Use one random direction, since a wrong gradient shows in almost every direction. Returns the error."""
    layer, inputs, rng = case.make()
    try:
        report = gradcheck(layer, *inputs, rng=rng, directions=1)
    except (TypeError, ValueError) as error:  # the layer breaks its contract
        raise CheckFailed(f"{case.description}: {error}") from None
    if not report.passed:
        raise CheckFailed(f"{case.description}: {report.worst}")
    return report.worst.error


GRADIENTS = CodeProbe(
    "gradients",
    "backward is the derivative of forward: it agrees with finite differences to 6 digits, with or without dropout; "
    "forward and backward change nothing except gradients, to which they add in place, and another call between them "
    "makes no difference",
    "backward lacks a term or a factor; a gradient is overwritten instead of added to (`E[ids] += g` loses repeated "
    "words); a layer stores something in `self` from one call to the next; `p.grad = p.grad + g` makes a new array, so "
    "the optimizer, which reads the flat buffer, misses the gradient; `scratchformer gradcheck` shows all",
    of_cases(check_gradient),
)


def check_contract(case: GradientCase) -> None:
    """The layout in memory, and a call before, make no difference; float32 stays float32."""
    layer, inputs, rng = case.make()
    contiguous, gaps = (results(layer, inputs, rng, layout) for layout in (np.ascontiguousarray, every_second))
    for found, expected in zip(gaps, contiguous, strict=True):
        expect_close(f"{case.description}: a second call, on arrays with gaps in memory", found, expected)
    for parameter in layer.parameters().values():
        parameter.data, parameter.grad = parameter.data.astype("float32"), parameter.grad.astype("float32")
    dtypes = {array.dtype for array in results(layer, inputs, rng, to_float32)}
    expect(dtypes <= {np.dtype("float32")}, f"{case.description}: float32 does not stay float32")


def results(
    layer: Layer, inputs: tuple, rng: DropoutKey | None, change: Callable[[np.ndarray], np.ndarray]
) -> list[np.ndarray]:
    """Call forward and backward with changed inputs -> the floats in output and cache, and all gradients."""
    parameters = layer.parameters().values()
    for parameter in parameters:
        parameter.grad[...] = 0
    y, cache = layer.forward(*map_arrays(change, inputs), rng=rng)
    found = [array.copy() for array in arrays_in(y, cache)]  # now: backward empties some caches
    dx = layer.backward(map_arrays(change, random_arrays(seed=0)(y.shape).astype(y.dtype)), cache)
    found += arrays_in(dx, [parameter.grad.copy() for parameter in parameters])
    return [array for array in found if array.dtype.kind == "f"]


def every_second(array: np.ndarray) -> np.ndarray:
    """The same numbers, with gaps between them and the axes laid out in reverse order."""
    return np.repeat(array.T, 2, axis=-1)[..., ::2].T if array.ndim else array


def to_float32(array: np.ndarray) -> np.ndarray:
    """Convert floats to float32; return ids and masks as they are."""
    return array.astype("float32") if array.dtype.kind == "f" else array


def operations() -> list[tuple[str, Callable[[Ops], Any]]]:
    """Calls of operations in `nn/ops.py` on read-only arrays: into these, NumPy lets no operation write."""
    x, kept, scores = np.ones((B, T)), np.ones((B, T), bool), np.ones((B, H, T, T))
    row, saved, ids = x[0], (x, x[:, :1]), np.ones(B, int)
    for array in (x, kept, scores, ids):
        array.flags.writeable = False
    new = partial(np.zeros, T)
    return [
        ("dropout", lambda ops: ops.dropout(x, 0.3, KEY)),
        ("dropout", lambda ops: ops.dropout_backward(x, kept, 0.3)),
        ("Embedding", lambda ops: ops.embedding_backward(x, ids, 2.0, np.zeros((V, T)))),
        ("Linear", lambda ops: ops.linear_backward(x, x, np.eye(T), np.zeros((T, T)), new())),
        ("LayerNorm", lambda ops: ops.layer_norm_backward(x, saved, row, new(), new())),
        ("AddNorm", lambda ops: ops.add_norm_backward(x, (kept, saved), row, new(), new(), 0.3)),
        ("FeedForward", lambda ops: ops.relu(x)),
        ("FeedForward", lambda ops: ops.relu_backward(x, x)),
        ("FeedForward", lambda ops: ops.gelu_backward(x, x)),
        ("ScaledDotProductAttention", lambda ops: ops.masked_softmax(scores, 0.5, np.array([T, 0, 2]), True)),
        ("ScaledDotProductAttention", lambda ops: ops.masked_softmax_backward(scores, scores, 0.5)),
    ]


KEY = DropoutKey(seed=1, step=2, shard=3)
CONTRACT = CodeProbe(
    "layer contract",
    "everything backward needs is in the cache, and a second call gives the same; float32 stays float32; the layout in "
    "memory does not matter; operations change no argument",
    "a layer stores something in `self` from one call to the next; an in-place operation on an argument; a factor is "
    "a float64 NumPy scalar",
    [*of_cases(check_contract), *((component, partial(run, Ops(np))) for component, run in operations())],
)

# Dropout --------------------------------------------------------------------------------------------------------------


def check_dropout_rate() -> None:
    x = np.ones(2**16)
    expect_close("dropout without a key, compared with its input", Ops(np).dropout(x, 0.3, None)[0], x)
    for P_drop in (0.1, 0.3):
        y, kept = Ops(np).dropout(x, P_drop, KEY)
        fraction = float(np.mean(y == 0))
        expect(abs(fraction - P_drop) < 0.01, f"P_drop = {P_drop} drops a fraction of {fraction:.3f}")
        expect_close("kept values times (1 - P_drop), compared with the input", y * (1 - P_drop), y != 0, 1e-4)
        dx = Ops(np).dropout_backward(x, kept, P_drop)
        expect_close("mask in backward, compared with the one in forward", dx, y)


def check_masks_differ() -> None:
    mask = KEY.keep((1000,), 0.3)
    expect(np.array_equal(mask, KEY.keep((1000,), 0.3)), "the same key gives different masks")
    for what, other in [
        ("seeds", KEY._replace(seed=2)),
        ("steps", KEY._replace(step=3)),
        ("micro-batches", KEY._replace(shard=4)),
        ("places", KEY.child(0)),
    ]:
        expect((mask != other.keep((1000,), 0.3)).any(), f"two {what} have the same mask")
    keys = {KEY.child(0), KEY.child(1), KEY.child(0).child(1), KEY.child(1).child(0)}
    expect(len(keys) == 4, "two places have the same key")


PLACES = {
    **dict.fromkeys(("PositionalEncoding", "LearnedPositions", "NoPositions", "AddNorm", "FeedForward", "SwiGLU"), 1),
    **dict.fromkeys(("SelfAttention", "CrossAttention", "GroupedQueryAttention"), 1),
    **{"PostNorm": 2, "PreNorm": 2, "EncoderLayer": 4, "DecoderLayer": 6},
    **{"Encoder": 4 * N, "Decoder": 6 * N, "Transformer": 10 * N + 2},
}
"""The number of places in a layer with dropout, all of which the gradient cases turn on."""


def check_dropout_keys(case: GradientCase) -> None:
    """Each place drops with a key of its own, and without a key nothing is dropped."""
    layer, inputs, rng = case.make()
    if rng is None or case.layer not in PLACES or "N = " in case.description:
        return
    recorder, expected = DropoutRecorder(), PLACES[case.layer]
    with using(recorder):
        layer.forward(*inputs)
        expect(not recorder.keys, "applies dropout without a key")
        layer.forward(*inputs, rng=rng)
    found, different = len(recorder.keys), len(set(recorder.keys))
    expect(found == expected, f"{case.description}: applies dropout at {found} places, expected {expected}")
    expect(different == found, f"{case.description}: two places have the same mask")


DROPOUT = CodeProbe(
    "dropout",
    "without a key nothing is dropped; with a key, a fraction P_drop is dropped and the rest scaled up; every place, "
    "step and micro-batch has its own mask",
    "dropout stays on in translation; the kept values are not scaled by 1 / (1 - P_drop); several places or all steps "
    "share one mask; a place was forgotten",
    [("dropout", check_dropout_rate), ("dropout", check_masks_differ)]
    + [(component, check) for component, check in of_cases(check_dropout_keys) if component in PLACES],
)
