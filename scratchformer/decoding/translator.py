"""From text to text: a model, its tokenizer, and a search."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Callable, Iterable, Iterator, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from scratchformer.decoding.search import Hypothesis, search
from scratchformer.errors import UserError
from scratchformer.nn.ops import chunks
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
    A blank sentence becomes an empty one. An interruption waits for the groups of sentences that are being translated.

    threads  cores to use; the translations are the same for any number, but for the last bit of a score
    group    how many sentences are translated together
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        extra_length: int = 50,
        threads: int = 1,
        group: int = SENTENCES_AT_ONCE,
    ) -> None:
        self.model, self.tokenizer, self.extra_length = model, tokenizer, extra_length
        self.threads, self.group = threads, group

    def translate(self, sentences: list[str], beam: int = 4, alpha: float = 0.6) -> list[str]:
        """The best translation of each sentence."""
        return [best[0].text for best in self.stream(sentences, beam, alpha)]

    def stream(
        self, sentences: Iterable[str], beam: int = 4, alpha: float = 0.6, nbest: int = 1, interactive: bool = False
    ) -> Iterator[list[Translation]]:
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
            raise UserError(
                f"a sentence of {lengths[longest]} tokens is longer than the model's "
                f"max_positions={config.max_positions}: {sentences[longest][:40]!r}..."
            )

    def _chunk(self, sentences: list[str], beam: int, alpha: float, nbest: int) -> list[list[Translation]]:
        translations = [[Translation("", 0.0)]] * len(sentences)
        sources = encode_sequences(self.tokenizer.encode, sentences)
        self._require_positions(sentences, sources.lengths)
        by_length = np.argsort(sources.lengths, kind="stable")
        by_length = by_length[[bool(sentences[index].strip()) for index in by_length]]
        groups = [by_length[part] for part in chunks(len(by_length), self.group)]
        groups.reverse()  # no long group is left for the end

        def found_for(indices: np.ndarray) -> list[list[Hypothesis]]:
            return search(self.model, sources.padded(indices), beam, alpha, self.extra_length, nbest)

        for indices, found in zip(groups, self._at_once(found_for, groups)):
            for index, hypotheses in zip(indices, found):
                texts = self.tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
                translations[index] = [
                    Translation(text, hypothesis.score) for text, hypothesis in zip(texts, hypotheses)
                ]
        return translations

    def _at_once(self, work: Callable[[np.ndarray], Any], groups: list[np.ndarray]) -> list[Any]:
        """map, on up to `threads` groups at once; where there are fewer, matrix products share the other cores."""
        at_once = max(1, min(self.threads, len(groups)))
        with threadpool_limits(self.threads // at_once, "blas"):
            if at_once == 1:  # a GPU belongs to this thread
                return list(map(work, groups))
            with ThreadPoolExecutor(at_once) as pool:
                return list(pool.map(work, groups))
