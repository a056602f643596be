"""Score parses by labelled brackets (Black et al. 1991), as EVALB does with the parameters of COLLINS.prm.

A bracket is a phrase: where it begins and ends, counted in words, and its label. Precision is the share of the brackets
of the parses that are in the gold trees, too; recall is the share of the gold brackets that were found; F1 is their
harmonic mean, 2PR / (P + R). All sentences are counted together. The rules, from EVALB's description:

- Punctuation does not count: words with one of the tags in PUNCTUATION are left out before the words are numbered. A
  phrase without other words is left out, too.
- TOP does not count, and neither do the tags of words, nor phrases whose label is such a tag.
- Brackets that occur twice, as in a phrase within a phrase over the same words, must be found twice.
- ADVP and PRT count as the same label.

EVALB takes the punctuation of each tree from the tree's own tags, and skips a sentence if the two trees then differ in
length. The paper's models write the tags themselves, and would be spared the sentences in which they mistag
punctuation. So the parses get the gold tags before their brackets are counted, and no sentence is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scratchformer.errors import UserError
from scratchformer.text.trees import TOP, Parse, Tree

PUNCTUATION = frozenset([",", ":", "``", "''", "."])
"""Tags of the words that do not count."""

SAME_LABELS = {"PRT": "ADVP"}


class BracketCounts(NamedTuple):
    """The counts of EVALB, for a sentence or for several.

    matched, predicted, gold    brackets in both trees, in the parse, in the gold tree
    complete      sentences with the same brackets in both trees
    words, tagged words other than punctuation, and those of them with the right tag
    repaired      sentences whose parse had to be repaired
    errors        sentences that are not counted, because the parse has other words than the gold tree
    """

    sentences: int = 0
    matched: int = 0
    predicted: int = 0
    gold: int = 0
    complete: int = 0
    words: int = 0
    tagged: int = 0
    repaired: int = 0
    errors: int = 0

    @staticmethod
    def total(counts: Iterable[BracketCounts]) -> BracketCounts:
        """The sum of several counts, field by field."""
        return BracketCounts(*map(sum, zip(BracketCounts(), *counts)))

    def scores(self) -> dict[str, float]:
        """Turn the counts into scores, all in percent but the last two, which count sentences."""
        if not self.sentences:
            raise UserError("no parses to score")
        return {
            "f1": percent(2 * self.matched, self.predicted + self.gold),
            "precision": percent(self.matched, self.predicted),
            "recall": percent(self.matched, self.gold),
            "complete_match": percent(self.complete, self.sentences),
            "tagging_accuracy": percent(self.tagged, self.words),
            "unparsable": percent(self.repaired, self.sentences),
            "n_errors": self.errors,
            "n_sentences": self.sentences,
        }


def percent(part: int, whole: int) -> float:
    """100 part / whole; 0 if there is nothing."""
    return 100 * part / whole if whole else 0.0


def score_parses(parses: Sequence[Parse], gold: Sequence[Tree]) -> dict[str, float]:
    """Score parses against the gold trees of the same sentences."""
    if len(parses) != len(gold):
        raise UserError(f"{len(parses)} parses cannot be scored against {len(gold)} gold trees")
    return BracketCounts.total(map(count_brackets, parses, gold)).scores()


def count_brackets(parse: Parse, gold: Tree) -> BracketCounts:
    """Count the brackets of one sentence."""
    if parse.tree.words != gold.words:
        return BracketCounts(sentences=1, repaired=int(parse.repaired), errors=1)
    found, wanted = brackets(parse.tree.with_tags(gold.tags)), brackets(gold)
    counted = [(guess, tag) for guess, tag in zip(parse.tree.tags, gold.tags) if tag not in PUNCTUATION]
    return BracketCounts(
        sentences=1,
        matched=(found & wanted).total(),
        predicted=found.total(),
        gold=wanted.total(),
        complete=int(found == wanted),
        words=len(counted),
        tagged=sum(guess == tag for guess, tag in counted),
        repaired=int(parse.repaired),
    )


def brackets(tree: Tree) -> Counter[tuple[int, int, str]]:
    """Count the brackets of a tree: (first word, word after the last, label), in words without punctuation."""
    found: Counter[tuple[int, int, str]] = Counter()

    def walk(node: Tree, start: int) -> int:
        """Count the brackets of a tree that begins at word `start` -> the word after it"""
        if node.word:
            return start + (node.label not in PUNCTUATION)
        end = start
        for child in node.children:
            end = walk(child, end)
        if end > start and node.label != TOP and node.label not in PUNCTUATION:
            found[start, end, SAME_LABELS.get(node.label, node.label)] += 1
        return end

    walk(tree, 0)
    return found
