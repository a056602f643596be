import pytest

from support.beam_pictures import (
    BEST,
    CONFUSED,
    DROPPED,
    GREEDY,
    NEXT,
    PLACES,
    RANKS,
    beam,
    confused,
    probability,
    tree,
)


def test_the_miniature_is_a_model():
    for after in NEXT.values():
        assert sum(after.values()) == pytest.approx(1)
    whole = {
        (*words, piece): probability((*words, piece)) for words in NEXT if len(words) == 2 for piece in NEXT[words]
    }
    assert sum(whole.values()) == pytest.approx(1)
    ended = {words: p for words, p in whole.items() if words[-1] == "</s>"}
    assert max(ended, key=ended.get) == BEST and probability(BEST) == pytest.approx(0.288)


def test_greedy_search_loses():
    words = ()
    while words in NEXT:
        words = (*words, max(NEXT[words], key=NEXT[words].get))
    assert words == GREEDY and probability(GREEDY) == pytest.approx(0.18)


def test_the_rows_are_the_ranks_of_a_beam_of_2():
    for t in 1, 2:
        ranked = sorted((words for words in PLACES if len(words) == t), key=probability, reverse=True)
        assert [RANKS.get(words) for words in ranked[:2]] == [0, 1]
        assert set(ranked[2:]) == {words for words in DROPPED if len(words) == t}


def test_a_cache_in_its_row_belongs_to_the_other_parent():
    for words, taken_for in CONFUSED.items():
        assert taken_for in DROPPED and taken_for[1] == words[1] and taken_for[0] != words[0]


@pytest.mark.parametrize("picture", [tree, beam, confused])
def test_every_number_is_drawn(picture):
    drawn = picture().svg()
    assert drawn.count("<svg") == 1 and all(
        words[-1] in drawn.replace("&lt;", "<").replace("&gt;", ">") for words in PLACES if words
    )
