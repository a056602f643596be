"""The exercises of lesson 13: encoder, decoder, the whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from exercises.exercise import Backward, Break, Build, Result, Values
from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.gradient_cases import FLOAT64, SMALL
from scratchformer.nn.parameter import Array, Layer
from scratchformer.nn.residual import PostNorm
from scratchformer.nn.sizes import parameter_counts
from scratchformer.nn.transformer import Decoder, DecoderLayer, Transformer
from support.wires import WIRES, cut, which_wire

SIZES = ModelConfig(vocab_size=11, N=3, d_model=6, d_ff=9, h=2, P_drop=0.0)


def decoder_layers(random: np.random.Generator, N: int) -> list[DecoderLayer]:
    """With biases that are not 0, and gammas that are not 1."""
    layers = [DecoderLayer(SIZES, random, FLOAT64) for _ in range(N)]
    for layer in layers:
        for parameter in layer.parameters().values():
            parameter.data += 0.3 * random.normal(size=parameter.shape)
    return layers


class Given(Layer):
    """A function in the place of a layer. forward(*arrays and masks) -> what the function makes of the arrays, None"""

    def __init__(self, function: Callable[..., Array]) -> None:
        self.function = function

    def forward(self, *inputs: Any, rng: Any = None) -> tuple[Array, Any]:
        return self.function(*(value for value in inputs if hasattr(value, "shape"))), None

    def backward(self, dy: Array, cache: Any) -> Any:
        return self.function(dy)


# 13_decoder_layer -----------------------------------------------------------------------------------------------------


def decoder_layer(x: Array, memory: Array, self_attention: Callable, cross_attention: Callable, feed_forward: Callable,
                  add_norm_1: Callable, add_norm_2: Callable, add_norm_3: Callable) -> Array:
    layer = object.__new__(DecoderLayer)
    layer.self_attention = boxed(self_attention, add_norm_1)
    layer.cross_attention = boxed(cross_attention, add_norm_2)
    layer.feed_forward = boxed(feed_forward, add_norm_3)
    return layer.forward(x, memory)[0]


def boxed(sublayer: Callable, add_norm: Callable) -> PostNorm:
    box = object.__new__(PostNorm)
    box.sublayer, box.norm = Given(sublayer), Given(add_norm)
    return box


def parts_case(B: int, T: int, S: int) -> Callable[[np.random.Generator], Values]:
    def case(random: np.random.Generator) -> Values:
        [layer] = decoder_layers(random, 1)
        boxes = layer.self_attention, layer.cross_attention, layer.feed_forward
        norms: dict[str, Any] = {f"add_norm_{i}": output_of(box.norm) for i, box in enumerate(boxes, 1)}
        return {"layer": layer, "x": random.normal(size=(B, T, 6)), "memory": random.normal(size=(B, S, 6)),
                "self_attention": lambda x: layer.self_attention.sublayer.forward(x, Mask(causal=True))[0],
                "cross_attention": output_of(layer.cross_attention.sublayer),
                "feed_forward": output_of(layer.feed_forward.sublayer), **norms}
    return case


def output_of(layer: Layer) -> Callable[..., Array]:
    return lambda *inputs: layer.forward(*inputs)[0]


def cross_first(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3):
    x = add_norm_2(x, cross_attention(x, memory))
    x = add_norm_1(x, self_attention(x))
    return add_norm_3(x, feed_forward(x))


DECODER_LAYER = Build(
    id="13_decoder_layer",
    title="Put a decoder layer together from its parts",
    function="decoder_layer",
    arguments=("x", "memory", "self_attention", "cross_attention", "feed_forward", "add_norm_1", "add_norm_2",
               "add_norm_3"),
    cases={"2 pairs": parts_case(2, 4, 5), "one word each": parts_case(1, 1, 1)},
    expected=lambda layer, x, memory: layer.forward(x, memory)[0],
    result=Result(
        name="y",
        suspects={
            "cross-attention comes before self-attention; Figure 1 has them the other way round": cross_first,
            "cross-attention reads x instead of the memory: the source never reaches the decoder":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3:
                    decoder_layer(x, memory, self_attention, lambda x, memory: cross_attention(x, x), feed_forward,
                                  add_norm_1, add_norm_2, add_norm_3),
            "the ways around are missing: Add & Norm adds what the sublayer read":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3:
                    decoder_layer(x, memory, self_attention, cross_attention, feed_forward,
                                  *(without_way_around(norm) for norm in (add_norm_1, add_norm_2, add_norm_3))),
            "one Add & Norm stands in all three places; each sublayer has its own gamma and beta":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1:
                    decoder_layer(x, memory, self_attention, cross_attention, feed_forward, *[add_norm_1] * 3),
            "every way around begins at the bottom of the layer; each begins where its own sublayer reads":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3:
                    decoder_layer(x, memory, self_attention, cross_attention, feed_forward,
                                  *(lambda _, update, norm=norm: norm(x, update)
                                    for norm in (add_norm_1, add_norm_2, add_norm_3))),
            "the three sublayers all read the layer's input; each reads what the box below has written":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3:
                    add_norm_3(add_norm_2(add_norm_1(x, self_attention(x)), cross_attention(x, memory)),
                               feed_forward(x)),
            "x is added twice: Add & Norm adds what the sublayer read by itself":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2, add_norm_3:
                    decoder_layer(x, memory, with_input(self_attention), with_input(cross_attention),
                                  with_input(feed_forward), add_norm_1, add_norm_2, add_norm_3),
            "cross-attention is missing: the source never reaches the decoder":
                lambda x, memory, self_attention, feed_forward, add_norm_1, add_norm_3:
                    decoder_layer(x, memory, self_attention, lambda x, memory: 0 * x, feed_forward, add_norm_1,
                                  lambda x, update: x, add_norm_3),
            "the feed-forward network is missing":
                lambda x, memory, self_attention, cross_attention, add_norm_1, add_norm_2, add_norm_3:
                    decoder_layer(x, memory, self_attention, cross_attention, lambda x: 0 * x, add_norm_1, add_norm_2,
                                  lambda x, update: x),
            "the last Add & Norm is missing: what leaves the layer is what the feed-forward network wrote":
                lambda x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2:
                    decoder_layer(x, memory, self_attention, cross_attention, feed_forward, add_norm_1, add_norm_2,
                                  lambda x, update: update)}),
    solution=decoder_layer,
    library=(DecoderLayer.forward, PostNorm.forward),
    hints=(
        "x (B, T, D) keeps its shape in every line. memory (B, S, D) is used in one place only.",
        "Three boxes, one after the other: self-attention, cross-attention, feed-forward. In each, the sublayer reads "
        "x, and Add & Norm gets that same x and what the sublayer wrote.",
        "x = add_norm_1(x, self_attention(x));  x = add_norm_2(x, cross_attention(x, memory));  "
        "y = add_norm_3(x, feed_forward(x))."))


def without_way_around(add_norm: Callable) -> Callable:
    return lambda x, update: add_norm(0 * x, update)


def with_input(sublayer: Callable) -> Callable:
    return lambda x, *others: x + sublayer(x, *others)


# 13_memory_gradient ---------------------------------------------------------------------------------------------------


def decoder_backward(dy: Array, back: tuple[Callable, ...]) -> dict[str, Array]:
    decoder = object.__new__(Decoder)
    decoder.layers, decoder.final_norm = [Given(each) for each in back], None
    dx, dmemory = decoder.backward(dy, ([None] * len(back), None))
    return {"dmemory": dmemory, "dx": dx}


def stack_case(B: int, T: int, S: int) -> Callable[[np.random.Generator], Values]:
    return lambda random: {"layers": tuple(decoder_layers(random, SIZES.N)), "x": random.normal(size=(B, T, 6)),
                           "memory": random.normal(size=(B, S, 6))}


def ways_back(x: Array, memory: Array, layers: tuple[DecoderLayer, ...]) -> tuple[Callable, ...]:
    """For each layer its backward, the cache put in: dy -> dx, dmemory"""
    back = []
    for layer in layers:
        x, cache = layer.forward(x, memory)
        back.append(lambda dy, layer=layer, cache=cache: layer.backward(dy, cache))
    return tuple(back)


def through(x: Array, memory: Array, layers: tuple[DecoderLayer, ...]) -> Array:
    for layer in layers:
        x, _ = layer.forward(x, memory)
    return x


def shares(dy: Array, back: tuple[Callable, ...]) -> list[Array]:
    """What each layer returns for the memory, the first layer's first."""
    found: list[Array] = []
    for each in reversed(back):
        dy, share = each(dy)
        found.insert(0, share)
    return found


def share_of(n: int) -> Callable[..., Array]:
    return lambda dy, back: shares(dy, back)[n]


MEMORY_GRADIENT = Backward(
    id="13_memory_gradient",
    title="Back through the decoder: to its input, and to the memory",
    function="decoder_backward",
    arguments=("dy", "back"),
    cases={"2 pairs": stack_case(2, 3, 4), "one word each": stack_case(1, 1, 1)},
    forward={"back": ways_back, "y": through},
    gradients=(
        Result(
            "dmemory",
            terms={f"the share of layer {n + 1} of 3": share_of(n) for n in range(3)},
            suspects={
                "overwritten: only the share that was computed last, that of layer 1, is left":
                    lambda dy, back: shares(dy, back)[0],
                "every layer is handed dy; each needs the gradient of its own output, which the layer above returns":
                    lambda dy, back: sum(each(dy)[1] for each in back),
                "the layers are walked upwards; the way back begins with the last":
                    lambda dy, back: sum(shares(dy, back[::-1])),
                "a mean over the layers; the ways add up":
                    lambda truth: truth / 3}),
        Result(
            "dx",
            suspects={
                "the input of the last layer, not of the first: go on through the layers below":
                    lambda dy, back: back[-1](dy)[0],
                "every layer is handed dy, and the results are added up; in a stack they are handed on":
                    lambda dy, back: sum(each(dy)[0] for each in back),
                "dy of the first layer alone: dy belongs to the output of the last":
                    lambda dy, back: back[0](dy)[0]})),
    solution=decoder_backward,
    library=(Decoder.backward,),
    hints=(
        "back[n](dy) returns two arrays: the gradient of layer n's input, (B, T, D), and a share for the memory, "
        "(B, S, D). back[0] is the lowest layer.",
        "Go from the last layer to the first. What a layer returns for its input is what the next one is handed. Every "
        "layer read the same memory, so its shares are summed.",
        "dmemory = 0;  for each in reversed(back): dy, share = each(dy);  dmemory = dmemory + share.  At the end dx is "
        "dy."))

# 13_count -------------------------------------------------------------------------------------------------------------


def count(V: int, N: int, D: int, F: int, h: int, d_k: int, d_v: int, tied: bool) -> int:
    config = ModelConfig(vocab_size=V, N=N, d_model=D, d_ff=F, h=h, d_k=d_k, d_v=d_v, tied="all" if tied else "none")
    return sum(parameter_counts(config).values())


def sizes_case(*sizes: int, tied: bool = True) -> Callable[[np.random.Generator], Values]:
    return lambda random: dict(zip(("V", "N", "D", "F", "h", "d_k", "d_v"), sizes)) | {"tied": tied}


def attention_matrices(D: int, h: int, d_k: int, d_v: int) -> int:
    return 2 * D * h * d_k + 2 * D * h * d_v


def attention_biases(D: int, h: int, d_k: int, d_v: int) -> int:
    return 2 * h * d_k + h * d_v + D


COUNT = Build(
    id="13_count",
    title="Count the parameters of a model from its sizes",
    function="count",
    arguments=("V", "N", "D", "F", "h", "d_k", "d_v", "tied"),
    cases={"base": sizes_case(37_000, 6, 512, 2048, 8, 64, 64), "row B1": sizes_case(37_000, 6, 512, 2048, 8, 16, 64),
           "small": sizes_case(13, 2, 6, 10, 3, 5, 7),
           "small, not tied": sizes_case(13, 3, 6, 10, 2, 5, 7, tied=False)},
    expected=lambda V, N, D, F, h, d_k, d_v, tied: np.array(
        sum(parameter.data.size for parameter in small_model(V, N, D, F, h, d_k, d_v, tied).parameters().values())
        if V < 100 else count(V, N, D, F, h, d_k, d_v, tied)),
    result=Result(
        name="the number",
        suspects={
            "the decoder has two attentions in each layer, the encoder one: 3 N in all":
                lambda truth, N, D, h, d_k, d_v:
                    truth - N * (attention_matrices(D, h, d_k, d_v) + attention_biases(D, h, d_k, d_v)),
            "the biases of the attentions are missing: h d_k twice, h d_v, D":
                lambda truth, N, D, h, d_k, d_v: truth - 3 * N * attention_biases(D, h, d_k, d_v),
            "the biases of the feed-forward networks are missing: F and D":
                lambda truth, N, D, F: truth - 2 * N * (F + D),
            "a LayerNorm has two vectors, gamma and beta": lambda truth, N, D: truth - 5 * N * D,
            "five LayerNorms in a pair of layers: two in the encoder's, three in the decoder's":
                lambda truth, N, D: truth - N * 2 * D,
            "the LayerNorms are missing": lambda truth, N, D: truth - 5 * N * 2 * D,
            "the matrix E is counted three times; where it is tied it is one":
                lambda truth, V, D, tied: truth + 2 * V * D * tied,
            "E is counted once; where it is not tied there are three matrices":
                lambda truth, V, D, tied: truth - 2 * V * D * (not tied),
            "the heads have the width d_model / h; here d_k and d_v are given":
                lambda V, N, D, F, h, tied: count(V, N, D, F, h, D // h, D // h, tied),
            "h is left out: d_k and d_v are the widths of one head":
                lambda V, N, D, F, d_k, d_v, tied: count(V, N, D, F, 1, d_k, d_v, tied),
            "d_v is taken for d_k": lambda V, N, D, F, h, d_k, tied: count(V, N, D, F, h, d_k, d_k, tied)}),
    solution=count,
    library=(parameter_counts,),
    hints=(
        "The result is a whole number. Count one attention, one feed-forward network and one LayerNorm first; then how "
        "many of each there are in N encoder layers and N decoder layers.",
        "An attention has four matrices and four biases; a feed-forward network two and two; a LayerNorm gamma and "
        "beta. A pair of layers has 3 attentions, 2 networks, 5 norms. E is there once, or three times if not tied.",
        "A = 2 D h d_k + 2 D h d_v + 2 h d_k + h d_v + D;  n = (1 or 3) V D + N (3 A + 2 (2 D F + F + D) + 10 D)."))


def small_model(V: int, N: int, D: int, F: int, h: int, d_k: int, d_v: int, tied: bool) -> Transformer:
    return Transformer(ModelConfig(vocab_size=V, N=N, d_model=D, d_ff=F, h=h, d_k=d_k, d_v=d_v,
                                   tied="all" if tied else "none"))


# 13_find_the_wire -----------------------------------------------------------------------------------------------------

ANSWERS = ("none", *(wire for wire in WIRES if wire != "encoder attention"))
"""That the encoder's attention is cut cannot be told by changes of one word."""


def misjudged(answer: Callable) -> str | None:
    """What is wrong with an answer to the question which wire is cut; None if nothing is."""
    wrong = []
    for wire in ANSWERS:
        for seed, config in enumerate((SMALL, replace(SMALL, norm="pre"))):
            model = Transformer(config, seed, FLOAT64)
            said = answer(output_of(model if wire == "none" else cut(model, wire)))
            if not isinstance(said, str) or said not in ANSWERS:
                return f"it returns {said!r:.40}, and should return one of {', '.join(map(repr, ANSWERS))}"
            if said != wire and (verdict := f"where {wire!r} is right it says {said!r}") not in wrong:
                wrong.append(verdict)
                if wire == "target positions":
                    wrong.append("(two target words that change their positions move the logits even without position "
                                 "vectors, because the causal mask lets each position see other words before it)")
    return "; ".join(wrong).replace("; (", " (") or None


FIND_THE_WIRE = Break(
    id="13_find_the_wire",
    title="Tell which wire of a model is cut, from its outputs alone",
    function="which_wire",
    arguments=("logits",),
    complaint=misjudged,
    solution=which_wire,
    library=(which_wire,),
    hints=(
        "logits(source_ids (B, S), target_in_ids (B, T)) -> (B, T, 11). One pair is enough: B = 1, four words each, no "
        "word twice. Compare with 1e-9: rounding is no difference.",
        "Each wire lets something through. Change one word of the source, or the last word of the target, or the "
        "second one; exchange two source words; add padding to the source; write a target of one word repeated. Which "
        "logits change, and where should they?",
        "memory: no source word matters. causal mask: the last target word moves earlier logits. decoder attention: "
        "the second word does not move the last logits. source positions: exchanging words moves nothing. padding "
        "mask: padding moves something. target positions: logits of a repeated word are equal everywhere."))

EXERCISES = (DECODER_LAYER, MEMORY_GRADIENT, COUNT, FIND_THE_WIRE)
