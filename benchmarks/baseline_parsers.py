"""Parsers without a neural network, to compare scores with. Each learns from trees, and gets the words of a sentence.

    right-branching  Each word is joined with all that follows. The root has the label that roots have most often, every
                     other phrase that of the phrases that end with the sentence (in English, VP).
    majority label   The same brackets, all with the label that phrases have most often (in English, NP).
    PCFG             The most probable tree of a context-free grammar that is read off the training trees.

The first two look at no word: they say what a score is worth in a language that branches to the right. The third is
what counting can do. None of them gets the gold tags: each writes its own, as the neural parser does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import NamedTuple

import numpy as np

from scratchformer.text.bracket_score import PUNCTUATION
from scratchformer.text.trees import MAX_DEPTH, Tree

IMPOSSIBLE = np.float32(-1e9)
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


class MajorityLabel(RightBranching):
    """The same brackets, all with the most frequent label of a phrase."""

    def __init__(self, trees: Sequence[Tree]):
        super().__init__(trees)
        self.root_label = self.inner_label = most_common(phrase.label for tree in trees for phrase in tree.phrases())


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


class Cells(NamedTuple):
    """Log-probabilities of the best tree of each symbol over each span of one length: (symbols, spans).

    direct   trees whose root is a tag or has two children
    chained  all trees
    """

    direct: np.ndarray
    chained: np.ndarray


class Chains(NamedTuple):
    """The best chain of rules with one child from each symbol to each other; a symbol is a chain to itself.

    symbols        (n,) the numbers of the symbols in such rules
    log_chain      (n, n) the log-probability of the chain from one to another, counted in `symbols`
    next_in_chain  (n, n) what follows the first on the way to the second, counted in `symbols`
    """

    symbols: np.ndarray
    log_chain: np.ndarray
    next_in_chain: np.ndarray

    @classmethod
    def of(cls, rules: dict[tuple[int, int], float]) -> Chains:
        """The chains of these rules, (symbol, its child) -> log-probability, by Floyd and Warshall's algorithm."""
        symbols = sorted({symbol for rule in rules for symbol in rule})
        best = np.full((len(symbols), len(symbols)), IMPOSSIBLE)
        following = np.tile(np.arange(len(symbols)), (len(symbols), 1))
        np.fill_diagonal(best, 0)
        for (symbol, child), value in rules.items():
            if symbol != child:
                best[symbols.index(symbol), symbols.index(child)] = value
        for between in range(len(symbols)):
            through = best[:, between, None] + best[between]
            better = through > best
            best = np.where(better, through, best)
            following = np.where(better, following[:, between, None], following)
        return cls(np.array(symbols, dtype=int), best, following)

    def path(self, symbol: int, direct: np.ndarray) -> list[int]:
        """The symbols on the best chain from a symbol to one of those with these log-probabilities, (all symbols,)."""
        place = np.searchsorted(self.symbols, symbol)
        if place == len(self.symbols) or self.symbols[place] != symbol:
            return [symbol]
        end, path = int((self.log_chain[place] + direct[self.symbols]).argmax()), [place]
        while path[-1] != end:
            path.append(self.next_in_chain[path[-1], end])
        return [int(self.symbols[place]) for place in path]


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
        names = {name for rule in rules for name in rule} | roots.keys() | self.lexicon.n_tags.keys()
        self.names = sorted(names)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        uses = Counter({name: 0 for name in names})
        for rule, count in rules.items():
            uses[rule[0]] += count
        self.log_root = np.full(len(names), IMPOSSIBLE)
        for name, count in roots.items():
            self.log_root[self.numbers[name]] = log(count / len(trees))

        numbered: dict[tuple[int, ...], float] = {
            tuple(self.numbers[name] for name in rule): log(count / uses[rule[0]]) for rule, count in rules.items()
        }
        pairs = sorted(rule for rule in numbered if len(rule) == 3)
        self.parent, self.left, self.right = np.array(pairs, dtype=int).reshape(-1, 3).T
        self.log_pair = np.array([numbered[rule] for rule in pairs], dtype=np.float32)
        self.parents, self.first_rule = np.unique(self.parent, return_index=True)
        self.chains = Chains.of({(rule[0], rule[1]): value for rule, value in numbered.items() if len(rule) == 2})

    def parse(self, words: Sequence[str]) -> Tree:
        """Return the most probable tree over the words."""
        if len(words) > MOST_WORDS:
            return self.fallback.parse(words)
        chart = self._chart(words)
        log_tree = self.log_root + chart[len(words)].chained[:, 0]
        if log_tree.max() < IMPOSSIBLE / 2:
            return self.fallback.parse(words)
        (tree,) = self._trees(chart, words, int(log_tree.argmax()), 0, len(words))
        return tree

    def _chart(self, words: Sequence[str]) -> dict[int, Cells]:
        """Length -> the best log-probability of each symbol over each span of this length, the shortest first."""
        direct = np.full((len(self.names), len(words)), IMPOSSIBLE)
        for place, word in enumerate(words):
            for tag, value in self.lexicon.log_probabilities(word).items():
                direct[self.numbers[tag], place] = value
        chart = {1: self._cells(direct)}
        for length in range(2, len(words) + 1):
            n_spans = len(words) - length + 1
            best = np.full((len(self.parent), n_spans), 2 * IMPOSSIBLE)
            for middle in range(1, length):
                left = chart[middle].chained[self.left, :n_spans]
                right = chart[length - middle].chained[self.right, middle : middle + n_spans]
                np.maximum(best, left + right, out=best)
            direct = np.full((len(self.names), n_spans), IMPOSSIBLE)
            if len(self.parent):
                direct[self.parents] = np.maximum.reduceat(best + self.log_pair[:, None], self.first_rule)
            chart[length] = self._cells(direct)
        return chart

    def _cells(self, direct: np.ndarray) -> Cells:
        """Add the chains of phrases with one child each that lead to a symbol over the same span."""
        chained, (symbols, log_chain, _) = direct.copy(), self.chains
        chained[symbols] = (log_chain[:, :, None] + direct[symbols]).max(axis=1, initial=IMPOSSIBLE)
        return Cells(direct, chained)

    def _trees(self, chart: dict[int, Cells], words: Sequence[str], symbol: int, start: int, length: int) -> list[Tree]:
        """Read the best tree of a symbol over a span from the chart; several trees for a part of a phrase, VP|VB."""
        *chain, symbol = self.chains.path(symbol, chart[length].direct[:, start])
        label, *marks = self.names[symbol].split()
        if length == 1:
            trees = [Tree(label, (), words[start])]
        else:
            rules = np.flatnonzero(self.parent == symbol)
            values = [
                self.log_pair[rules]
                + chart[middle].chained[self.left[rules], start]
                + chart[length - middle].chained[self.right[rules], start + middle]
                for middle in range(1, length)
            ]
            shorter, best = np.unravel_index(np.argmax(values), (length - 1, len(rules)))
            middle, rule = int(shorter) + 1, rules[best]
            trees = [
                *self._trees(chart, words, self.left[rule], start, middle),
                *self._trees(chart, words, self.right[rule], start + middle, length - middle),
            ]
            if "|" not in marks:
                trees = [Tree(label, tuple(trees))]
        for symbol in reversed(chain):
            trees = [Tree(self.names[symbol].split()[0], tuple(trees))]
        return trees
