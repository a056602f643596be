"""Parsers without a neural network, to compare scores with. Each learns from trees, and gets the words of a sentence.

    right-branching  Each word is joined with all that follows. The root has the label that roots have most often, every
                     other phrase that of the phrases that end with the sentence (in English, VP).
    PCFG             The most probable tree of a context-free grammar that is read off the training trees.

The first looks at no word: it says what a score is worth in a language that branches to the right. The second is what
counting can do. Neither gets the gold tags: each writes its own, as the neural parser does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import log

import numpy as np

from scratchformer.text.bracket_score import PUNCTUATION
from scratchformer.text.trees import MAX_DEPTH, Tree

IMPOSSIBLE = -1e9
"""The log-probability of what cannot be. It is finite, so that sums of it are numbers."""

MOST_WORDS = 100
"""Longer sentences branch to the right: the PCFG's time grows with the cube of the length."""

ENDINGS = ("ing", "ed", "ly", "ion", "er", "est", "al", "able", "ity", "ous", "s", "y")


class RightBranching:
    """Brackets around each word and all words after it; a punctuation mark at the end stays in the root."""

    def __init__(self, trees: Sequence[Tree]):
        self.lexicon = Lexicon(trees)
        self.root_label = most_common(tree.label for tree in trees)
        self.inner_label = most_common(label for tree in trees for label in final_labels(tree))

    def parse(self, words: Sequence[str]) -> Tree:
        """Return a tree over the words."""
        leaves = [Tree(self.lexicon.usual_tag(word), (), word) for word in words]
        ends_in_mark = len(leaves) > 1 and leaves[-1].label in PUNCTUATION
        joined, mark = (leaves[:-1], leaves[-1:]) if ends_in_mark else (leaves, [])
        n_nested = max(0, min(len(joined) - 2, MAX_DEPTH - 2))
        children = joined[n_nested:]
        for leaf in reversed(joined[:n_nested]):
            children = [leaf, Tree(self.inner_label, tuple(children))]
        return Tree(self.root_label, (*children, *mark))


def final_labels(tree: Tree) -> Iterator[str]:
    """The labels of the phrases below the root that end with the sentence, but for punctuation."""
    while tree.children:
        last = [child for child in tree.children if child.label not in PUNCTUATION] or tree.children
        tree = last[-1]
        if tree.children:
            yield tree.label


def most_common(names: Iterable[str]) -> str:
    """The most frequent name; of several, the first in the alphabet. "" without names."""
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name), default="")


# Words and tags -------------------------------------------------------------------------------------------------------


class Lexicon:
    """Probabilities of a word given its tag, from counts of the training trees.

    A word that occurs less than twice there counts as its class, so that new words are known by their class.
    """

    def __init__(self, trees: Sequence[Tree]):
        leaves = [leaf for tree in trees for leaf in tree.tagged_words()]
        self.n_words = Counter(leaf.word for leaf in leaves)
        self.n_tags = Counter(leaf.label for leaf in leaves)
        self.tags_of: dict[str, Counter[str]] = defaultdict(Counter)
        for leaf in leaves:
            self.tags_of[self.known(leaf.word)][leaf.label] += 1

    def known(self, word: str) -> str:
        """The word, or the class of a rare word."""
        return word if self.n_words[word] > 1 else word_class(word)

    def tags(self, word: str) -> Counter[str]:
        """Counts of the tags of a word; for a class that never occurred, counts of all tags."""
        return self.tags_of.get(self.known(word), self.n_tags)

    def usual_tag(self, word: str) -> str:
        return most_common(self.tags(word).elements())

    def log_probabilities(self, word: str) -> dict[str, float]:
        """Tag -> log p(word | tag), for each tag that the word may have."""
        return {tag: log(count / self.n_tags[tag]) for tag, count in self.tags(word).items()}


def word_class(word: str) -> str:
    """The shape of a word: a capital, a digit, a hyphen, its ending. "Re-opened" -> "<A-ed>" """
    marks = ("A" if word[0].isupper() else "") + ("0" if any(map(str.isdigit, word)) else "") + "-" * ("-" in word)
    return f"<{marks}{next((ending for ending in ENDINGS if word.endswith(ending)), '')}>"


# The grammar ----------------------------------------------------------------------------------------------------------


Chart = dict[int, tuple[np.ndarray, np.ndarray]]
"""Length -> log-probabilities of the best tree of each symbol over each span of this length, both (symbols, spans):
of trees whose root is a tag or has two children; of all trees."""


def name_of(tree: Tree, parent: str) -> str:
    """A tag as it is; a phrase with the label of its parent, as in "NP ^ VP". No label contains a space."""
    return tree.label if tree.word else f"{tree.label} ^ {parent}"


def rules_of(tree: Tree, parent: str = "") -> Iterator[tuple[str, ...]]:
    """The rules of all phrases of a tree: a symbol and its one child, or its two."""
    if tree.word:
        return
    name = whole = name_of(tree, parent)
    children = [name_of(child, tree.label) for child in tree.children]
    while len(children) > 2:
        first, *children = children
        rest = f"{whole} | {first.split()[0]}"
        yield name, first, rest
        name = rest
    yield name, *children
    for child in tree.children:
        yield from rules_of(child, tree.label)


class PCFG:
    """A probabilistic context-free grammar, and the most probable tree by it (CKY).

    Each phrase of the training trees is a rule, and the probability of a rule is its share among those of its label.
    Before, the label of a phrase gets that of its parent, as in NP^VP (Johnson 1998), and a phrase of more than two
    children becomes pairs: VP -> VB NP PP becomes VP -> VB VP|VB and VP|VB -> NP PP, so that rules need not have
    occurred as a whole (Klein and Manning 2003: vertical order 2, horizontal order 1).

    A sentence that has no tree by these rules, or more than MOST_WORDS words, branches to the right.
    """

    def __init__(self, trees: Sequence[Tree]):
        self.fallback = RightBranching(trees)
        self.lexicon = self.fallback.lexicon
        rules = Counter(rule for tree in trees for rule in rules_of(tree))
        roots = Counter(name_of(tree, "") for tree in trees)
        self.names = sorted({name for rule in rules for name in rule} | roots.keys() | self.lexicon.n_tags.keys())
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.log_root = np.full(len(self.names), IMPOSSIBLE)
        for name, count in roots.items():
            self.log_root[self.numbers[name]] = log(count / len(trees))
        uses: Counter[str] = Counter()
        for rule, count in rules.items():
            uses[rule[0]] += count
        log_p = {rule: log(count / uses[rule[0]]) for rule, count in sorted(rules.items())}

        def of_length(n: int) -> tuple[np.ndarray, np.ndarray]:
            """The rules of n symbols: their numbers (n, rules), their log-probabilities (rules,)."""
            found = [([self.numbers[name] for name in rule], value) for rule, value in log_p.items() if len(rule) == n]
            return np.array([rule for rule, _ in found], int).reshape(-1, n).T, np.array([value for _, value in found])

        (self.parent, self.left, self.right), self.log_pair = of_length(3)
        (self.chain_parent, self.chain_child), self.log_chain = of_length(2)

    def parse(self, words: Sequence[str]) -> Tree:
        """Return the most probable tree over the words."""
        if len(words) > MOST_WORDS:
            return self.fallback.parse(words)
        chart = self.chart(words)
        log_tree = self.log_root + chart[len(words)][1][:, 0]
        if log_tree.max() < IMPOSSIBLE / 2:
            return self.fallback.parse(words)
        (tree,) = self.trees(chart, words, int(log_tree.argmax()), 0, len(words))
        return tree

    def chart(self, words: Sequence[str]) -> Chart:
        direct = np.full((len(self.names), len(words)), IMPOSSIBLE)
        for place, word in enumerate(words):
            for tag, value in self.lexicon.log_probabilities(word).items():
                direct[self.numbers[tag], place] = value
        chart = {1: (direct, self.chained(direct))}
        for length in range(2, len(words) + 1):
            n_spans = len(words) - length + 1
            best = np.full((len(self.parent), n_spans), 2 * IMPOSSIBLE)
            for middle in range(1, length):
                left = chart[middle][1][self.left, :n_spans]
                right = chart[length - middle][1][self.right, middle : middle + n_spans]
                np.maximum(best, left + right, out=best)
            direct = np.full((len(self.names), n_spans), IMPOSSIBLE)
            np.maximum.at(direct, self.parent, best + self.log_pair[:, None])
            chart[length] = direct, self.chained(direct)
        return chart

    def chained(self, direct: np.ndarray) -> np.ndarray:
        """Add the trees whose root has one child, which may have one child, and so on."""
        chained, before = direct.copy(), None
        while before is None or (chained > before).any():
            before = chained.copy()
            np.maximum.at(chained, self.chain_parent, before[self.chain_child] + self.log_chain[:, None])
        return chained

    def trees(self, chart: Chart, words: Sequence[str], symbol: int, start: int, length: int) -> list[Tree]:
        """Read the best tree of a symbol over a span from the chart; several trees for a part of a phrase, VP|VB."""
        direct, chained = (part[:, start] for part in chart[length])
        label, *marks = self.names[symbol].split()
        if chained[symbol] > direct[symbol]:
            rules = np.flatnonzero(self.chain_parent == symbol)
            best = rules[(chained[self.chain_child[rules]] + self.log_chain[rules]).argmax()]
            children = self.trees(chart, words, int(self.chain_child[best]), start, length)
        elif length == 1:
            return [Tree(label, (), words[start])]
        else:
            rules = np.flatnonzero(self.parent == symbol)
            values = [
                self.log_pair[rules]
                + chart[middle][1][self.left[rules], start]
                + chart[length - middle][1][self.right[rules], start + middle]
                for middle in range(1, length)
            ]
            shorter, best = np.unravel_index(np.argmax(values), (length - 1, len(rules)))
            middle, rule = int(shorter) + 1, rules[best]
            children = [
                *self.trees(chart, words, int(self.left[rule]), start, middle),
                *self.trees(chart, words, int(self.right[rule]), start + middle, length - middle),
            ]
        return children if "|" in marks else [Tree(label, tuple(children))]
