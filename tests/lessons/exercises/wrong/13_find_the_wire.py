import numpy as np

SOURCE, TARGET = np.array([[3, 4, 5, 6]]), np.array([[2, 7, 8, 9]])


def tests(logits):
    before = logits(SOURCE, TARGET)

    def moved(source, target):
        return (np.abs(logits(source, target) - before) > 1e-9).any(axis=(0, 2))

    repeated = logits(SOURCE, np.full_like(TARGET, 7))
    return {
        "memory": not moved(np.array([[3, 10, 5, 6]]), TARGET).any(),
        "causal mask": moved(SOURCE, np.array([[2, 7, 8, 10]]))[:-1].any(),
        "decoder attention": not moved(SOURCE, np.array([[2, 10, 8, 9]]))[-1],
        "source positions": not moved(np.array([[4, 3, 5, 6]]), TARGET).any(),
        "padding mask": moved(np.array([[3, 4, 5, 6, 0, 0]]), TARGET).any(),
        "target positions": (np.abs(repeated - repeated[:, :1]) <= 1e-9).all(),
    }


def first(found, *names):
    return next((name for name in names if found[name]), "none")


def always_whole(logits):
    """where 'memory' is right it says 'none'; where 'decoder attention' is right it says 'none'"""
    return "none"


def shuffled_before_changed(logits):
    """where 'memory' is right it says 'source positions'"""
    return first(
        tests(logits),
        "source positions",
        "memory",
        "causal mask",
        "decoder attention",
        "padding mask",
        "target positions",
    )


def rounding_taken_for_a_difference(logits):
    """where 'source positions' is right it says 'none'"""
    # No two numbers are equal to the last bit, so it never finds these: "source positions", "target positions".
    return first(tests(logits), "memory", "causal mask", "decoder attention", "padding mask")


def no_padding_tried(logits):
    """where 'padding mask' is right it says 'none'"""
    return first(tests(logits), "memory", "causal mask", "decoder attention", "source positions", "target positions")


def words_that_do_not_repeat(logits):
    """where 'target positions' is right it says 'none'"""
    return first(tests(logits), "memory", "causal mask", "decoder attention", "source positions", "padding mask")


def another_name(logits):
    """it returns 'cross-attention', and should return one of"""
    return "cross-attention" if tests(logits)["memory"] else "none"
