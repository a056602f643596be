"""From text to text: a model, its tokenizer, and a search."""

from __future__ import annotations

from itertools import islice
from typing import Callable, Iterable, Iterator, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.backends.device import Device
from scratchformer.decoding.search import Hypothesis, Rules, search
from scratchformer.errors import UserError, require_list
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.forks import map_in_processes
from scratchformer.text.batches import encode_sequences
from scratchformer.text.tokenizer import Tokenizer, UnknownTokens

SENTENCES_AT_ONCE = 64
LINES_AT_ONCE = 1024
"""Text is translated in chunks of this many lines; within a chunk, sentences of similar length go together."""
MAX_TOKENS = 4096
"""A longer sentence is refused: attention needs memory for each pair of its tokens. The models are trained on 256 at
most. A group of sentences has at most MAX_TOKENS² pairs of tokens."""


CONTROLS = {code: " " for code in (*range(32), 127)}


def in_one_line(text: str) -> str:
    """The text with spaces for control characters, which single bytes or a piece of the vocabulary may stand for."""
    return text.translate(CONTROLS)


def until_pause(sentences: Iterator[str], pauses: Callable[[], bool], failures: list[Exception]) -> Iterator[str]:
    """The next LINES_AT_ONCE sentences, or only those up to one after which `pauses()` is true, or reading fails.

    failures  gets the exception of reading
    """
    try:
        for sentence in islice(sentences, LINES_AT_ONCE):
            yield sentence
            if pauses():
                return
    except Exception as error:
        failures.append(error)


class Translation(NamedTuple):
    """score: log probability in nats over the length penalty, what translations of one sentence are ranked by."""

    text: str
    score: float


class Translator:
    """Translates sentences with a model.

    Translations come back in the order of the sentences, and do not depend on the other sentences. A blank sentence is
    translated as an empty one.

    threads  cores to use on a CPU; the number changes no translation, only the last bit of a score
    device   where the model's weights are
    group    how many sentences a CPU translates together
    unknown  counts the unknown tokens of all sentences so far
    rules    what may be written, if not everything
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        extra_length: int = 50,
        threads: int = 1,
        device: Device = Device(),
        group: int = SENTENCES_AT_ONCE,
        rules: Rules | None = None,
    ) -> None:
        self.model, self.tokenizer, self.extra_length, self.device = model, tokenizer, extra_length, device
        self.rules = rules
        self.threads = 1 if device.is_async else threads
        self.group = group * device.batch_factor
        self.unknown = UnknownTokens(tokenizer)

    def translate(self, sentences: list[str], beam: int = 4, alpha: float = 0.6) -> list[str]:
        """The best translation of each sentence. Raises ValueError for a single sentence, which is not in a list."""
        return [best[0].text for best in self.stream(sentences, beam, alpha)]

    def stream(
        self,
        sentences: Iterable[str],
        beam: int = 4,
        alpha: float = 0.6,
        nbest: int = 1,
        pauses: Callable[[], bool] = lambda: False,
        place: Callable[[int], str] = lambda index: f"sentence {index + 1}",
    ) -> Iterator[list[Translation]]:
        """The `nbest` best translations of each sentence, best first.

        Reads and yields a chunk of lines at a time; a chunk also ends where `pauses()` says that the next line has not
        arrived yet. Raises UserError for a sentence that is longer than MAX_TOKENS, than the model's table of learned
        positions or than memory allows, and names it by `place`, a function of its index. What comes before a sentence
        that is too long, or that cannot be read, is translated first.
        """
        require_list(sentences)
        remaining, n_read, ops, failures = iter(sentences), 0, self.device.frozen_ops(), list[Exception]()
        while not failures and (chunk := list(until_pause(remaining, pauses, failures))):
            yield from self._chunk(chunk, beam, alpha, nbest, lambda index: place(n_read + index), ops)
            n_read += len(chunk)
        if failures:
            raise failures[0]

    def _groups(self, by_length: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Cut sentences, shortest first, into groups to be translated together -> their indices, longest first

        So no process begins a long group at the end.
        """
        groups = []
        while len(by_length):
            room = MAX_TOKENS**2 // int(lengths[by_length[-1]]) ** 2
            n = max(1, min(len(by_length) % self.group or self.group, room))
            groups.append(by_length[-n:])
            by_length = by_length[:-n]
        return groups

    def _chunk(
        self,
        sentences: list[str],
        beam: int,
        alpha: float,
        nbest: int,
        place: Callable[[int], str],
        ops: tuple[Ops, ...],
    ) -> Iterator[list[Translation]]:
        translations = [[Translation("", 0.0)]] * len(sentences)
        sources = encode_sequences(self.tokenizer.encode, sentences)
        config, limit, name = self.model.config, MAX_TOKENS, "the limit"
        if config.positions == "learned" and config.max_positions < limit:
            limit, name = config.max_positions, "the model's max_positions"
        if (too_long := np.flatnonzero(sources.lengths > limit)).size:
            index = int(too_long[0])
            yield from self._chunk(sentences[:index], beam, alpha, nbest, place, ops)
            raise UserError(f"{place(index)}: a sentence of {sources.lengths[index]} tokens; {name} is {limit}")
        self.unknown.count(sentences, sources.ids)
        by_length = np.argsort(sources.lengths, kind="stable")
        by_length = by_length[[bool(sentences[index].strip()) for index in by_length]]
        groups = self._groups(by_length, sources.lengths)

        def found_for(indices: np.ndarray) -> list[list[Hypothesis]]:
            try:
                with using(*ops):
                    ids = sources.padded(indices)
                    return search(self.model, ids, beam, alpha, self.extra_length, nbest, self.rules)
            except MemoryError:
                longest = int(indices[-1])
                size = f"{len(indices)} sentences of up to {sources.lengths[longest]} tokens"
                raise UserError(f"{place(longest)}: not enough memory to translate {size} together") from None

        at_once = max(1, min(self.threads, len(groups)))
        with threadpool_limits(self.threads // at_once, "blas"):  # with fewer groups, products use the other cores
            of_groups = list(map_in_processes(found_for, groups, at_once))
        for indices, found in zip(groups, of_groups):
            for index, hypotheses in zip(indices, found):
                texts = self.tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
                translations[index] = [
                    Translation(in_one_line(text), hypothesis.score) for text, hypothesis in zip(texts, hypotheses)
                ]
        yield from translations
