"""From lines to trees: what counts as a word, and what becomes of a model's symbols."""

from types import SimpleNamespace

import pytest

from scratchformer.decoding.translator import Translation
from scratchformer.decoding.tree_parser import TreeParser, words_of
from scratchformer.text.tokenizer import Tokenizer, TokenizerPair

WRITTEN = {
    "a dog sleeps .": ["S NP DT NN /NP VP VB /VP . /S", "S NP DT NN"],
    "": [""],
    "yes ( no )": ["S NP DT NN /NP /S VB VB VB"],
}


@pytest.mark.parametrize(
    "line, words",
    [
        ("A dog sleeps.", "A dog sleeps ."),
        ("A dog sleeps .", "A dog sleeps ."),
        ("Well, Mr. Fox; did it cost $ 3.5?  ", "Well , Mr. Fox ; did it cost $ 3.5 ?"),
        ("He left (early), they said...", "He left (early) , they said ..."),
        ("a,b 1,000 , .", "a,b 1,000 , ."),
        ("?!", "?!"),
        ("", ""),
        (" \t ", ""),
    ],
)
def test_words_of_a_line(line, words):
    assert " ".join(words_of(line)) == words


@pytest.fixture
def parser():
    """A parser whose model always writes WRITTEN."""
    symbols = [text for texts in WRITTEN.values() for text in texts]

    def stream(lines, beam, alpha, nbest, interactive, place):
        for line in lines:
            yield [Translation(text, -1.0 - rank) for rank, text in enumerate(WRITTEN[line][:nbest])]

    return TreeParser(
        SimpleNamespace(
            tokenizer=TokenizerPair(Tokenizer.train(["a dog"], 10), Tokenizer.train_words(symbols)),
            translate=lambda sentences, beam, alpha: [WRITTEN[sentence][0] for sentence in sentences],
            stream=stream,
        )
    )


def test_parses_of_words(parser):
    parses = parser.parse([["a", "dog", "sleeps", "."], ["yes", "(", "no", ")"]])
    assert [str(tree) for tree, _ in parses] == [
        "(S (NP (DT a) (NN dog)) (VP (VB sleeps)) (. .))",
        "(TOP (S (NP (DT yes) (NN -LRB-))) (VB no) (VB -RRB-))",
    ]
    assert [repaired for _, repaired in parses] == [False, True]


def test_lines_become_trees_in_their_order(parser):
    found = list(parser.stream(["A dog sleeps.".lower(), "", "yes ( no )"], nbest=2))
    assert [[score for _, score in best] for best in found] == [[-1.0, -2.0], [-1.0], [-1.0]]
    assert [best[0].text for best in found][1:] == ["", "(TOP (S (NP (DT yes) (NN -LRB-))) (VB no) (VB -RRB-))"]
    assert found[0][1].text == "(S (NP (DT a) (NN dog) (XX sleeps) (XX .)))", "what is missing is added"
