"""From lines to trees: what counts as a word, and what becomes of a model's symbols."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.translator import Translation, Translator
from scratchformer.decoding.tree_parser import TreeParser, TreeRules, words_of
from scratchformer.nn.transformer import Transformer
from scratchformer.text import bundled
from scratchformer.text.tokenizer import EOS
from scratchformer.text.trees import parsed_trees, tags_first
from scratchformer.text.words import TokenizerPair, WordTokenizer

WRITTEN = {
    "a dog sleeps .": ["S NP DT NN /NP VP VB /VP . /S", "S NP DT NN"],
    "": [""],
    "yes -LRB- no -RRB-": ["S NP DT NN /NP /S VB VB VB"],
}


@pytest.mark.parametrize(
    "line, words",
    [
        ("A dog sleeps .", "A dog sleeps ."),
        ("Well, Mr. Fox; did it cost $ 3.5?  ", "Well , Mr. Fox ; did it cost $ 3.5 ?"),
        ("He left (early), they said...", "He left (early) , they said ..."),
        ("He left ( early ) .", "He left -LRB- early -RRB- ."),
        ("a,b 1,000 , .", "a,b 1,000 , ."),
        ("?!", "?!"),
        ("Acme Inc., at 5 p.m.; so...: he left", "Acme Inc. , at 5 p.m. ; so... : he left"),
        ("", ""),
        (" \t ", ""),
    ],
)
def test_words_of_a_line(line, words):
    assert " ".join(words_of(line)) == words


@pytest.fixture
def parser():
    """A parser whose model always writes WRITTEN."""
    symbols = {symbol: None for texts in WRITTEN.values() for text in texts for symbol in text.split()}

    return TreeParser(
        SimpleNamespace(
            tokenizer=TokenizerPair(WordTokenizer.of(["a", "dog"]), WordTokenizer.of(symbols)),
            translate=lambda sentences, beam, alpha: [WRITTEN[sentence][0] for sentence in sentences],
        )
    )


def test_parses_of_words(parser):
    parses = parser.parse([["a", "dog", "sleeps", "."], ["yes", "-LRB-", "no", "-RRB-"]])
    assert [str(tree) for tree, _ in parses] == [
        "(S (NP (DT a) (NN dog)) (VP (VB sleeps)) (. .))",
        "(TOP (S (NP (DT yes) (NN -LRB-))) (VB no) (VB -RRB-))",
    ]
    assert [repaired for _, repaired in parses] == [False, True]
    for words in (["New York"], ["a", ""]):
        with pytest.raises(ValueError, match="a word of these sentences is empty or has a space in it"):
            parser.parse([["a"], words])


def test_lines_become_trees_in_their_order(parser):
    def stream(texts):
        for text in texts:
            yield [Translation(symbols, -1.0 - rank) for rank, symbols in enumerate(WRITTEN[text])]

    found = list(parser.trees(["a dog sleeps.", "", "yes ( no )"], stream))
    assert [[score for _, score in best] for best in found] == [[-1.0, -2.0], [-1.0], [-1.0]]
    assert [best[0].text for best in found][1:] == ["", "(TOP (S (NP (DT yes) (NN -LRB-))) (VB no) (VB -RRB-))"]
    assert found[0][1].text == "(S (NP (DT a) (NN dog) (XX sleeps) (XX .)))", "what is missing is added"


# Only trees -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trees():
    return parsed_trees([example.tree for example in bundled.read("val")[:100]] + ["(NN yes)"], "trees")


@pytest.fixture(scope="module")
def tokenizer(trees):
    symbols, _ = tags_first(symbol for tree in trees for symbol in tree.symbols())
    return TokenizerPair(
        WordTokenizer.of(sorted({word for tree in trees for word in tree.words})), WordTokenizer.of(symbols)
    )


def test_every_tree_is_allowed_as_long_as_there_is_room_for_it(tokenizer, trees):
    rules = TreeRules(tokenizer.target)
    for tree in trees:
        (ids,), n = tokenizer.target.encode([" ".join(tree.symbols())]), len(tree.words)
        for longest in (len(ids) + 1, 500):
            state = rules.begin(n + 1, longest)
            for id_ in ids:
                assert rules.allowed(state)[id_] and not rules.allowed(state)[EOS]
                state = rules.after(state, id_)
            assert np.flatnonzero(rules.allowed(state)).tolist() == [EOS]
        if len(ids) > n + 2:  # one symbol less: the last phrase that opens does not fit
            state, fits = rules.begin(n + 1, len(ids)), True
            for id_ in ids:
                fits = fits and rules.allowed(state)[id_]
                state = rules.after(state, id_)
            assert not fits


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("n_tags", [0, 5])
def test_an_untrained_model_writes_trees_over_the_words(tokenizer, beam, n_tags):
    """In whatever room there is, and all different; where there is none for a tree, it is repaired."""
    sizes = {"vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.target.vocab_size, "n_tags": n_tags}
    model = Transformer(ModelConfig(N=1, d_model=8, d_ff=8, h=2, P_drop=0, tied="none", **sizes), dtype="float64")
    model.store.data *= 3
    sentences = [["yes"], "a dog saw it .".split(), ["word"] * 20]
    for extra_length, repairs in ((0, [False, True, True]), (2, [False] * 3), (30, [False] * 3)):
        translator = Translator(model, tokenizer, extra_length, rules=TreeRules(tokenizer.target))
        parses = TreeParser(translator).parse(sentences, beam)
        assert [tree.words for tree, _ in parses] == sentences
        assert [repaired for _, repaired in parses] == repairs
    [best] = TreeParser(translator).trees(["a dog saw it ."], partial(translator.stream, beam=4, nbest=4))
    assert len({text for text, _ in best}) == 4
