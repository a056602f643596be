import numpy as np


def changed(ids, b, s):
    other = ids.copy()
    other[b, s] = ids[b, s] % 10 + 1
    return other


def sees_the_future(model, source, target, sentences, places, tolerance=1e-9):
    logits = model(source, target)
    return any(
        np.abs(model(source, changed(target, b, s)) - logits)[:, :s].max() > tolerance
        for b in sentences
        for s in places
    )


def rest(model, source, target, columns=2):
    logits = model(source, target)
    if np.abs(model(np.pad(source, ((0, 0), (0, columns))), target) - logits).max() > 1e-9:
        return "padding"
    return "deaf" if np.abs(model(changed(source, 0, 0), target) - logits).max() < 1e-9 else "honest"


def no_question_about_dice(model, source, target):
    """one whose dropout stays on: it says 'future'"""
    return "future" if sees_the_future(model, source, target, range(3), range(1, 4)) else rest(model, source, target)


def rolled(model, source, target):
    return (model(source, target) != model(source, target)).any()


def allows_a_tolerance(model, source, target):
    """(a faint leak is one): it says 'honest'"""
    if rolled(model, source, target):
        return "dice"
    future = sees_the_future(model, source, target, range(3), range(1, 4), 1e-4)
    return "future" if future else rest(model, source, target)


def looks_at_the_first_sentence(model, source, target):
    """in the last sentence of a batch only: it says 'honest'"""
    if rolled(model, source, target):
        return "dice"
    return "future" if sees_the_future(model, source, target, [0], range(1, 4)) else rest(model, source, target)


def no_question_about_padding(model, source, target):
    """one whose encoder reads the padding of the source: it says 'honest'"""
    if rolled(model, source, target):
        return "dice"
    future = sees_the_future(model, source, target, range(3), range(1, 4))
    return "future" if future else rest(model, source, target, columns=0)


def changes_the_padding_of_a_deaf_source(model, source, target):
    """a Transformer: it says 'deaf'"""
    said = verdict_without_deaf(model, source, target)
    wider = np.pad(source, ((0, 0), (0, 1)))
    same = np.abs(model(wider, target) - model(source, target)).max() < 1e-9
    return "deaf" if said == "honest" and same else said


def verdict_without_deaf(model, source, target):
    if rolled(model, source, target):
        return "dice"
    said = "future" if sees_the_future(model, source, target, range(3), range(1, 4)) else rest(model, source, target)
    return "honest" if said == "deaf" else said


def never_asks_for_the_source(model, source, target):
    """one that gets only the length of its source: it says 'honest'"""
    return verdict_without_deaf(model, source, target)


def counts_the_own_symbol_as_future(model, source, target):
    """a Transformer: it says 'future'"""
    if rolled(model, source, target):
        return "dice"
    logits = model(source, target)
    own = np.abs(model(source, changed(target, 0, 2)) - logits)[:, :3].max() > 1e-9
    return "future" if own else rest(model, source, target)


def says_nothing(model, source, target):
    """it says None"""
