"""From text to text: a model, its tokenizer, and a search."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Callable, Iterable, Iterator, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.decoding.search import Hypothesis, search
from scratchformer.errors import UserError
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_sequences
from scratchformer.text.tokenizer import Tokenizer

SENTENCES_AT_ONCE = 64
LINES_AT_ONCE = 1024
"""Text is translated in chunks of this many lines; within a chunk, sentences of similar length go together."""


class Translation(NamedTuple):
    """score: log probability in nats over the length penalty, what translations of one sentence are ranked by."""

    text: str
    score: float


class Translator:
    """Translates sentences with a model.

    Translations come back in the order of the sentences, and what a sentence becomes does not depend on its neighbours.
    A blank sentence becomes an empty one.

    threads  how many groups of sentences are translated at once; the translations are the same for any number
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, extra_length: int = 50, threads: int = 1) -> None:
        self.model, self.tokenizer, self.extra_length, self.threads = model, tokenizer, extra_length, threads

    def translate(self, sentences: list[str], beam: int = 4, alpha: float = 0.6) -> list[str]:
        """The best translation of each sentence."""
        return [best[0].text for best in self.stream(sentences, beam, alpha)]

    def stream(self, sentences: Iterable[str], beam: int = 4, alpha: float = 0.6, nbest: int = 1,
               interactive: bool = False) -> Iterator[list[Translation]]:
        """The `nbest` best translations of each sentence, best first.

        Reads and yields a chunk of lines at a time; `interactive` makes a chunk of each line.
        """
        remaining = iter(sentences)
        while chunk := list(islice(remaining, 1 if interactive else LINES_AT_ONCE)):
            yield from self._chunk(chunk, beam, alpha, nbest)

    def _require_positions(self, sentences: list[str], lengths: np.ndarray) -> None:
        """Learned positions end somewhere. Raises UserError for a sentence that is longer."""
        config, longest = self.model.config, int(lengths.argmax())
        if config.positions == "learned" and lengths[longest] > config.max_positions:
            raise UserError(f"a sentence of {lengths[longest]} tokens is longer than the model's "
                            f"max_positions={config.max_positions}: {sentences[longest][:40]!r}...")

    def _chunk(self, sentences: list[str], beam: int, alpha: float, nbest: int) -> list[list[Translation]]:
        translations = [[Translation("", 0.0)]] * len(sentences)
        sources = encode_sequences(self.tokenizer.encode, sentences)
        self._require_positions(sentences, sources.lengths)
        by_length = np.argsort(sources.lengths, kind="stable")
        by_length = by_length[[bool(sentences[index].strip()) for index in by_length]]
        groups = [by_length[start:start + SENTENCES_AT_ONCE] for start in range(0, len(by_length), SENTENCES_AT_ONCE)]

        def found_for(indices: np.ndarray) -> list[list[Hypothesis]]:
            return search(self.model, sources.padded(indices), beam, alpha, self.extra_length, nbest)

        groups = groups[::-1]                                                      # the longest first
        for indices, found in zip(groups, self._at_once(found_for, groups)):
            for index, hypotheses in zip(indices, found):
                texts = self.tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
                translations[index] = [Translation(text, hypothesis.score)
                                       for text, hypothesis in zip(texts, hypotheses)]
        return translations

    def _at_once(self, work: Callable, groups: list[np.ndarray]) -> Iterable:
        """map, with a thread for each of several groups at once; matrix products then get no threads of their own."""
        if self.threads == 1:
            return map(work, groups)
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(work, groups))
