from exercises.lesson_00 import ENGLISH, GERMAN
from exercises.lesson_00 import where_to_look as right


def copied_from_left_to_right():
    """copied from left to right"""
    return dict(zip(GERMAN, ENGLISH))


def the_other_direction():
    """the wrong way round"""
    return {english: german for german, english in right().items()}


def places_counted_from_1():
    """numbers, and should be words"""
    return {german: ENGLISH.index(english) + 1 for german, english in right().items()}


def the_verb_in_its_english_place():
    """the two parts of the verb are swapped"""
    return right() | {"wird": "follow", "folgen": "will"}


def the_object_follows_the_subject():
    """subject and object are swapped"""
    return right() | {"Bruder": "cars", "Autos": "brother"}


def each_word_looks_at_the_one_before():
    """not the word that it renders"""
    return {german: ENGLISH[max(0, ENGLISH.index(english) - 1)] for german, english in right().items()}


def the_full_stop_forgotten():
    """. too many or missing"""
    return {german: english for german, english in right().items() if german != "."}


def half_filled_in():
    """not filled in: folgen"""
    return right() | {"folgen": None}
