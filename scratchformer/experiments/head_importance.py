"""How much does a trained model need each of its attention heads? After Michel et al. 2019 ("Are Sixteen Heads Really
Better than One?").

Two measures of a head: by how much the loss rises when it is removed, and E |dL/dxi|, the mean over sentences of the
absolute gradient of its gate. The first takes a forward pass for each head, the second one backward pass for all of
them. Then heads are removed one after the other, in the order of either measure, in the reverse order of the first, and
at random.

The model is not trained again, so all this shows what it loses at once, not what it could learn to do without. Scores
of heads are arrays (A, H): one row for each of `every_attention`, in its order. The number of a head is its index in
the flattened array.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Collection, Iterator, NamedTuple, Sequence

import numpy as np

from scratchformer.backends.mkl import product_threads
from scratchformer.decoding.translator import Translator
from scratchformer.experiments.heads import attention_layers
from scratchformer.nn.attention import CrossAttention, SelfAttention
from scratchformer.nn.head_gate import HeadGate, gated
from scratchformer.nn.loss import batch_loss_backward, states_loss
from scratchformer.nn.ops import using
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import EncodedPairs, batches_in_order, encode_pairs
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import Pairs

MAX_LENGTH = 256
POSITIONS_AT_ONCE = 4096


class Text(NamedTuple):
    """Sentence pairs, and the same as ids; language: of the targets, which decides what BLEU counts as a token."""

    pairs: Pairs
    encoded: EncodedPairs
    language: str = "de"

    @property
    def n_tokens(self) -> np.ndarray:
        """Target tokens of each sentence, </s> included, (sentences,)."""
        return self.encoded.target.lengths

    def part(self, keep: np.ndarray) -> Text:
        """The pairs where `keep`, (sentences,) bool, is True."""
        ids, numbers = self.encoded, self.encoded.line_numbers[keep]
        encoded = EncodedPairs(ids.source.select(keep), ids.target.select(keep), numbers, ids.max_length, 0)
        return Text(select(self.pairs, keep), encoded, self.language)


def text_of(translator: Translator, pairs: Pairs, n_sentences: int, language: str = "de") -> Text:
    """The first pairs of which no side is longer than MAX_LENGTH tokens, or than the model's table of positions.

    Raises UserError if there are none.
    """
    config = translator.model.config
    longest = min(MAX_LENGTH, config.max_positions) if config.positions == "learned" else MAX_LENGTH
    encoded = encode_pairs(translator.tokenizer.encode, pairs, longest, longest)
    fitting = select(pairs, np.isin(pairs.line_numbers, encoded.line_numbers))
    return Text(fitting, encoded, language).part(np.arange(len(encoded)) < n_sentences)


def select(pairs: Pairs, keep: np.ndarray) -> Pairs:
    """The pairs where `keep`, (pairs,) bool, is True."""
    source, target = ([each for each, kept in zip(lines, keep) if kept] for lines in (pairs.source, pairs.target))
    return Pairs(source, target, [number for number, kept in zip(pairs.line_numbers, keep) if kept], 0)


def every_attention(model: Transformer) -> list[SelfAttention | CrossAttention]:
    """The attentions of all layers: of the encoder, then self-attention of the decoder, then cross-attention."""
    return [layer for layers in attention_layers(model).values() for layer in layers]


def head_names(model: Transformer) -> list[str]:
    """Kind, layer and head, counted from 1, as in "cross 2.3"; in the order of the heads' numbers."""
    return [
        f"{kind} {layer + 1}.{head + 1}"
        for kind, layers in attention_layers(model).items()
        for layer, attention in enumerate(layers)
        for head in range(attention.h)
    ]


def remove(gates: Sequence[HeadGate], heads: Collection[int]) -> None:
    """Remove these heads, and bring all others back."""
    for index, gate in enumerate(gates):
        H = len(gate.xi.data)
        gate.xi.data[...] = 1
        gate.xi.data[[head - index * H for head in heads if head // H == index]] = 0


@contextmanager
def computing(translator: Translator) -> Iterator[None]:
    """The operations and the threads of this translator."""
    with using(*translator.device.ops), product_threads(translator.threads):
        yield


# The two measures -----------------------------------------------------------------------------------------------------


def sentence_losses(translator: Translator, text: Text) -> np.ndarray:
    """The loss of each sentence without smoothing, in nats, summed over its tokens. (sentences,)"""
    model, losses = translator.model, np.zeros(len(text.encoded))
    with computing(translator):
        for batch in batches_in_order(text.encoded, POSITIONS_AT_ONCE):
            states, _ = model.states(batch.source_ids, batch.target_in_ids)  # (B, T, D)
            for index, of_one, target_ids in zip(batch.indices, states, batch.target_out_ids):
                losses[index], _, _ = states_loss(
                    model.unembedding, of_one[None], target_ids[None], 0.0, "others", gradient=False
                )
    return losses


def losses_without_each(translator: Translator, text: Text) -> np.ndarray:
    """`sentence_losses` without each of the heads, one at a time: (sentences, A, H)"""
    return np.moveaxis(without_each(translator, lambda: sentence_losses(translator, text)), -1, 0)


def bleus_without_each(translator: Translator, text: Text) -> np.ndarray:
    """`greedy_bleu` without each of the heads, one at a time: (A, H)"""
    return without_each(translator, lambda: greedy_bleu(translator, text))


def without_each(translator: Translator, measure: Callable[[], Any]) -> np.ndarray:
    """What `measure` finds without each of the heads, one at a time: (A, H, ...)"""
    found = []
    with gated(every_attention(translator.model)) as gates:
        for head in range(len(head_names(translator.model))):
            remove(gates, [head])
            found.append(measure())
        return np.array(found).reshape(len(gates), -1, *np.shape(found[0]))


def gate_gradients(translator: Translator, text: Text) -> np.ndarray:
    """dL/dxi of each sentence, where L is its loss in nats, without smoothing and dropout: (sentences, A, H)

    Clears the gradients of the model.
    """
    model = translator.model
    with computing(translator), gated(every_attention(model)) as gates:
        found = []
        for index in range(len(text.encoded)):
            for gate in gates:
                gate.zero_grad()
            batch = text.encoded.batch(np.array([index]))
            batch_loss_backward(model, (batch.source_ids, batch.target_in_ids), batch.target_out_ids)
            found.append([gate.xi.grad.copy() for gate in gates])
    model.zero_grad()  # here, where the gates are gone, which are not in the model's store
    return np.array(found)


def gradient_importance(translator: Translator, text: Text) -> np.ndarray:
    """E |dL/dxi| (Michel et al. 2019, §4.1), in nats per target token: (A, H)

    The absolute value is taken of each sentence: a head that helps some and harms others matters, too.
    """
    return np.abs(gate_gradients(translator, text)).sum(axis=0) / text.n_tokens.sum()


def relative_to_layer(importance: np.ndarray) -> np.ndarray:
    """Each row divided by its Euclidean norm, as the source does before it orders the heads of all layers."""
    return importance / np.maximum(np.linalg.norm(importance, axis=1, keepdims=True), np.finfo(float).tiny)


# Removing many heads --------------------------------------------------------------------------------------------------


def greedy_order(translator: Translator, text: Text) -> list[int]:
    """The numbers of all heads, first to be removed first: each time the head without which the loss is lowest, given
    those that are gone already. This takes a forward pass for each pair of heads."""
    removed: list[int] = []
    with gated(every_attention(translator.model)) as gates:
        left = list(range(len(head_names(translator.model))))
        while left:
            losses = []
            for head in left:
                remove(gates, [*removed, head])
                losses.append(sentence_losses(translator, text).sum())
            removed.append(left.pop(int(np.argmin(losses))))
    return removed


def order_by(importance: np.ndarray) -> list[int]:
    """The numbers of all heads, the least important first."""
    return np.argsort(importance, axis=None, kind="stable").tolist()


class Curve(NamedTuple):
    """A model after 0, 1, 2, ... heads of an order are removed.

    losses  in nats per target token, for each number of heads from 0 to all of them
    bleus   number of heads removed -> sacreBLEU of greedy translations, where it was asked for
    """

    order: list[int]
    losses: list[float]
    bleus: dict[int, float]


def pruning_curve(translator: Translator, text: Text, order: Sequence[int], bleu_at: Collection[int] = ()) -> Curve:
    """Remove the heads in this order, and look at the model each time."""
    losses, bleus = [], {}
    with gated(every_attention(translator.model)) as gates:
        for count in range(len(order) + 1):
            remove(gates, order[:count])
            losses.append(float(sentence_losses(translator, text).sum() / text.n_tokens.sum()))
            if count in bleu_at:
                bleus[count] = greedy_bleu(translator, text)
    return Curve(list(order), losses, bleus)


def greedy_bleu(translator: Translator, text: Text) -> float:
    """sacreBLEU, 0 to 100, of greedy translations."""
    return corpus_scores(translator.translate(text.pairs.source, beam=1), text.pairs.target, text.language).bleu
