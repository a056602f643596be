from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import FeedForward
from support.agreement import VOCABULARY, Judge, sentences, trained


def test_sentences_are_judged_by_their_words():
    ids, is_right, is_new = sentences()
    assert ids.shape == (256, 4) and is_right.mean() == 0.5 and is_new.mean() == 0.25
    for row, right in zip(ids, is_right):
        _, noun, verb, _ = (VOCABULARY[i] for i in row)
        assert (noun.endswith("s") != verb.endswith("s")) == right


def test_new_pairs_are_not_among_the_known():
    ids, _, is_new = sentences()
    known, new = ({tuple(row) for row in ids[which]} for which in (~is_new, is_new))
    assert not known & new


def test_a_judge_has_the_right_gradient():
    judge = Judge(0, lambda random: [FeedForward(12, 20, random, "float64")])
    report = gradcheck(judge, sentences()[0][:6])
    assert report.passed, report


def test_a_judge_learns():
    ids, is_right, is_new = sentences()
    judge = trained(Judge(1, lambda random: [FeedForward(12, 48, random, "float64")]))
    assert judge.share_right(ids[~is_new], is_right[~is_new]) > 0.9
