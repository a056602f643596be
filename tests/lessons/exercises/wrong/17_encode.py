def merge(word, pair, new, once=False):
    result, i, done = [], 0, False
    while i < len(word):
        here = tuple(word[i : i + 2]) == pair and not (once and done)
        result.append(new if here else word[i])
        i += 2 if here else 1
        done = done or here
    return result


def any_learnt_pair(word, merges, n_characters):
    """any learnt pair is merged, from left to right"""
    i = 0
    while i < len(word) - 1:
        if (word[i], word[i + 1]) in merges:
            word = [*word[:i], n_characters + merges.index((word[i], word[i + 1])), *word[i + 2 :]]
            i = 0
        else:
            i += 1
    return word


def longest_piece(word, merges, n_characters):
    """the longest piece that fits is taken"""
    pieces = [(i,) for i in range(n_characters)]
    for a, b in merges:
        pieces.append(pieces[a] + pieces[b])
    ids = []
    while word:
        best = max(
            (i for i, piece in enumerate(pieces) if tuple(word[: len(piece)]) == piece), key=lambda i: len(pieces[i])
        )
        ids.append(best)
        word = word[len(pieces[best]) :]
    return ids


def latest_first(word, merges, n_characters):
    """from the last to the first"""
    for i in reversed(range(len(merges))):
        word = merge(word, merges[i], n_characters + i)
    return word


def each_merge_once(word, merges, n_characters):
    """a merge is replayed at its first place only"""
    for i, pair in enumerate(merges):
        word = merge(word, pair, n_characters + i, once=True)
    return word


def numbers_of_merges(word, merges, n_characters):
    """the new ids begin at 0"""
    for i, pair in enumerate(merges):
        word = merge(word, pair, n_characters + i)
    return [i if i < n_characters else i - n_characters for i in word]


def one_merge_too_few(word, merges, n_characters):
    """the last merge is forgotten"""
    for i, pair in enumerate(merges[:-1]):
        word = merge(word, pair, n_characters + i)
    return word
