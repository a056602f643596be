"""The parsers that are compared with: what they build is worked out by hand."""

from itertools import product
from math import log

import pytest
from baseline_parsers import PCFG, Lexicon, RightBranching, rules_of, word_class

from scratchformer.text.bracket_score import score_parses
from scratchformer.text.bundled import read
from scratchformer.text.trees import Parse, parsed_trees

TREES = parsed_trees(
    [
        "(S (NP (NN cats)) (VP (VB see) (NP (NN dogs))) (. .))",
        "(S (NP (NN dogs)) (VP (VB see) (NP (NN cats) (PP (IN near) (NP (NN dogs))))) (. .))",
        "(S (NP (NN cats)) (VP (VB see)))",
        "(S (NP (NN dogs)) (VP (VB see) (NP (NN cats)) (PP (IN near) (NP (NN cats)))) (. .))",
    ],
    "trees",
)


@pytest.mark.parametrize(
    "words, tree",
    [
        ("cats see dogs .", "(S (NN cats) (VP (VB see) (NN dogs)) (. .))"),
        ("cats see dogs near", "(S (NN cats) (VP (VB see) (VP (NN dogs) (IN near))))"),
        ("cats .", "(S (NN cats) (. .))"),
        ("cats", "(S (NN cats))"),
        (".", "(S (. .))"),
    ],
)
def test_right_branching(words, tree):
    assert str(RightBranching(TREES).parse(words.split())) == tree.replace("VP", "NP")


def test_a_rare_word_is_its_class():
    lexicon = Lexicon(parsed_trees(["(S (NN dog) (NN dog) (VB dog) (VB walked) (VB asked) (NN bed))"], "trees"))
    assert lexicon.log_probabilities("dog") == {"NN": log(2 / 3), "VB": log(1 / 3)}
    assert lexicon.log_probabilities("wanted") == {"NN": log(1 / 3), "VB": log(2 / 3)} and word_class("bed") == "<ed>"
    assert lexicon.usual_tag("Xyz-9") == "NN", "as many as VB, and first in the alphabet"
    assert word_class("Re-opened") == "<A-ed>" and word_class("1990") == "<0>"


def trees_over(grammar, words, symbol, start, end):
    """Every derivation of a span by the grammar, without the code under test: (log-probability, brackets)."""
    log_rule, tags = grammar
    label, *marks = symbol.split()
    if end - start == 1 and symbol in tags[words[start]]:
        yield tags[words[start]][symbol], f"({symbol} {words[start]})"
    for (name, *children), value in log_rule.items():
        if name != symbol:
            continue
        cuts = [(start, end)] if len(children) == 1 else [(start, middle, end) for middle in range(start + 1, end)]
        for cut in cuts:
            parts = [list(trees_over(grammar, words, *each)) for each in zip(children, cut, cut[1:])]
            for chosen in product(*parts):
                inside = " ".join(text for _, text in chosen)
                yield value + sum(inner for inner, _ in chosen), inside if "|" in marks else f"({label} {inside})"


@pytest.mark.parametrize("words", ["cats see", "dogs see cats near dogs .", "cats see dogs near cats near dogs ."])
def test_the_most_probable_tree(words):
    """The best of all derivations, which are listed one by one."""
    rules = [rule for tree in TREES for rule in rules_of(tree)]
    parents = [rule[0] for rule in rules]
    log_rule = {rule: log(rules.count(rule) / parents.count(rule[0])) for rule in rules}
    lexicon = Lexicon(TREES)
    words = words.split()
    grammar = log_rule, {word: lexicon.log_probabilities(word) for word in words}
    found = {tree: value for value, tree in trees_over(grammar, words, "S ^ ", 0, len(words))}
    assert found[str(PCFG(TREES).parse(words))] == pytest.approx(max(found.values()))


def test_a_sentence_without_a_tree_branches_to_the_right():
    for words in (["see", "see", "near"], ["cats"] * 120):
        assert PCFG(TREES).parse(words) == RightBranching(TREES).parse(words)


def test_the_bundled_corpus():
    train, test = (parsed_trees([example.tree for example in read(split)], split) for split in ("val", "test"))
    for parser, least, most in ((RightBranching, 30, 40), (PCFG, 90, 100)):
        trained = parser(train)
        scores = score_parses([Parse(trained.parse(tree.words), False) for tree in test[:100]], test[:100])
        assert least < scores["f1"] < most and scores["n_errors"] == 0
