import numpy as np


def search(next_word_scores, end, longest, start, best=np.argmax):
    written = []
    for _ in range(longest):
        word = int(best(next_word_scores([*start, *written])))
        if word == end:
            break
        written.append(word)
    return written


def the_start_is_returned(next_word_scores, begin, end, longest):
    """the start symbol is among them"""
    return [begin, *search(next_word_scores, end, longest, [begin])]


def the_end_is_returned(next_word_scores, begin, end, longest):
    """the end symbol is among them"""
    written = []
    while len(written) < longest and end not in written:
        written.append(int(next_word_scores([begin, *written]).argmax()))
    return written


def no_stop_at_the_end(next_word_scores, begin, end, longest):
    """it does not stop at the end symbol"""
    return search(next_word_scores, None, longest, [begin])


def no_limit(next_word_scores, begin, end, longest):
    """it goes on after `longest` words"""
    return search(next_word_scores, end, 10**6, [begin])


def one_too_few(next_word_scores, begin, end, longest):
    """it stops one word too early"""
    return search(next_word_scores, end, longest - 1, [begin])


def the_smallest_score(next_word_scores, begin, end, longest):
    """argmin"""
    return search(next_word_scores, end, longest, [begin], best=np.argmin)


def only_the_last_word_is_shown(next_word_scores, begin, end, longest):
    """the last word alone"""
    written = [begin]
    for _ in range(longest):
        word = int(next_word_scores(written[-1:]).argmax())
        if word == end:
            break
        written.append(word)
    return written[1:]


def without_the_start(next_word_scores, begin, end, longest):
    """not given the start symbol"""
    return search(next_word_scores, end, longest, [])
