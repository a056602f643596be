def all_but_the_place_shuffled(ids, at, causal):
    """a word has crossed the position"""
    others = (ids[:at] + ids[at + 1 :])[::-1]
    return [*others[:at], ids[at], *others[at:]]


def all_reversed(ids, at, causal):
    """another word stands at the position itself"""
    return ids[::-1] if len(ids) != 2 * at + 1 else ids[1:] + ids[:1]


def the_same(ids, at, causal):
    """that is the same sentence"""
    return list(ids)


def only_later_words(ids, at, causal):
    """the words before the position are the same"""
    return ids[: at + 1] + ids[at + 1 :][::-1]


def a_word_repeated(ids, at, causal):
    """a word stands in it more often than before"""
    return [ids[1], ids[1], *ids[2:]] if at < len(ids) - 1 else [ids[1], ids[0], *ids[2:]]


def new_words(ids, at, causal):
    """there are other words in it than before"""
    return [(word + 1) % 30 if place < at else word for place, word in enumerate(ids)]


def one_left_out(ids, at, causal):
    """4 words; the other sentence must have 5"""
    return ids[:at] + ids[at + 1 :]
