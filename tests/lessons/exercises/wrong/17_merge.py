def first_place_only(word, pair, new):
    """only the first place is merged"""
    for i in range(len(word) - 1):
        if (word[i], word[i + 1]) == pair:
            return [*word[:i], new, *word[i + 2 :]]
    return word


def walking_from_the_right(word, pair, new):
    """merged from the right"""
    result, i = [], len(word) - 1
    while i >= 0:
        here = i > 0 and (word[i - 1], word[i]) == pair
        result.append(new if here else word[i])
        i -= 2 if here else 1
    return result[::-1]


def steps_over_one(word, pair, new):
    """a piece is used twice"""
    result, used = [], False
    for i, piece in enumerate(word):
        here = i + 1 < len(word) and (piece, word[i + 1]) == pair
        if here or not used:
            result.append(new if here else piece)
        used = here
    return result


def as_a_set(word, pair, new):
    """the pair is taken in either order"""
    result, i = [], 0
    while i < len(word):
        here = sorted(word[i : i + 2]) == sorted(pair)
        result.append(new if here else word[i])
        i += 2 if here else 1
    return result


def replaced_in_a_string(word, pair, new):
    """replaced as text"""
    text = ",".join(map(str, word)).replace("{},{}".format(*pair), str(new))
    return list(map(int, text.split(",")))


def stops_before_the_last(word, pair, new):
    """the last piece is lost when it is not merged"""
    result, i = [], 0
    while i < len(word) - 1:
        here = (word[i], word[i + 1]) == pair
        result.append(new if here else word[i])
        i += 2 if here else 1
    return result


def in_place(word, pair, new):
    """the argument word is changed in place"""
    for i in range(len(word) - 1, 0, -1):
        if (word[i - 1], word[i]) == pair:
            word[i - 1 : i + 1] = [new]
    return word
