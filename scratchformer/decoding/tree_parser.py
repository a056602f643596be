"""From words to constituency trees (paper §6.3): a translator writes symbols, by rules that make them a tree."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scratchformer.decoding.translator import Translation, Translator
from scratchformer.errors import require_list
from scratchformer.text.tokenizer import EOS, N_SPECIALS, Tokenizer
from scratchformer.text.trees import CLOSING, MAX_DEPTH, Parse, phrase_labels, tags_first, tree_of
from scratchformer.text.words import TokenizerPair

# Punctuation at the end of a word, which treebanks have as a word of its own. Within a line, a full stop stays.
ATTACHED = re.compile(r"(?<=[^\s,;:?!])([,;:]+(?=\s|$))|(?<=[^\s.,;:?!])([.?!]+\s*$)")


BRACKETS = {"(": "-LRB-", ")": "-RRB-"}


def words_of(line: str) -> list[str]:
    """The words of a line, which spaces separate; commas and the mark at the end become words as well.

    A bracket on its own becomes -LRB- or -RRB-, as in treebanks.
    """
    return [BRACKETS.get(word, word) for word in ATTACHED.sub(r" \1\2", line).split()]


class TreeState(NamedTuple):
    """The state of a tree whose symbols are being written.

    words    number of words without a tag so far
    open     the ids of the phrases that are open, the outermost first
    is_new   whether the innermost of them is still empty
    room     the most symbols that may follow, EOS included
    """

    words: int
    open: tuple[int, ...]
    is_new: bool
    room: int


class TreeRules:
    """The symbols that may follow in a tree with one tag for each token of the source (`decoding.search.Rules`).

    A phrase holds at least one word, and closes before the phrase around it; the root closes after the last word, and
    then the output ends. A phrase opens only if there is room for its end. Where even the smallest tree has more
    symbols than the search may write, the output is cut off, and `tree_of` repairs it.

    target  the vocabulary of the symbols
    """

    def __init__(self, target: Tokenizer) -> None:
        symbols = target.pieces(range(target.vocab_size))
        ids = {symbol: id_ for id_, symbol in enumerate(symbols)}
        self.closing = {ids[label]: ids[CLOSING + label] for label in phrase_labels(symbols) if label in ids}
        self.tags, self.phrases = np.zeros((2, len(symbols)), bool)
        self.tags[N_SPECIALS : N_SPECIALS + tags_first(symbols[N_SPECIALS:])[1]] = True
        self.phrases[list(self.closing)] = True

    def begin(self, source_length: int, longest: int) -> TreeState:
        return TreeState(source_length - 1, (), True, longest)

    def after(self, state: TreeState, token: int) -> TreeState:
        words, phrases, _, room = state
        if token in self.closing:
            return TreeState(words, (*phrases, token), True, room - 1)
        if self.tags[token]:
            return TreeState(words - 1, phrases, False, room - 1)
        return TreeState(words, phrases[:-1], False, room - 1)

    def allowed(self, state: TreeState) -> np.ndarray:
        words, phrases, is_new, room = state
        depth = len(phrases)
        may = np.zeros(len(self.tags), bool)
        may[EOS] = not words and not phrases
        if words and (phrases or words == 1):  # a tree may be a single word
            may |= self.tags
        needed = words + depth + 3  # the phrase opens and closes, and EOS
        if words and (depth < MAX_DEPTH - 1 and needed <= room or not phrases and words > 1):
            may |= self.phrases
        if phrases and not is_new and (depth > 1 or not words):
            may[self.closing[phrases[-1]]] = True
        return may


class TreeParser:
    """Parses with the model of a run that was trained for parsing."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        assert isinstance(translator.tokenizer, TokenizerPair)
        target = translator.tokenizer.target
        self.phrases = phrase_labels(target.pieces(range(target.vocab_size)))

    def parse(self, sentences: Sequence[Sequence[str]], beam: int = 1, alpha: float = 0.0) -> list[Parse]:
        """The best tree over the words of each sentence; none may be empty. Raises ValueError for a string of words."""
        for words in [sentences, *sentences]:
            require_list(words)
        texts = [" ".join(words) for words in sentences]
        if any(text.split() != list(words) for text, words in zip(texts, sentences)):
            raise ValueError("a word of these sentences is empty or has a space in it")
        outputs = self.translator.translate(texts, beam, alpha)
        return [tree_of(output.split(), words, self.phrases) for output, words in zip(outputs, sentences)]

    def trees(
        self, lines: Iterable[str], stream: Callable[[Iterable[str]], Iterator[list[Translation]]]
    ) -> Iterator[list[Translation]]:
        """The best trees of each line in Penn brackets, where `stream` is `Translator.stream` with its options."""
        waiting: deque[list[str]] = deque()

        def texts() -> Iterator[str]:
            for line in lines:
                waiting.append(words_of(line))
                yield " ".join(waiting[-1])

        for best in stream(texts()):
            words = waiting.popleft()
            trees = [str(tree_of(text.split(), words, self.phrases).tree) if words else "" for text, _ in best]
            yield [Translation(tree, score) for tree, (_, score) in zip(trees, best)]
