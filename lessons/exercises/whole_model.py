"""The functions of lessons 12 to 14 that a model is put together from: its weights, encoder, decoder and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from exercises.function import Call, Function, Mistake
from exercises.halves import Slip
from exercises.observe import Halves, Plain
from exercises.source import ours


def require(holds: Any, otherwise: str) -> None:
    """Raise Slip with this sentence if something does not hold."""
    if not holds:
        raise Slip(otherwise)


# dropout --------------------------------------------------------------------------------------------------------------

ONE_FOR_EACH_POSITION = "one number decides about a whole vector; each element of x is dropped by itself"
ONE_FOR_ALL = {
    0: "all sentences lose the same elements; each element of x is dropped by itself: draw numbers of the shape of x",
    1: "all positions lose the same elements; each element of x is dropped by itself: draw numbers of the shape of x",
    2: ONE_FOR_EACH_POSITION,
}
"""Messages by the axis along which the same elements are dropped."""
SAME_AGAIN = "two calls drop the same elements: draw from rng, which is made once, at the top of the file"
NOT_BY_RNG = "what is dropped does not follow from rng: draw from it, so that `check` can repeat the same dropout"
X_ITSELF = "x after dropout is returned; return only what x is multiplied with, which backward needs, too"
WIDENED = "float32 becomes float64, and so does all that is calculated from it: end with .astype(x.dtype)"


def observe_dropout(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Observe `dropout`: which numbers it drops is chance, so what holds for any choice is compared."""
    x, P_drop = call.args
    module.rng = np.random.default_rng(seed)  # type: ignore[attr-defined]
    keep, again = (module.dropout(x.copy(), P_drop) for _ in range(2))
    module.rng = np.random.default_rng(seed)  # type: ignore[attr-defined]
    repeated = module.dropout(x.copy(), P_drop)
    require(keep is not None, "it returns None: is the return missing?")
    try:
        keep = np.broadcast_to(np.asarray(keep, dtype=float), x.shape)
    except ValueError:
        raise Slip(f"the shape is {np.shape(keep)}, and should be that of x, {x.shape}") from None
    for axis, why in ONE_FOR_ALL.items():
        require(not P_drop or x.shape[axis] == 1 or np.ptp(keep, axis=axis).any(), why)
    share = float(np.mean(keep == 0))
    yield "the share of zeros", P_drop if abs(share - P_drop) < 0.05 else share
    multiples = np.unique(np.divide(keep, x)[keep != 0].round(9))
    require(not P_drop or len(multiples) > 1, X_ITSELF)
    yield "the number that is not 0", np.unique(keep[keep != 0].round(9))
    require(not P_drop or not np.array_equal(keep, again), SAME_AGAIN)
    require(not P_drop or np.array_equal(keep, repeated), NOT_BY_RNG)
    require(np.result_type(module.dropout(x.astype("float32"), P_drop), np.float32(1)) == np.float32, WIDENED)


def dropped(*shape: int, P_drop: float) -> Callable:
    return lambda random, file: Call(random.normal(size=shape), P_drop)


DROPOUT = Function(
    name="dropout",
    lesson="14",
    note="draws with rng; returns what to multiply x with, an array of the shape and dtype of x (1.0 will do if P_drop "
    "is 0)",
    cases={
        "P_drop 0.2": dropped(10, 20, 50, P_drop=0.2),
        "one position, P_drop 0.75": dropped(1, 1, 10000, P_drop=0.75),
        "P_drop 0": dropped(2, 3, 4, P_drop=0.0),
    },
    observe=observe_dropout,
    hints=(
        "Draw a number between 0 and 1 for each element of x. An element is dropped if its number is below P_drop. "
        "Those "
        "that are kept become larger, so that a sum keeps its mean.",
        "(rng.random(x.shape) >= P_drop) / (1 - P_drop), in the dtype of x; 1.0 if P_drop is 0",
    ),
    mistakes=(
        Mistake(
            "what is kept is not made larger: divide by 1 - P_drop, so that a sum keeps its mean",
            ("(x.dtype) / (1 - P_drop)", "(x.dtype)"),
        ),
        Mistake(
            "what is kept is divided by P_drop; 1 - P_drop is the share that is kept",
            ("(x.dtype) / (1 - P_drop)", "(x.dtype) / P_drop"),
        ),
        Mistake(
            "kept and dropped are exchanged: an element is dropped with probability P_drop, so if its number is "
            "below it",
            (">= P_drop", "< P_drop"),
        ),
        Mistake(
            "what is kept is multiplied by 1 - P_drop; divide by it",
            ("(x.dtype) / (1 - P_drop)", "(x.dtype) * (1 - P_drop)"),
        ),
        Mistake(ONE_FOR_EACH_POSITION, ("rng.random(x.shape)", "rng.random((*x.shape[:-1], 1))")),
        Mistake(ONE_FOR_ALL[0], ("rng.random(x.shape)", "np.tile(rng.random((1, *x.shape[1:])), (len(x), 1, 1))")),
        Mistake(ONE_FOR_ALL[1], ("(rng.random(x.shape)", "(np.ones(x.shape) * rng.random((len(x), 1, x.shape[-1]))")),
        Mistake(X_ITSELF, ("return (", "return x * (")),
        Mistake(SAME_AGAIN, ("rng.random(x.shape)", "np.random.default_rng(0).random(x.shape)")),
        Mistake(NOT_BY_RNG, ("rng.random(x.shape)", "np.random.default_rng().random(x.shape)")),
        Mistake(WIDENED, (".astype(x.dtype)", ".astype(float)")),
    ),
)

# log_softmax ----------------------------------------------------------------------------------------------------------


def scores(*shape: int, change: Callable = lambda x: x) -> Callable:
    return lambda random, file: Call(change(random.normal(size=shape)))


def forbidden(x: np.ndarray) -> np.ndarray:
    x[..., 1::2] = -np.inf
    return x


LOG_SOFTMAX = Function(
    name="log_softmax",
    lesson="14",
    shapes={"x": "nv", "log p": "nv"},
    note="the last axis is the vocabulary, whatever stands before it",
    cases={
        "three words": scores(3, 5),
        "one word, four axes": scores(2, 1, 1, 4),
        "scores in the thousands": scores(3, 4, change=lambda x: 1000 * x),
        "rows far apart": scores(3, 4, change=lambda x: x + [[-2000], [0], [2000]]),
        "forbidden words, with the score -inf": scores(2, 6, change=forbidden),
    },
    observe=Plain("log p"),
    hints=(
        "The logarithm of a quotient is a difference: x minus the logarithm of the sum of exp(x). If the largest "
        "score of "
        "each row is subtracted from the row first, nothing changes, and exp can't overflow.",
        "x = x - max(x);  log p = x - log(total(exp(x))), both over the last axis, which is kept with length 1",
    ),
    mistakes=(
        Mistake(
            "exp overflows where scores are large: subtract the largest score of each row first",
            ("x = x - x.max(axis=-1, keepdims=True)", "pass"),
        ),
        Mistake(
            "the largest score of the whole array is subtracted, and rows far below it become 0: subtract that of "
            "each row",
            ("x.max(axis=-1, keepdims=True)", "x.max()"),
        ),
        Mistake(
            "the sum runs over the whole array; each row has a sum of its own, over the last axis",
            ("total(np.exp(x))", "np.exp(x).sum()"),
        ),
        Mistake(
            "the largest score is subtracted inside exp alone: then subtract it from x outside, too",
            ("x = x - x.max(axis=-1, keepdims=True)", "largest = x.max(axis=-1, keepdims=True)"),
            ("total(np.exp(x))", "total(np.exp(x - largest))"),
        ),
        Mistake("it is p, not log p", ("return x - np.log(total(np.exp(x)))", "return np.exp(x) / total(np.exp(x))")),
        Mistake(
            "the logarithm of the sum is missing: it is what makes the probabilities sum to 1",
            (" - np.log(total(np.exp(x)))", ""),
        ),
        Mistake(
            "p is 0 where a score is far below the largest, and log p becomes -inf: write it as a difference, "
            "without p",
            ("x - np.log(total(np.exp(x)))", "np.log(np.exp(x) / total(np.exp(x)))"),
        ),
        Mistake(
            "the sum has lost its axis: keep it with length 1, so that each row finds its own sum",
            ("total(np.exp(x))", "np.exp(x).sum(axis=-1)"),
        ),
        Mistake(
            "the sum runs over axis 1, which is the last one only in a matrix; the vocabulary is axis -1",
            ("x.max(axis=-1", "x.max(axis=1"),
            ("total(np.exp(x))", "np.exp(x).sum(axis=1, keepdims=True)"),
        ),
        Mistake("the sum is subtracted, not its logarithm", ("np.log(total(np.exp(x)))", "total(np.exp(x))")),
        Mistake("it is a mean of exp(x), where the sum is meant", ("total(np.exp(x))", "mean(np.exp(x))")),
    ),
)

# cross_entropy --------------------------------------------------------------------------------------------------------


def predictions(n: int, V: int, eps_ls: float, scale: float = 1) -> Callable:
    """A case of `cross_entropy`, in which the first of several words has the id 0."""

    def case(random, file):
        words = random.integers(V, size=n)
        words[: n - 1][:1] = 0
        return Call(scale * random.normal(size=(n, V)), words, eps_ls)

    return case


CROSS_ENTROPY = Function(
    name="cross_entropy",
    lesson="14",
    shapes={"logits": "nv", "words": "n"},
    note="words are the right ones; loss is one number; return dlogits",
    cases={
        "four predictions": predictions(4, 5, 0.1),
        "one prediction": predictions(1, 3, 0.3),
        "no smoothing": predictions(3, 4, 0.0),
        "logits in the thousands": predictions(2, 6, 0.2, scale=1000),
    },
    observe=Halves("dlogits", y="loss"),
    hints=(
        "q is what the model should say: eps_ls is shared out evenly among all V words, and the right word gets "
        "1 - eps_ls besides. The loss is the mean over the predictions. Because q sums to 1, the gradient of a "
        "prediction "
        "is short.",
        "q = eps_ls / V, and 1 - eps_ls more at the right word;  loss = - sum(q log p) / n;  dlogits = (p - q) "
        "dloss / n",
    ),
    mistakes=(
        Mistake(
            "eps_ls is shared out among the V - 1 wrong words; here all V words get eps_ls / V, the right one, too",
            ("eps_ls / logits.shape[-1]", "eps_ls / (logits.shape[-1] - 1)"),
            ("+= 1 - eps_ls", "= 1 - eps_ls"),
        ),
        Mistake(
            "the right word lacks its share: q is 1 - eps_ls + eps_ls / V there", ("+= 1 - eps_ls", "= 1 - eps_ls")
        ),
        Mistake("nothing is taken from the right word: q must sum to 1", ("+= 1 - eps_ls", "+= 1")),
        Mistake(
            "there is no smoothing: q is eps_ls / V for every word, and 1 - eps_ls more for the right one",
            ("np.full_like(logits, eps_ls / logits.shape[-1])", "np.zeros_like(logits)"),
            ("+= 1 - eps_ls", "+= 1"),
        ),
        Mistake(
            "it is the sum over the predictions; divide by their number n",
            ("log_p).sum() / len(words)", "log_p).sum()"),
        ),
        *(
            Mistake(
                "predictions whose right word has id 0 are left out; here 0 is a word like any other: `loss_of` leaves "
                "padding out",
                ("-(q * log_p).sum() / len(words)", f"-(q * log_p)[words != 0].sum() / {n}"),
            )
            for n in ("len(words)", "(words != 0).sum()")
        ),
        Mistake(
            "every prediction gets the right words of all predictions: q[n, words] is one word for each",
            ("q[n, words]", "q[:, words]"),
        ),
        Mistake(
            "it is one loss for each prediction; take their mean",
            ("-(q * log_p).sum() / len(words)", "-(q * log_p).sum(axis=-1)"),
        ),
        Mistake(
            "it is divided by n V; a mean over the predictions divides by n",
            ("log_p).sum() / len(words)", "log_p).sum() / logits.size"),
        ),
        Mistake(
            "1 / n is missing on the way back: the loss is a mean over n predictions",
            ("* dloss / len(words)", "* dloss"),
        ),
        Mistake("it uses log p where p is meant: dlogits is (p - q) dloss / n", ("(np.exp(log_p) - q)", "(log_p - q)")),
        Mistake(
            "dloss is left out: the gradient of the loss is a factor of every gradient",
            ("* dloss / len(words)", "/ len(words)"),
        ),
        Mistake(
            "q on the way back is without smoothing; it is the q of the loss",
            ("(np.exp(log_p) - q)", "(np.exp(log_p) - np.eye(logits.shape[-1])[words])"),
        ),
    ),
)

# encode, decode, loss_of ----------------------------------------------------------------------------------------------


def small_model(random: np.random.Generator, file: ModuleType, N: int, without: str = "none") -> SimpleNamespace:
    """In float64, with gamma not 1 and beta not 0, which would hide mistakes.

    without  "encoder" or "decoder": it is not used, and its weights are not compared
    """
    file.rng = random  # type: ignore[attr-defined]
    model = file.new_model(V=8, d_model=4, d_ff=6, h=2, N=N, dtype="float64")
    for w in model.weights.values():
        w.data += 0.5 * random.normal(size=w.data.shape)
    model.weights = {name: w for name, w in model.weights.items() if not name.startswith(without)}
    return model


def sentences(random: np.random.Generator, *lengths: int, begin: tuple[int, ...] = ()) -> np.ndarray:
    """Random words with </s> behind each sentence, padded to the longest; begin: the ids before it."""
    ids = np.zeros((len(lengths), len(begin) + max(lengths)), int)
    for row, length in zip(ids, lengths):
        row[: len(begin) + length] = [*begin, *random.integers(3, 8, size=length - 1), 1]
    return ids


def encoded(*lengths: int, N: int = 1, P_drop: float = 0.0) -> Callable:
    """A case of `encode`: the lengths of the sentences."""

    def case(random, file):
        source = sentences(random, *lengths)
        padding = {"padding": ("bs", source == 0)} if (source == 0).any() else {}
        return Call(source, small_model(random, file, N, without="decoder"), P_drop, where=padding)

    return case


ENCODE = Function(
    name="encode",
    lesson="13",
    shapes={"source": "bs", "x": "bsd"},
    note="model has E, and encoder: for each layer (weights of attention, weights of feed_forward), by their names",
    cases={
        "two sentences of one length": encoded(3, 3),
        "one word": encoded(1),
        "padding": encoded(4, 2),
        "two layers, dropout": encoded(3, 2, N=2, P_drop=0.25),
    },
    observe=Halves(None, y="x"),
    hints=(
        "embed, then for each layer two times add_and_norm: around multi_head_attention, in which x attends to "
        "itself, and "
        "around feed_forward. Keep each backward in a list. Backward calls them from the last to the first.",
        "mask = (source != PAD)[:, None, None, :]. The way back: dx = sum(backward(dx)) for each backward, because "
        "attention returns dx and dmemory and x was both; embed_backward(dx) at the end.",
    ),
    mistakes=(
        Mistake(
            "padding is seen: the mask must be False where source is PAD", ("(source != PAD)[", "(source == source)[")
        ),
        Mistake("the mask is the wrong way round: True where there is a word", ("source != PAD", "source == PAD")),
        Mistake(
            "the mask has two axes; it stands beside scores of b h t s, so it has four: (b, 1, 1, s)",
            ("(source != PAD)[:, None, None, :]", "source != PAD"),
        ),
        Mistake(
            "the mask hides the words that ask; padding must not be seen, so the last axis of the mask is s",
            ("[:, None, None, :]", "[:, None, :, None]"),
        ),
        Mistake(
            "feed_forward comes before attention; Figure 1 has them the other way round",
            (
                "x, attention_backward = add_and_norm(P_drop, multi_head_attention, x, x, mask, **attn)\n"
                "        x, ffn_backward = add_and_norm(P_drop, feed_forward, x, **ffn)",
                "x, attention_backward = add_and_norm(P_drop, feed_forward, x, **ffn)\n"
                "        x, ffn_backward = add_and_norm(P_drop, multi_head_attention, x, x, mask, **attn)",
            ),
        ),
        Mistake("P_drop does not reach embed", ("embed(source, model.E, P_drop)", "embed(source, model.E, 0.0)")),
        Mistake(
            "P_drop does not reach add_and_norm",
            ("add_and_norm(P_drop, multi_head_attention", "add_and_norm(0.0, multi_head_attention"),
            ("add_and_norm(P_drop, feed_forward", "add_and_norm(0.0, feed_forward"),
        ),
        Mistake(
            "only one layer is used; x goes through all layers of model.encoder, one after the other",
            ("in model.encoder:", "in model.encoder[-1:]:"),
        ),
        Mistake(
            "the layers are walked upwards on the way back: begin with the last backward",
            ("in reversed(backwards)", "in backwards"),
        ),
        Mistake(
            "a tuple is taken for dx: backward of add_and_norm returns a tuple, whose sum is dx",
            ("sum(backward(dx))", "backward(dx)"),
        ),
        Mistake(
            "the gradient of memory is left out: in self-attention x is memory, too, so dx is the sum of both",
            ("sum(backward(dx))", "backward(dx)[0]"),
        ),
        Mistake(
            "the gradient does not reach E: call embed_backward at the end", ("return embed_backward(dx)", "return")
        ),
    ),
)


def decoded(
    target_lengths: tuple[int, ...], source_lengths: tuple[int, ...], N: int = 1, P_drop: float = 0.0
) -> Callable:
    """A case of `decode`: the lengths of the sentences."""

    def case(random, file):
        source, target = sentences(random, *source_lengths), sentences(random, *target_lengths, begin=(2,))[:, :-1]
        memory = random.normal(size=(*source.shape, 4))
        padding = {"padding of the source": ("bs", source == 0)} if (source == 0).any() else {}
        if (target == 0).any():
            padding["padding of the target"] = "bt", target == 0
        return Call(target, memory, source, small_model(random, file, N, without="encoder"), P_drop, where=padding)

    return case


DECODE = Function(
    name="decode",
    lesson="13",
    shapes={"target": "bt", "memory": "bsd", "source": "bs", "x": "btd"},
    note="model.decoder: for each layer the weights of self-attention, cross-attention, feed_forward; return dmemory",
    cases={
        "source longer than target": decoded((3, 3), (5, 5)),
        "one word": decoded((1,), (1,)),
        "padding": decoded((3, 2), (2, 4)),
        "two layers, dropout": decoded((2, 3), (2, 2), N=2, P_drop=0.25),
    },
    observe=Halves("dmemory", y="x"),
    hints=(
        "Each layer has three parts: x attends to itself, but not to later words; x attends to memory, but not to "
        "padding "
        "of the source; feed_forward. Backward goes from the last part to the first. Every layer has read memory, so "
        "dmemory is a sum over the layers.",
        "mask of the first: np.tri(t, dtype=bool); of the second: (source != PAD)[:, None, None, :]. The way back "
        "through "
        "a layer: dx = sum(ffn_backward(dx)); dx, dshare = cross_backward(dx); dmemory = dmemory + dshare; "
        "dx = sum(self_backward(dx)).",
    ),
    mistakes=(
        Mistake(
            "later words are seen: in self-attention t may see only 0 to t",
            ("np.tri(target.shape[1], dtype=bool)", "np.ones((1, 1), dtype=bool)"),
        ),
        Mistake(
            "t does not see itself: in self-attention t sees 0 to t, itself included",
            ("np.tri(target.shape[1], dtype=bool)", "np.tri(target.shape[1], k=-1, dtype=bool)"),
        ),
        Mistake(
            "the mask is transposed: t sees the words after it and not those before",
            ("np.tri(target.shape[1], dtype=bool)", "np.tri(target.shape[1], dtype=bool).T"),
        ),
        Mistake(
            "padding of the source is seen: the mask of cross-attention must be False where source is PAD",
            ("(source != PAD)[", "(source == source)["),
        ),
        Mistake(
            "the two masks are exchanged: self-attention must not see later words, cross-attention no padding of "
            "the source",
            ("x, x, past,", "x, x, mask,"),
            ("x, memory, mask,", "x, memory, past,"),
        ),
        Mistake(
            "x and memory are exchanged in cross-attention: x asks (queries), memory answers (keys and values)",
            ("x, memory, mask,", "memory, x, mask,"),
        ),
        Mistake(
            "cross-attention does not read memory: the source never reaches the decoder",
            ("x, memory, mask,", "x, x, past,"),
            (
                "dx, dshare = cross_backward(sum(ffn_backward(dx)))",
                "dx, dshare = sum(cross_backward(sum(ffn_backward(dx)))), 0",
            ),
        ),
        Mistake(
            "cross-attention comes before self-attention; Figure 1 has them the other way round",
            (
                "x, self_backward = add_and_norm(P_drop, multi_head_attention, x, x, past, **attn)\n"
                "        x, cross_backward = add_and_norm(P_drop, multi_head_attention, x, memory, mask, **cross)",
                "x, cross_backward = add_and_norm(P_drop, multi_head_attention, x, memory, mask, **cross)\n"
                "        x, self_backward = add_and_norm(P_drop, multi_head_attention, x, x, past, **attn)",
            ),
            ("dx, dshare = cross_backward(sum(ffn_backward(dx)))", "dx = sum(self_backward(sum(ffn_backward(dx))))"),
            (
                "dx, dmemory = sum(self_backward(dx)), dmemory + dshare",
                "dx, dshare = cross_backward(dx)\n        dmemory = dmemory + dshare",
            ),
        ),
        Mistake(
            "the mask of cross-attention is made from target; it hides padding of the source",
            ("(source != PAD)[", "(target != PAD)["),
        ),
        Mistake(
            "dx and dmemory are exchanged: cross_backward returns the gradient of x, then that of memory",
            ("dx, dshare = cross_backward", "dshare, dx = cross_backward"),
        ),
        Mistake(
            "a tuple is taken for dx: backward of add_and_norm returns a tuple, also around feed_forward",
            ("sum(ffn_backward(dx))", "ffn_backward(dx)"),
        ),
        Mistake(
            "it is only the share of the last layer; every layer reads memory, so their shares are added",
            ("dmemory + dshare", "dmemory if dmemory.any() else dshare"),
        ),
        Mistake(
            "the share of each layer replaces that of the layer above; every layer reads memory, so they are added",
            ("dmemory + dshare", "dshare"),
        ),
        Mistake(
            "the layers are walked upwards on the way back: begin with the last one",
            ("in reversed(backwards)", "in backwards"),
        ),
        Mistake(
            "in self-attention x is memory, too: the gradient on the way back is the sum of both that "
            "self-attention returns",
            ("sum(self_backward(dx))", "self_backward(dx)[0]"),
        ),
        Mistake("the gradient does not reach E: call embed_backward at the end", ("\n    embed_backward(dx)", "")),
    ),
)


LONGEST = 8
"""No target has more positions."""


class Loss(Halves):
    """Let dropout at a position not depend on how many come after it: `decode` may read a target whole or cut."""

    def forward(self, module: ModuleType, function: Function, call: Call, seed: int) -> tuple[Any, Any]:
        def dropout(x: np.ndarray, P_drop: float) -> Any:
            b, t, d = x.shape
            keep = module.rng.random((b, LONGEST, d)) >= P_drop
            return keep[:, :t] / (1 - P_drop)

        module.dropout = dropout  # type: ignore[attr-defined]
        return super().forward(module, function, call, seed)


def predicted(
    target_lengths: tuple[int, ...], source_lengths: tuple[int, ...], N: int = 1, **settings: float
) -> Callable:
    """A case of `loss_of`: the lengths of the sentences."""
    return lambda random, file: Call(
        sentences(random, *source_lengths), sentences(random, *target_lengths, begin=(2,)),
        small_model(random, file, N), **settings)  # fmt: skip


LOSS_OF = Function(
    name="loss_of",
    lesson="14",
    shapes={"source": "bs", "target": "bt"},
    note="target is BOS a b EOS PAD ...; loss is one number; its backward returns nothing that is used",
    cases={
        "two sentences of one length": predicted((3, 3), (5, 5)),
        "one word": predicted((1,), (1,)),
        "padding": predicted((4, 2), (2, 3), eps_ls=0.3),
        "padding, dropout": predicted((2, 3), (2, 2), P_drop=0.25),
    },
    observe=Loss(None, y="loss"),
    hints=(
        "The decoder reads the target without its last id, and predicts the target without its first. Padding is not a "
        "prediction: only positions whose next word is not PAD have logits. Backward goes through the logits, the "
        "decoder "
        "and, with the gradient of memory, the encoder.",
        "is_word = target[:, 1:] != PAD; logits = x[is_word] E^T by linear('nd,vd->nv', ...); dx is zero except "
        "dx[is_word] = logits_backward(loss_backward(dloss)); encode_backward(decode_backward(dx)).",
    ),
    mistakes=(
        Mistake(
            "padding counts as a prediction: only positions whose next word is not PAD have a loss",
            ("is_word = target[:, 1:] != PAD", "is_word = target[:, 1:] == target[:, 1:]"),
        ),
        Mistake(
            "each word is predicted from itself: the decoder reads target[:, :-1], and predicts target[:, 1:]",
            ("decode(target[:, :-1],", "decode(target,"),
            ("is_word = target[:, 1:] != PAD", "is_word = target != PAD"),
            ("target[:, 1:][is_word]", "target[is_word]"),
        ),
        Mistake(
            "each position predicts the word that it reads; it should predict the next one, target[:, 1:]",
            ("is_word = target[:, 1:] != PAD", "is_word = target[:, :-1] != PAD"),
            ("target[:, 1:][is_word]", "target[:, :-1][is_word]"),
        ),
        Mistake(
            "the decoder reads the words that it should predict: it reads target[:, :-1], from BOS on",
            ("decode(target[:, :-1],", "decode(target[:, 1:],"),
        ),
        Mistake(
            "target is not cut: the decoder reads it without the last id, and predicts it without the first",
            ("decode(target[:, :-1],", "decode(target,"),
        ),
        Mistake(
            "padding is looked for in the words read, target[:, :-1], and so EOS is read as the last word, which "
            "predicts "
            "PAD; it belongs to the words predicted, target[:, 1:]",
            ("is_word = target[:, 1:] != PAD", "is_word = target[:, :-1] != PAD"),
        ),
        Mistake(
            "cross_entropy is given all positions; it wants a row for each prediction: logits (n, v) and words "
            "(n), where "
            "is_word is True",
            ('linear("nd,vd->nv", x[is_word], model.E)', 'linear("btd,vd->btv", x, model.E)'),
            ("target[:, 1:][is_word]", "target[:, 1:]"),
        ),
        Mistake("eps_ls does not reach cross_entropy", ("[is_word], eps_ls)", "[is_word], 0.1)")),
        Mistake("P_drop does not reach the decoder", ("memory, source, model, P_drop)", "memory, source, model, 0.0)")),
        Mistake("P_drop does not reach the encoder", ("encode(source, model, P_drop)", "encode(source, model, 0.0)")),
        Mistake(
            "it is the sum over the predictions; cross_entropy has given their mean",
            ("dloss = yield loss", "dloss = yield loss * is_word.sum()"),
        ),
        Mistake(
            "the share of the logits is missing: they are made with E, too, so their backward adds to E.grad",
            (
                'logits, logits_backward = linear("nd,vd->nv", x[is_word], model.E)',
                "logits, logits_backward = x[is_word] @ model.E.data.T, lambda dlogits: dlogits @ model.E.data",
            ),
        ),
        Mistake(
            "the way back ends at the decoder: hand what decode_backward returns to encode_backward",
            ("return encode_backward(decode_backward(dx))", "return decode_backward(dx)"),
        ),
        Mistake(
            "encode_backward is given dx of the decoder; it wants the gradient of memory, which decode_backward "
            "returns",
            ("encode_backward(decode_backward(dx))", "decode_backward(dx), encode_backward(dx)"),
        ),
        Mistake("dloss is left out: hand it to loss_backward", ("loss_backward(dloss)", "loss_backward(1.0)")),
    ),
)

# new_model ------------------------------------------------------------------------------------------------------------

NOT_THE_SAME = "the layers must hold the very objects of model.weights: adam changes those, and attention reads these"
SHARED = "two arrays share their numbers: data, grad, m and v of each weight are arrays of their own"
NOT_ZERO = "grad, m and v begin as zeros of the shape and dtype of data"
OF_D_MODEL = "1 / sqrt(d_model), as all have but W_2"
OF_D_FF = "1 / sqrt(d_ff), because W_2 alone sums d_ff numbers"


def observe_new_model(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Its random numbers are compared by their standard deviation, within 10 %: chance alone never moves it so far."""
    module.rng = np.random.default_rng(seed)  # type: ignore[attr-defined]
    model = module.new_model(*call.args, **call.kwargs)
    expected = {
        name: w.data.shape for name, w in ours("transformer").new_model(*call.args, **call.kwargs).weights.items()
    }
    for part in ("E", "encoder", "decoder", "weights"):
        require(hasattr(model, part), f"the model has no {part}: it holds E, encoder, decoder and weights")
    weights = model.weights
    require(isinstance(weights, dict), "model.weights should be a dictionary: name -> weight")
    if wrong := [*(f"lacks {name}" for name in expected if name not in weights),
                 *(f"has {name!r}, which is not known" for name in weights if name not in expected)]:  # fmt: skip
        raise Slip(f"model.weights {wrong[0]}")
    for name, shape in expected.items():
        found = np.shape(weights[name].data)
        require(found == shape, f"{name} has the shape {found}, and should have {shape}")
    dtype = call.kwargs.get("dtype", "float32")
    for name, w in weights.items():
        require(w.data.dtype == dtype, f"{name} is {w.data.dtype}, and should be {dtype}, as dtype says")
        require(all(np.shape(a) == w.data.shape and a.dtype == dtype and not a.any() for a in (w.grad, w.m, w.v)),
                f"{name}: {NOT_ZERO}")  # fmt: skip
    arrays = [array for w in weights.values() for array in (w.data, w.grad, w.m, w.v)]
    require(not any(np.shares_memory(a, b) for a, b in combinations(arrays, 2)), SHARED)
    parts = {"encoder": ("attention", "ffn"), "decoder": ("attention", "cross", "ffn")}
    require(model.E is weights["E"], f"model.E is not weights['E']: {NOT_THE_SAME}")
    for stack, names in parts.items():
        layers = getattr(model, stack)
        N = call.kwargs.get("N", 2)
        require(len(layers) == N, f"model.{stack} has {len(layers)} layers, and should have N = {N}")
        for i, layer in enumerate(layers):
            require(len(layer) == len(names), f"a layer of model.{stack} holds the weights of {', '.join(names)}")
            for name, block in zip(names, layer):
                place = f"{stack}.{i}.{name}."
                mine = {key.removeprefix(place) for key in expected if key.startswith(place)}
                require(set(block) == mine, f"layer {i} of model.{stack} should hold a dictionary of {', '.join(mine)}")
                require(all(block[key] is weights[place + key] for key in mine), f"{place[:-1]}: {NOT_THE_SAME}")
    kinds: dict[str, list[np.ndarray]] = {}
    for name, w in weights.items():
        kinds.setdefault(name.split(".")[-1], []).append(w.data.ravel())
    for kind in ("E", "W_Q", "W_K", "W_V", "W_O", "W_1", "W_2", "b_1", "b_2", "gamma", "beta"):
        alike = np.concatenate(kinds[kind]).astype(float)
        if kind in ("gamma", "beta", "b_1", "b_2"):
            yield kind, np.unique(alike)
            continue
        std = (call.kwargs.get("d_ff", 256) if kind == "W_2" else call.kwargs.get("d_model", 64)) ** -0.5
        rule = OF_D_FF if kind == "W_2" else OF_D_MODEL
        require(
            abs(alike.std() / std - 1) < 0.1,
            f"{kind} starts with the standard deviation {alike.std():.3g}, and should have {std:.3g} = {rule}",
        )
        require(abs(alike.mean()) < std / 5, f"{kind} starts around {alike.mean():.3g}, and should start around 0")


def sized(*args: int, **kwargs: Any) -> Callable:
    return lambda random, file: Call(*args, **kwargs)


NEW_MODEL = Function(
    name="new_model",
    lesson="13",
    note="a SimpleNamespace of E, encoder, decoder, weights; a weight is a SimpleNamespace of data, grad, m, v; "
    "names as encoder.0.attention.W_Q, decoder.1.cross.gamma, decoder.1.ffn.b_1; "
    "encoder[0] is [{W_Q, ..., beta}, {W_1, ..., beta}]; W_Q, W_K, W_V are (d_model, h, d_model / h), W_O is "
    "(h, d_model / h, d_model); gamma starts at 1, beta and b at 0",
    cases={
        "the default sizes": sized(50),
        "N = 1, float64": sized(60, d_model=32, d_ff=96, h=2, N=1, dtype="float64"),
        "one head, N = 3": sized(70, d_model=24, d_ff=48, h=1, N=3),
    },
    observe=observe_new_model,
    hints=(
        "Write down the shape of each weight of a block, by the names that the functions have for them: attention "
        "has W_Q, "
        "W_K, W_V, W_O, feed_forward W_1, b_1, W_2, b_2, and each block gamma and beta. Create each weight once, "
        "and keep "
        "it in two places: in the layer, and in weights under its long name.",
        "One helper for all blocks: create(place, shapes) makes a weight for each name and shape, keeps it as "
        "weights[place + name], and returns {name: weight}. A layer is a list of what it returns for its blocks.",
    ),
    mistakes=(
        Mistake(OF_D_FF, ('(d_ff if name == "W_2" else d_model)', "d_model")),
        Mistake(OF_D_MODEL, ("** -0.5", "** -1.0")),
        Mistake(
            "it should begin at 1, which leaves the normalised vectors as they are",
            ('np.full(shape, name == "gamma")', "np.zeros(shape)"),
        ),
        Mistake(
            "it should begin at 0, as beta and both biases do", ('np.full(shape, name == "gamma")', "np.ones(shape)")
        ),
        Mistake(SHARED, ("grad=0 * w, m=0 * w, v=0 * w", "**dict.fromkeys(['grad', 'm', 'v'], 0 * w)")),
        Mistake(NOT_ZERO, ("grad=0 * w, m=0 * w, v=0 * w", "grad=w.copy(), m=0 * w, v=0 * w")),
        Mistake(
            NOT_THE_SAME,
            ("{name: weights[place + name] for name", "{name: SimpleNamespace(**vars(weights[place + name])) for name"),
        ),
    ),
)

FUNCTIONS = (NEW_MODEL, ENCODE, DECODE, LOG_SOFTMAX, CROSS_ENTROPY, DROPOUT, LOSS_OF)
