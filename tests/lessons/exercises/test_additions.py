"""Wrong answers of a learner to the functions of more.py, written as she may write them, and what she is told."""

import inspect

import pytest

from exercises.additions import BOOTSTRAP, CLIPPED_COUNTS, COUNT_PAIRS, LEARN_MERGES, MERGE
from exercises.checker import check
from exercises.source import ours

TIES = "lambda ab: (-pairs[ab], len(''.join(ab)), ''.join(ab))"
LEARN = f"""
def learn_merges(words, n):
    merges = []
    while len(merges) < n and (pairs := count_pairs(words)):
        merges.append(min(pairs, key={TIES}))
        words = {{merge(symbols, merges[-1]): count for symbols, count in words.items()}}
    return merges
"""
MERGED = """
def merge(symbols, pair):
    return {}
"""
BOTH = """
def bootstrap(a, b, references, rng, samples=1000):
    differences, n = [], len(references)
    for _ in range({}):
        drawn = {}
        chosen = [[x[i] for i in drawn] for x in (a, b, references)]
        differences.append(bleu(chosen[1], chosen[2]) - bleu(chosen[0], chosen[2]))
    return np.percentile(differences, [2.5, 97.5])
"""
SORTED = BOTH.format("samples", "rng.integers(0, n, n)").replace("np.percentile(differences, [2.5, 97.5])", "{}")
SORTED = SORTED.replace("return", "differences.sort()\n    return")


@pytest.mark.parametrize(
    "function, code, told",
    [
        (
            COUNT_PAIRS,
            "def count_pairs(words): return {'und': 2}",
            "a pair of count_pairs is 'und', and should be a tup",
        ),
        (
            COUNT_PAIRS,
            "def count_pairs(words): return [('u', 'n')]",
            "count_pairs returns a list, and should return a d",
        ),
        (MERGE, MERGED.format("list(symbols)"), "merge returns a list, and should return a tuple of symbols"),
        (MERGE, MERGED.format("(pair, *symbols)"), "merge returns ('a', 'b') among the symbols, and a symbol is a str"),
        (MERGE, MERGED.format("symbols[:0]"), "word is wrong: 'ab' is missing"),
        (MERGE, MERGED.format("('x', 'ab', 'c', 'b', 'a', 'ab')"), "word is wrong: 'x' is too many"),
        (MERGE, MERGED.format("symbols"), "word is wrong: 'a' stands where 'ab' should"),
        (LEARN_MERGES, LEARN, "list is wrong: 'a bc' is missing"),  # no mistake that is wrong where this is right
        (
            CLIPPED_COUNTS,
            "def clipped_counts(hypothesis, reference): return [[1], 2]",
            "clipped_counts returns a list,",
        ),
        (
            BOOTSTRAP,
            BOTH.format("samples", "np.random.randint(0, n, n)"),
            "use of rng is wrong: '0 times integers(0, n,",
        ),
        (
            BOOTSTRAP,
            BOTH.format("samples", "rng.integers(0, n, 9 * n)"),
            "use of rng is wrong: '369 times integers(0, n",
        ),
        (BOOTSTRAP, BOTH.format("samples", "rng.choice(n, n)"), "right in 4 cases"),
        (
            BOOTSTRAP,
            SORTED.format("differences[int(0.025 * samples)], differences[int(0.975 * samples)]"),
            "right in 4 cases",
        ),
        (BOOTSTRAP, SORTED.format("differences[25], differences[-26]"), "interval is wrong: a fixed number is cut off"),
        (
            BOOTSTRAP,
            SORTED.format("differences[25], differences[974]"),
            "after 41 times integers(0, n, n): list index out of range. If you sort, cut off 2.5 %",
        ),
    ],
)
def test_what_is_said_helps(function, code, told):
    module = ours("more")
    exec(inspect.cleandoc(code), vars(module))
    assert check(function, module).message.startswith(told)
