"""From words to constituency trees (paper §6.3): a translator writes symbols; what is no tree is repaired."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from scratchformer.decoding.translator import Translation, Translator
from scratchformer.errors import require_list
from scratchformer.text.tokenizer import TokenizerPair
from scratchformer.text.trees import Parse, phrase_labels, tree_of

# Punctuation at the end of a word; treebanks have it as a word of its own.
ATTACHED = re.compile(r"(?<=[^\s.,;:?!])([,;:]+(?=\s|$)|[.?!]+\s*$)")


def words_of(line: str) -> list[str]:
    """The words of a line, which spaces separate; commas and the mark at the end become words as well."""
    return ATTACHED.sub(r" \1", line).split()


class TreeParser:
    """Parses with the model of a run that was trained for parsing."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        assert isinstance(translator.tokenizer, TokenizerPair)
        target = translator.tokenizer.target
        self.phrases = phrase_labels(piece.removeprefix("▁") for piece in target.pieces(range(target.vocab_size)))

    def parse(self, sentences: Sequence[Sequence[str]], beam: int = 1, alpha: float = 0.0) -> list[Parse]:
        """The best tree over the words of each sentence; none may be empty. Raises ValueError for a string of words."""
        require_list(sentences)
        for words in sentences:
            require_list(words)
        outputs = self.translator.translate([" ".join(words) for words in sentences], beam, alpha)
        return [tree_of(output.split(), words, self.phrases) for output, words in zip(outputs, sentences)]

    def stream(
        self,
        lines: Iterable[str],
        beam: int = 4,
        alpha: float = 0.6,
        nbest: int = 1,
        interactive: bool = False,
        place: Callable[[int], str] = lambda index: f"sentence {index + 1}",
    ) -> Iterator[list[Translation]]:
        """The `nbest` best trees of each line in Penn brackets, best first. Arguments: `Translator.stream`."""
        require_list(lines)
        waiting: deque[list[str]] = deque()

        def texts() -> Iterator[str]:
            for line in lines:
                waiting.append(words_of(line))
                yield " ".join(waiting[-1])

        for best in self.translator.stream(texts(), beam, alpha, nbest, interactive, place):
            words = waiting.popleft()
            trees = [str(tree_of(text.split(), words, self.phrases).tree) if words else "" for text, _ in best]
            yield [Translation(tree, score) for tree, (_, score) in zip(trees, best)]
