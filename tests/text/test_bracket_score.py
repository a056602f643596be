"""Scores of parses, worked out by hand from the rules."""

import random

import pytest
from test_trees import one, random_tree

from scratchformer.errors import UserError
from scratchformer.text.bracket_score import count_brackets, score_parses
from scratchformer.text.trees import Parse, tree_of

GOLD = "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))) (. .))"


def counts(parse, gold):
    """matched, predicted, gold"""
    return count_brackets(Parse(one(parse), False), one(gold))[1:4]


def test_a_parse_worked_out_by_hand():
    # Gold: S 0-5, NP 0-2, VP 2-5, NP 3-5. Parse: S 0-5, NP 0-2, VP 2-4, NP 3-4, where "cat" is outside of the VP.
    parse = "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a))) (VB cat) (. .))"
    scores = score_parses([Parse(one(parse), True), Parse(one(GOLD), False)], [one(GOLD)] * 2)
    assert counts(parse, GOLD) == (2, 4, 4)
    expected = {"f1": 75, "precision": 75, "recall": 75, "complete_match": 50, "unparsable": 50, "n_errors": 0}
    assert scores == expected | {"tagging_accuracy": 90, "n_sentences": 2}, "of ten words, one; the full stop is none"


@pytest.mark.parametrize(
    "parse, gold, expected",
    [
        # a chain over one word: each phrase counts, and its order does not
        ("(S (NP (NN a)))", "(S (NP (NN a)))", (2, 2, 2)),
        ("(NP (S (NN a)))", "(S (NP (NN a)))", (2, 2, 2)),
        ("(S (VP (NN a)))", "(S (NP (VP (NN a))))", (2, 2, 3)),
        # a bracket that occurs twice must be found twice, and counts once if it was found once
        ("(NP (NP (NN a)))", "(NP (NP (NN a)))", (2, 2, 2)),
        ("(NP (NN a))", "(NP (NP (NN a)))", (1, 1, 2)),
        ("(NP (NP (NP (NN a))))", "(NP (NP (NN a)))", (2, 3, 2)),
        # where punctuation is attached does not matter
        ("(S (NP (NN a)) (VP (VB b) (. .)))", "(S (NP (NN a)) (VP (VB b)) (. .))", (3, 3, 3)),
        ("(S (NP (, ,) (NN a) (: -)) (VP (VB b)))", "(S (, ,) (NP (NN a)) (: -) (VP (VB b)))", (3, 3, 3)),
        ("(S (`` ``) (NP (NN a) ('' '')) (VP (VB b)))", "(S (NP (`` ``) (NN a)) ('' '') (VP (VB b)))", (3, 3, 3)),
        # but a bracket, a dollar sign or a question mark with another tag is a word
        ("(S (NP (-LRB- -LRB-) (NN a)))", "(S (-LRB- -LRB-) (NP (NN a)))", (1, 2, 2)),
        # the gold tags say what punctuation is: "." tagged as a noun is left out all the same, and "a" is not
        ("(S (NP (. a)) (VP (VB b)) (NP (NN .)))", "(S (NP (NN a)) (VP (VB b)) (. .))", (3, 3, 3)),
        # a phrase of punctuation alone has no width
        ("(S (NP (NN a)) (NP (. .)))", "(S (NP (NN a)) (. .))", (2, 2, 2)),
        # ADVP and PRT are the same, TOP and the tags are nothing
        ("(VP (VB a) (ADVP (RP b)))", "(VP (VB a) (PRT (RP b)))", (2, 2, 2)),
        ("(TOP (NP (NN a)) (VP (VB b)))", "(S (NP (NN a)) (VP (VB b)))", (2, 2, 3)),
        ("(NN a)", "(NN a)", (0, 0, 0)),
        ("(NP (NN a))", "(VP (NN a))", (0, 1, 1)),
    ],
)
def test_cases_worked_out_by_hand(parse, gold, expected):
    assert counts(parse, gold) == expected
    assert counts(gold, parse) == (expected[0], expected[2], expected[1]) or "(. a)" in parse


def test_precision_and_recall_are_not_the_same():
    # Two brackets of three were found in the first sentence, one of one in the second, with two too many.
    parses = ["(S (NP (NN a)) (VB b))", "(S (NP (NP (NN a))))"]
    gold = ["(S (NP (NN a)) (VP (VB b)))", "(S (NN a))"]
    scores = score_parses([Parse(one(parse), False) for parse in parses], list(map(one, gold)))
    assert (scores["precision"], scores["recall"], scores["f1"]) == (100 * 3 / 5, 100 * 3 / 4, 100 * 6 / 9)


def test_any_output_of_a_model_is_scored():
    """No sentence is an error, whatever the symbols are, and precision and recall change places with the trees."""
    rng = random.Random(1)
    for _ in range(300):
        gold = random_tree(rng)
        symbols = rng.choices(["S", "NP", "/S", "/NP", "NN", ".", "``"], k=30)
        parse = tree_of(symbols, gold.words, {"S", "NP"})
        counted = count_brackets(parse, gold)
        assert counted.errors == 0 and counted.matched <= min(counted.predicted, counted.gold)
        back = count_brackets(Parse(gold, False), parse.tree.with_tags(gold.tags))
        assert (back.matched, back.predicted, back.gold) == (counted.matched, counted.gold, counted.predicted)


def test_other_words_are_an_error():
    scores = score_parses([Parse(one("(S (NN a))"), False)] * 2, [one("(S (NN a))"), one("(S (NN b))")])
    assert (scores["n_errors"], scores["f1"]) == (1, 100)


def test_nothing_to_score():
    with pytest.raises(UserError, match="no parses"):
        score_parses([], [])
    with pytest.raises(UserError, match="1 parses .* 0 gold"):
        score_parses([Parse(one(GOLD), False)], [])
