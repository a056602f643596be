"""Reading, cleaning, linearising and repairing constituency trees."""

import random

import pytest

from scratchformer.errors import UserError
from scratchformer.text.trees import (
    MAX_DEPTH,
    Parse,
    Tree,
    cleaned,
    parsed_trees,
    phrase_labels,
    read_trees,
    tags_first,
    tree_of,
)

JOHN = "(S (NP (NNP John)) (VP (VBZ sleeps)) (. .))"
PHRASES = {"S", "NP", "VP", "PP", "TOP"}


def one(text):
    (tree,) = parsed_trees(text.split("\n"), "text")
    return tree


def random_tree(rng, depth=0):
    """A tree with unary chains, phrases over several words, and labels that repeat."""
    if depth and rng.random() < 0.4 or depth == 8:
        return Tree(rng.choice(["NN", "VB", ".", ",", "``"]), (), rng.choice(["a", "b", "-LRB-"]))
    children = tuple(random_tree(rng, depth + 1) for _ in range(rng.choice([1, 1, 2, 3])))
    return Tree(rng.choice(["S", "NP", "VP", "ADVP", "PRT"]), children)


def test_the_symbols_of_a_tree():
    assert " ".join(one(JOHN).symbols()) == "S NP NNP /NP VP VBZ /VP . /S"
    assert one(JOHN).words == ["John", "sleeps", "."] and one(JOHN).tags == ["NNP", "VBZ", "."]
    assert str(Tree("NN", (), "f(x)")) == "(NN f-LRB-x-RRB-)"


def test_brackets_and_symbols_give_the_tree_back():
    rng = random.Random(0)
    for _ in range(300):
        tree = random_tree(rng)
        assert one(str(tree)) == tree
        assert tree_of(tree.symbols(), tree.words, phrase_labels(tree.symbols())) == Parse(tree, False)


def test_tags_come_first():
    tree = one("(S (NP (PRP it)) (VP (VBZ is) (NP (NP (NN a)))) (. .))")
    assert tags_first(tree.symbols() * 2) == ([".", "NN", "PRP", "VBZ", "/NP", "/S", "/VP", "NP", "S", "VP"], 4)


def test_trees_may_be_spread_over_lines(tmp_path):
    path = tmp_path / "wsj_0001.mrg"
    path.write_text(f"\n( (S\n    (NP-SBJ (NNP John) )\n  (VP (VBZ sleeps))\n(. .) )) {JOHN}\n\n{JOHN}\n", "utf-8")
    trees = read_trees(path)
    assert [str(cleaned(tree)) for tree in trees] == [JOHN] * 3


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("(S (NN a))\n\n(S\n(NN a)", "line 3: the tree that begins here does not end"),
        ("(S (NN a)))", "line 1: "),
        ("(S (NN a))\nword", "line 2: "),
        ("(S\n(NP))", "line 2: "),
        ("(S ())", "line 1: "),
        ("(NN two words)", "'words' is wrong in '(NN two words)'"),
        ("(S (NN a) b)", "'b' is wrong"),
        ("(NP a (NN b))", "'(' is wrong"),
        ("(S ((NN b)))", "')' is wrong"),
        ("(S (/NP (NN b)))", "'/NP' is wrong"),
        ("(S " * 10**4, f"at most {MAX_DEPTH} levels"),
    ],
)
def test_text_that_is_not_a_tree(text, complaint):
    with pytest.raises(UserError) as caught:
        one(text)
    said = str(caught.value)
    assert complaint in said and said.startswith("text, line ") and "\n" not in said
    assert "does not end" in said or "not a tree in Penn brackets, as (S" in said


def test_the_deepest_tree():
    tree = one("(S " * (MAX_DEPTH - 1) + "(NN a)" + ")" * (MAX_DEPTH - 1))
    assert cleaned(tree) == tree == one(str(tree))
    assert tree_of(tree.symbols(), ["a"], {"S"}) == Parse(tree, False)


@pytest.mark.parametrize(
    "raw, clean",
    [
        (f"( {JOHN})", JOHN),
        (f"(TOP {JOHN})", JOHN),
        (f"(ROOT {JOHN})", JOHN),
        (JOHN, JOHN),
        ("( (S (NP-SBJ-1 (NN a)) (VP=2 (VB b))) (. .))", "(TOP (S (NP (NN a)) (VP (VB b))) (. .))"),
        ("(S (NP-SBJ (-NONE- *-1)) (VP (VB b) (NP (-NONE- *))))", "(S (VP (VB b)))"),
        ("(S (NP (NP (-NONE- *)) (PP (-NONE- *))) (VB b))", "(S (VB b))"),
        ("(NP (-LRB- -LRB-) (NN a) (-RRB- -RRB-))", "(NP (-LRB- -LRB-) (NN a) (-RRB- -RRB-))"),
        ("(PRT|ADVP (RP up))", "(PRT (RP up))"),
        ("(ADVP|PRT (RP up))", "(PRT (RP up))"),
        ("(VP (TO to) (NP=1-2 (PRP$ my)))", "(VP (TO to) (NP (PRP$ my)))"),
        ("( (NN a))", "(NN a)"),
        ("( (S (NP-SBJ (-NONE- *))))", "None"),
    ],
)
def test_cleaning(raw, clean):
    assert str(cleaned(one(raw))) == clean


@pytest.mark.parametrize(
    "symbols, repaired",
    [
        ("S NP NN VP VB /VP /S", "(S (NP (NN a) (VP (VB b))))"),  # /NP is missing: /S closes both
        ("S NP NN /NP VP VB", "(S (NP (NN a)) (VP (VB b)))"),
        ("S NP NN /NP /PP VP VB /VP /S", "(S (NP (NN a)) (VP (VB b)))"),
        ("S NP NN /NP VP VB /VP /S /S", "(S (NP (NN a)) (VP (VB b)))"),
        ("S NP NN /NP VP VB NN NN /VP /S", "(S (NP (NN a)) (VP (VB b)))"),
        ("S NP NN /NP VP VB /VP PP IN /PP /S", "(S (NP (NN a)) (VP (VB b)))"),  # PP is left without a word
        ("S NP NN /NP VP", "(S (NP (NN a)) (VP (XX b)))"),
        ("S NP NN /NP /S", "(S (NP (NN a)) (XX b))"),
        ("NP NN /NP VP VB /VP", "(TOP (NP (NN a)) (VP (VB b)))"),
        ("NP NN /NP VP", "(TOP (NP (NN a)) (VP (XX b)))"),
        ("NN", "(TOP (NN a) (XX b))"),
        ("NN VB", "(TOP (NN a) (VB b))"),
        ("/S / NP /NP", "(TOP (XX a) (XX b))"),
        ("", "(TOP (XX a) (XX b))"),
    ],
)
def test_repairs(symbols, repaired):
    parse = tree_of(symbols.split(), ["a", "b"], PHRASES)
    assert (str(parse.tree), parse.repaired) == (repaired, True)


def test_any_symbols_give_a_tree_over_the_words():
    rng = random.Random(0)
    alphabet = ["S", "NP", "/S", "/NP", "/", "NN", "VB"]
    for _ in range(1000):
        symbols, words = rng.choices(alphabet, k=rng.randint(0, 300)), ["w"] * rng.randint(1, 9)
        tree, repaired = tree_of(symbols, words, {"S", "NP"})
        assert tree.words == words and all(phrase.words for phrase in tree.phrases())
        assert repaired == (tree.symbols() != symbols)
    tree, _ = tree_of(["S"] * 1000 + ["NN"], ["a"], {"S"})
    assert one(str(tree)) == tree, "as deep as a tree that is read"
