"""How well does a language model predict its validation text, beside n-gram models? `scratchformer evaluate` prints it.

All are measured in bits per character: the probability of the whole text, its end included, so that it does not matter
into which pieces a model cuts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from scratchformer.errors import UserError
from scratchformer.experiments.ngram import kneser_ney
from scratchformer.text.tokenizer import EOS
from scratchformer.text.windows import ValidationWindows, encode_texts
from scratchformer.training.run import Trained
from scratchformer.training.task_language_model import LanguageModelTask, Texts, nats_of

CHARACTER_ORDERS, TOKEN_ORDERS = 8, 5
"""The highest orders of the n-gram models. Higher ones may be better, but take much more time and memory."""

MAX_COUNTED = 2**21
"""Characters of training text in which the n-gram models count at most: their tables grow with it."""


class LanguageModelScores(NamedTuple):
    """On the validation text, whose n_characters are n_tokens with the end of each text.

    bits_per_character  of the model, which reads half a window or more before each token
    perplexity          per token
    character_grams     bits per character of the n-gram models over characters, for n = 1, 2, ...
    token_grams         and of those over the model's tokens
    n_counted           characters of the training text in which they counted
    """

    n_characters: int
    n_tokens: int
    bits_per_character: float
    perplexity: float
    character_grams: list[float]
    token_grams: list[float]
    n_counted: int

    def as_record(self) -> dict[str, Any]:
        """The scores, flat."""
        return self._asdict()

    def as_text(self) -> str:
        """Three lines."""

        def best(bits: list[float]) -> str:
            n = 1 + bits.index(min(bits))
            return f"n = {n}, the highest tried" if n == len(bits) else f"the best, n = {n}"

        grams = {"characters": self.character_grams, "tokens": self.token_grams}
        return "\n".join(
            [
                f"bits per character {self.bits_per_character:.3f}, perplexity {self.perplexity:.1f} per token  "
                f"({self.n_characters:,} characters of validation text, {self.n_tokens:,} tokens)",
                *(
                    f"n-grams of {name:10} {min(bits):.3f}  ({best(bits)}; "
                    f"for n = 1, 2, ...: {', '.join(f'{each:.3f}' for each in bits)})"
                    for name, bits in grams.items()
                ),
            ]
        )


def evaluate(trained: Trained) -> LanguageModelScores:
    """The validation text of the run, and n-gram models that count in its training text.

    Raises UserError if the text has no part for validation.
    """
    texts = LanguageModelTask().read(trained.config)
    nats, n_tokens = loss_on(trained, texts)
    n_characters = sum(map(len, texts.val))
    counted = Texts(first_characters(texts.train, MAX_COUNTED), texts.val)
    return LanguageModelScores(
        n_characters,
        n_tokens,
        nats * n_tokens / math.log(2) / n_characters,
        math.exp(min(nats, 700)),
        [bits / n_characters for bits in character_bits(counted)],
        [bits / n_characters for bits in token_bits(counted, trained.tokenizer)],
        sum(map(len, counted.train)),
    )


def loss_on(trained: Trained, texts: Texts) -> tuple[float, int]:
    """Nats per token of the validation text, whose ends count as tokens, and the number of tokens."""
    model, tokenizer, config, _, device, threads = trained
    if not texts.val:
        raise UserError("there is no validation text: name a directory that has some, or files with --text")
    windows = ValidationWindows(encode_texts(tokenizer, texts.val), config.data.max_length)
    with threadpool_limits(threads, "blas"):
        nats = nats_of(model, windows, config.training.tokens_per_batch, ops=device.ops)
    return nats / windows.n_targets, windows.n_targets


def first_characters(texts: Sequence[str], most: int) -> list[str]:
    """The beginning of the texts, together at most so many characters."""
    taken = []
    for text in texts:
        taken.append(text[:most])
        most -= len(taken[-1])
    return [text for text in taken if text]


def character_bits(texts: Texts, orders: int = CHARACTER_ORDERS) -> Iterator[float]:
    """Bits of the validation text, by n-gram models over characters of 1, 2, ..., `orders` orders.

    The symbols are the characters of the training text, the end of a text, and one for all other characters; such a
    character takes 8 bits more for each of its bytes in UTF-8.
    """
    numbers = {character: number for number, character in enumerate(sorted(set("".join(texts.train))))}
    end, other = len(numbers), len(numbers) + 1

    def symbols(text: str) -> list[int]:
        return [*(numbers.get(character, other) for character in text), end]

    spelled = sum(8 * len(character.encode()) for text in texts.val for character in text if character not in numbers)
    for model in kneser_ney(map(symbols, texts.train), orders, len(numbers) + 2):
        yield spelled + sum(model.bits(symbols(text)) for text in texts.val)


def token_bits(texts: Texts, tokenizer: Any, orders: int = TOKEN_ORDERS) -> Iterator[float]:
    """Bits of the validation text, by n-gram models over the tokens and EOS, of 1, 2, ..., `orders` orders."""
    train, val = ([[*ids, EOS] for ids in tokenizer.encode(part)] for part in texts)
    for model in kneser_ney(train, orders, tokenizer.vocab_size):
        yield sum(map(model.bits, val))
