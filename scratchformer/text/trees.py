"""Constituency trees: read and clean Penn brackets, write a tree as a sequence of symbols, and read it back.

The paper parses with a sequence-to-sequence model (§6.3): it reads the words and writes the tree. Walk through the tree
from left to right: write the label of a phrase when it opens, and "/" and the label when it closes; write the tag of a
word, and leave out the word. So the tree of "John sleeps ." in Penn brackets and as symbols is

    (S (NP (NNP John)) (VP (VBZ sleeps)) (. .))        S NP NNP /NP VP VBZ /VP . /S

That is the form of the authors' code, tensor2tensor of June 2017 (data_generators/wsj_parsing.py). A model may write
any sequence of symbols, so `tree_of` repairs a wrong sequence, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scratchformer.errors import UserError
from scratchformer.text.corpora import read_lines

MAX_DEPTH = 100
"""No tree may be deeper: a real one has a few dozen levels."""

TOP = "TOP"
"""Label of an artificial root, which joins several phrases."""

TOPS = ("", TOP, "ROOT")
"""The labels of a root above the sentence, which say nothing."""

NO_WORD = "-NONE-"
"""The tag of a trace or another empty element of the Penn Treebank."""

UNKNOWN_TAG = "XX"
"""The tag of a word for which a model has written none."""

CLOSING = "/"
PARTS = re.compile(r"[()]|[^\s()]+")
ESCAPES = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


class Tree(NamedTuple):
    """A phrase with its children, or a word with its tag as `label`, which has no children."""

    label: str
    children: tuple[Tree, ...] = ()
    word: str = ""

    def tagged_words(self) -> list[Tree]:
        """The words with their tags, from left to right."""
        return [self] if self.word else [leaf for child in self.children for leaf in child.tagged_words()]

    @property
    def words(self) -> list[str]:
        """The words, in order."""
        return [leaf.word for leaf in self.tagged_words()]

    @property
    def tags(self) -> list[str]:
        """The tag of each word."""
        return [leaf.label for leaf in self.tagged_words()]

    def phrases(self) -> Iterator[Tree]:
        """The phrases, each before those that it contains."""
        if self.children:
            yield self
            for child in self.children:
                yield from child.phrases()

    def symbols(self) -> list[str]:
        """The tree without its words, as a sequence of symbols."""
        if self.word:
            return [self.label]
        inner = [symbol for child in self.children for symbol in child.symbols()]
        return [self.label, *inner, CLOSING + self.label]

    def with_tags(self, tags: Sequence[str]) -> Tree:
        """The same phrases; word i gets tags[i]."""
        remaining = iter(tags)

        def tagged(tree: Tree) -> Tree:
            if tree.word:
                return tree._replace(label=next(remaining))
            return tree._replace(children=tuple(map(tagged, tree.children)))

        return tagged(self)

    def __str__(self) -> str:
        """The tree in Penn brackets, in one line; a bracket in a word becomes -LRB- or -RRB-."""
        inner = " ".join(map(str, self.children)) or self.word.translate(ESCAPES)
        return f"({self.label} {inner})"


# Penn brackets --------------------------------------------------------------------------------------------------------


def read_trees(path: Path) -> list[Tree]:
    """Read the trees of a file, plain or gzipped: one on each line, or spread over lines."""
    return parsed_trees(read_lines(path), str(path))


def parsed_trees(lines: Iterable[str], origin: str) -> list[Tree]:
    """Read trees in Penn brackets; `origin` names the text in messages.

    The label of a tree may be missing, as in the files of the Penn Treebank: ( (S ...) ).
    """
    trees: list[Tree] = []
    # Label and word, children and line of the nodes that are open; the outermost one stands for the file.
    stack: list[tuple[list[str], list[Tree], int]] = [(["", ""], trees, 0)]
    for number, line in enumerate(lines, start=1):
        for part in PARTS.findall(line):
            (names, children, _), is_outside = stack[-1], len(stack) == 1
            if part == "(":
                is_right = len(stack) <= MAX_DEPTH and (is_outside or len(names) < 2)
                stack.append(([], [], number))
            elif part == ")":
                stack.pop()
                label, word = (names + ["", ""])[:2]
                is_right = not is_outside and bool(children or word) and bool(label or len(stack) == 1)
                if is_right:
                    stack[-1][1].append(Tree(label, tuple(children), word))
            else:
                is_right = len(names) < 2 and not children and bool(names or not part.startswith(CLOSING))
                names.append(part)
            if not is_right:
                raise UserError(
                    f"{origin}, line {number}: not a tree in Penn brackets, as (S (NP (NN dog)) (VP (VBZ sleeps))), "
                    f"of at most {MAX_DEPTH} levels: {part[:40]!r} is wrong in {line.strip()[:40]!r}"
                )
    if len(stack) > 1:
        raise UserError(f"{origin}, line {stack[1][2]}: the tree that begins here does not end")
    return trees


def cleaned(tree: Tree) -> Tree | None:
    """The tree as parsers are trained and scored on it (Collins 1999); None if no word is left.

    Empty elements are dropped, and phrases that held nothing else. Labels lose what follows the first "-" or "=", that
    is, grammatical functions and indices (NP-SBJ-1 becomes NP), but -LRB- and -RRB- stay. PRT|ADVP and ADVP|PRT become
    PRT. A root without meaning is dropped, unless it holds several phrases.
    """
    kept = without_empty(tree)
    if kept is None:
        return None
    while kept.label in TOPS and len(kept.children) == 1:
        kept = kept.children[0]
    return kept if kept.label else kept._replace(label=TOP)


def without_empty(tree: Tree) -> Tree | None:
    """The tree with plain labels, without empty elements; None if no word is left."""
    if tree.word:
        return None if tree.label == NO_WORD else tree._replace(label=plain_label(tree.label))
    children = tuple(kept for kept in map(without_empty, tree.children) if kept is not None)
    return Tree(plain_label(tree.label), children) if children else None


def plain_label(label: str) -> str:
    """NP-SBJ-1 -> NP, NP=2 -> NP, -LRB- -> -LRB-, PRT|ADVP -> PRT"""
    if not label.startswith("-"):
        label = re.sub("(?<=.)[-=].*", "", label)
    return "PRT" if label in ("PRT|ADVP", "ADVP|PRT") else label


# From symbols to a tree -----------------------------------------------------------------------------------------------


class Parse(NamedTuple):
    """A tree, and whether the symbols that it was read from had to be repaired."""

    tree: Tree
    repaired: bool


def phrase_labels(symbols: Iterable[str]) -> set[str]:
    """The labels among these symbols that are of phrases: those that have a closing symbol, too."""
    return {symbol.removeprefix(CLOSING) for symbol in symbols if symbol.startswith(CLOSING)}


def tags_first(symbols: Iterable[str]) -> tuple[list[str], int]:
    """Each of these symbols once, first the tags, then those of phrases -> the symbols, the number of tags"""
    found = set(symbols)
    tags = {symbol for symbol in found - phrase_labels(found) if not symbol.startswith(CLOSING)}
    return [*sorted(tags), *sorted(found - tags)], len(tags)


def tree_of(symbols: Iterable[str], words: Sequence[str], phrases: Collection[str]) -> Parse:
    """Read a tree over these words from symbols, in any order; the symbols of a tree give this tree.

    phrases  the labels of phrases; every other symbol that does not close a phrase is a tag

    Repairs: a closing symbol closes the innermost open phrase of its label, and all phrases within it; without one it
    is ignored. Phrases that are open at the end are closed. The i-th tag is that of word i; further tags are dropped.
    Words without a tag get UNKNOWN_TAG and go into the innermost phrase that is open at the end, or else into the
    root. Phrases without words are dropped, and so are those deeper than MAX_DEPTH. If this leaves several roots, they
    get one above them, TOP.
    """
    if not words:
        raise ValueError("a tree needs words")
    stack: list[tuple[str, list[Tree]]] = [(TOP, [])]  # label and children of the phrases that are open
    n_tagged, repaired = 0, False

    def close() -> None:
        nonlocal repaired
        label, children = stack.pop()
        if children:
            stack[-1][1].append(Tree(label, tuple(children)))
        else:
            repaired = True

    for symbol in symbols:
        if symbol in phrases:
            if len(stack) < MAX_DEPTH:
                stack.append((symbol, []))
            else:
                repaired = True
        elif symbol.startswith(CLOSING):
            is_open = symbol[1:] in (label for label, _ in stack[1:])
            repaired |= not is_open or stack[-1][0] != symbol[1:]
            while is_open:
                is_open = stack[-1][0] != symbol[1:]
                close()
        elif n_tagged < len(words):
            stack[-1][1].append(Tree(symbol, (), words[n_tagged]))
            n_tagged += 1
        else:
            repaired = True
    rest = [Tree(UNKNOWN_TAG, (), word) for word in words[n_tagged:]]
    roots = stack[0][1]
    if rest and len(stack) == 1 and len(roots) == 1 and roots[0].children:
        roots[0] = roots[0]._replace(children=(*roots[0].children, *rest))
    else:
        stack[-1][1].extend(rest)
    repaired |= bool(rest) or len(stack) > 1
    while len(stack) > 1:
        close()
    if len(roots) == 1:
        return Parse(roots[0], repaired)
    return Parse(Tree(TOP, tuple(roots)), True)
