"""Exercises of lesson 18: padding, batches under a budget, the gradient of a step, and what a batch plan must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from exercises.exercise import Backward, Break, Build, Result, Values, misjudgements
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import PAD, Ops
from scratchformer.nn.parameter import Array
from scratchformer.text.batches import BatchPlan, EncodedPairs, Sequences, batches_in_order

REFERENCE = Ops(np)


def sequences_of(lengths: Array) -> Sequences:
    """Sequences of these lengths (n,), all of one token."""
    return Sequences(np.full(lengths.sum(), PAD + 1, np.int32), np.concatenate([[0], np.cumsum(lengths)]))


def pairs_of(source_lengths: Array, target_lengths: Array) -> EncodedPairs:
    longest = int(max(source_lengths.max(), target_lengths.max()))
    return EncodedPairs(sequences_of(source_lengths), sequences_of(target_lengths), np.arange(len(source_lengths)),
                        longest, n_dropped=0)


# 18_padding_share -----------------------------------------------------------------------------------------------------


def padding_share(source_lengths: Array, target_lengths: Array, batches: list[Array]) -> float:
    pairs = pairs_of(source_lengths, target_lengths)
    made = [pairs.batch(indices) for indices in batches]
    return 1 - sum(batch.n_source_tokens + batch.n_target_tokens for batch in made) / sum(
        batch.n_positions for batch in made)


def real(lengths: Array, batches: list[Array]) -> Array:
    """Real tokens of each batch: (batches,)"""
    return np.array([lengths[batch].sum() for batch in batches])


def positions(lengths: Array, batches: list[Array]) -> Array:
    """Positions of each batch, padded to its own longest: (batches,)"""
    return np.array([len(batch) * lengths[batch].max() for batch in batches])


def share_case(n: int, *ends: int):
    """n pairs, shuffled and cut at these places."""
    return lambda random: {"source_lengths": random.integers(1, 20, n), "target_lengths": random.integers(1, 25, n),
                           "batches": np.split(random.permutation(n), ends)}


PADDING_SHARE = Build(
    id="18_padding_share",
    title="Measure which share of all positions is padding",
    function="padding_share",
    arguments=("source_lengths", "target_lengths", "batches"),
    cases={"batches of 7, 2 and 5 pairs": share_case(14, 7, 9), "one batch of six pairs": share_case(6),
           "not all pairs are in a batch": lambda random: share_case(14, 7, 9)(random) | {
               "batches": [np.array([3, 1, 8]), np.array([0, 13])]}},
    expected=lambda source_lengths, target_lengths, batches: 1 - np.divide(
        *(sum(count(lengths, batches).sum() for lengths in (source_lengths, target_lengths))
          for count in (real, positions))),
    result=Result("share", suspects={
        "this is the share of real tokens; padding is the rest": lambda truth: 1 - truth,
        "only the source is counted; the target array is padded, too": lambda source_lengths, batches:
            1 - real(source_lengths, batches).sum() / positions(source_lengths, batches).sum(),
        "only the target is counted; the source array is padded, too": lambda target_lengths, batches:
            1 - real(target_lengths, batches).sum() / positions(target_lengths, batches).sum(),
        "the mean of the shares of the batches: a large batch must count more than a small one":
            lambda source_lengths, target_lengths, batches: np.mean(1 - np.divide(*(
                sum(count(lengths, batches) for lengths in (source_lengths, target_lengths))
                for count in (real, positions)))),
        "a batch is padded to its own longest sentence, not to the longest of all":
            lambda source_lengths, target_lengths, batches: 1 - sum(
                real(lengths, batches).sum() for lengths in (source_lengths, target_lengths)) / (
                sum(map(len, batches)) * (source_lengths.max() + target_lengths.max())),
        "padding in proportion to the real tokens; asked for is its share of all positions":
            lambda truth: truth / (1 - truth),
        "both sides are padded to one length; source and target are two arrays, each with a width of its own":
            lambda source_lengths, target_lengths, batches: 1 - sum(
                real(lengths, batches).sum() for lengths in (source_lengths, target_lengths)) / (
                2 * positions(np.maximum(source_lengths, target_lengths), batches).sum())}),
    solution=padding_share,
    library=(EncodedPairs.batch, Sequences.padded),
    hints=(
        "source_lengths and target_lengths are (n,); each batch is an array of indices (B,) into both. The result is "
        "one number from 0 to 1.",
        "A batch of B pairs is two arrays: B times its longest source, and B times its longest target. Add up the "
        "positions of all batches, and the real tokens of the same pairs.",
        "share = 1 - (sum of real tokens) / (sum over batches of B * (longest source + longest target)).",
    ),
)

# 18_fill_batches ------------------------------------------------------------------------------------------------------


def fill_batches(lengths: Array, budget: int) -> Array:
    numbers = np.empty(len(lengths), int)
    for number, batch in enumerate(batches_in_order(pairs_of(lengths, lengths), budget)):
        numbers[batch.indices] = number
    return numbers


def filled(lengths: Array, order: Iterable[int], full: Callable[[list[int]], bool]) -> Array:
    """The number of each sentence's batch, if a batch ends before the sentence that would make it `full`."""
    batch: list[int] = []
    numbers, number = np.empty(len(lengths), int), 0
    for i in order:
        if batch and full([*batch, int(lengths[i])]):
            batch, number = [], number + 1
        batch.append(int(lengths[i]))
        numbers[i] = number
    return numbers


def area(batch: list[int]) -> int:
    return len(batch) * max(batch)


def upwards(lengths: Array) -> Array:
    return np.argsort(lengths, kind="stable")


def fill_case(budget: int, lengths: list[int]):
    return lambda random: {"lengths": random.permutation(lengths), "budget": budget}


FILL_BATCHES = Build(
    id="18_fill_batches",
    title="Fill batches under a budget of padded positions",
    function="fill_batches",
    arguments=("lengths", "budget"),
    cases={
        "fourteen sentences": fill_case(24, [2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 11, 12, 13, 20]),
        "lengths that fill a batch to the last position": fill_case(12, [3, 3, 3, 3, 4, 4, 4, 6, 6, 12]),
        "sentences of one length": fill_case(10, [5, 5, 5, 5, 5]),
        "one sentence": fill_case(9, [9]),
    },
    expected=lambda lengths, budget: filled(lengths, upwards(lengths), lambda batch: area(batch) > budget),
    result=Result("numbers", suspects={
        "the budget counts real tokens here; it is meant for positions, padding included: sentences times the longest":
            lambda lengths, budget: filled(lengths, upwards(lengths), lambda batch: sum(batch) > budget),
        "the sentences are not sorted: fill batches from the shortest to the longest":
            lambda lengths, budget: filled(lengths, range(len(lengths)), lambda batch: area(batch) > budget),
        "from the longest to the shortest; the shortest sentence belongs into batch 0":
            lambda lengths, budget: filled(lengths, upwards(lengths)[::-1], lambda batch: area(batch) > budget),
        "a fixed number of sentences, as many as fit of the longest: short ones take less room, so more of them fit":
            lambda lengths, budget: filled(
                lengths, upwards(lengths), lambda batch: len(batch) > budget // lengths.max()),
        "a batch may be exactly full: it ends only before the sentence that would exceed the budget":
            lambda lengths, budget: filled(lengths, upwards(lengths), lambda batch: area(batch) >= budget),
        "batches exceed the budget: the next sentence, and the width it brings, must be counted before it is put in":
            lambda lengths, budget: filled(lengths, upwards(lengths), lambda batch: area(batch[:-1]) >= budget),
        "these are the numbers in sorted order: numbers[i] belongs to the sentence lengths[i]":
            lambda truth: np.sort(truth),
        "the first batch has the number 0": lambda truth: truth + 1}),
    solution=fill_batches,
    library=(batches_in_order,),
    hints=(
        "lengths (n,); the result is (n,) of integers: numbers[i] is the number, from 0, of the batch of sentence i.",
        "Go through the sentences from short to long (np.argsort with kind='stable'). With the next one, the batch "
        "would have one row more and be as wide as that sentence: if this is above the budget, a new batch begins.",
        "A new batch begins if (size + 1) * length > budget.",
    ),
)

# 18_accumulate --------------------------------------------------------------------------------------------------------


def accumulate(dloss: Array, x: Array, W: Array, targets: Array) -> dict[str, Array]:
    dW, n_tokens = np.zeros_like(W), 0
    for x_m, targets_m in zip(x, targets):
        _, n_m, dscores = cross_entropy(REFERENCE.linear(x_m, W, None), targets_m)
        REFERENCE.linear_backward(dscores, x_m, W, dW, None)
        n_tokens += n_m
    total = dW.reshape(-1)
    REFERENCE.divide_inplace(total, n_tokens)
    return {"dW": dloss * dW}


def step_loss(x: Array, W: Array, targets: Array) -> Array:
    sums, counts, _ = zip(*(cross_entropy(x_m @ W, targets_m) for x_m, targets_m in zip(x, targets)))
    return np.array(sum(sums) / sum(counts))


def gradients_of_sums(x: Array, W: Array, targets: Array) -> Array:
    """Of each micro-batch: (M, D, V)"""
    return np.stack([x_m.T @ cross_entropy(x_m @ W, targets_m)[2] for x_m, targets_m in zip(x, targets)])


def counts_of(targets: Array) -> Array:
    return (targets != PAD).sum(axis=1)


def mean_of_means(dloss: Array, x: Array, W: Array, targets: Array) -> Array:
    return dloss * (gradients_of_sums(x, W, targets) / counts_of(targets)[:, None, None]).mean(axis=0)


def padding_asked_for(dloss: Array, x: Array, W: Array, targets: Array) -> Array:
    """As if PAD were an answer like any other: classes are moved up by one, so that 0 is free for padding."""
    room = np.full((len(W), 1), -np.inf)
    rows = x.reshape(-1, len(W))
    scores = np.concatenate([np.broadcast_to(room[:1], (len(rows), 1)), rows @ W], axis=1)
    dscores = cross_entropy(scores, targets.reshape(-1) + 1)[2][:, 1:]
    return dloss * rows.T @ dscores / counts_of(targets).sum()


def micro_batches(*counts: int, B: int = 6, D: int = 3, V: int = 7):
    """Micro-batches of B places, so many of which are real."""
    def case(random: np.random.Generator) -> Values:
        targets = random.integers(1, V, (len(counts), B))
        return {"x": random.normal(size=(len(counts), B, D)), "W": random.normal(size=(D, V)),
                "targets": np.where(np.arange(B) < np.array(counts)[:, None], targets, PAD)}
    return case


ACCUMULATE = Backward(
    id="18_accumulate",
    title="The gradient of a step, micro-batch by micro-batch",
    function="accumulate",
    arguments=("dloss", "x", "W", "targets"),
    cases={"micro-batches of 5, 2 and 4 tokens": micro_batches(5, 2, 4), "of 1 and 6 tokens": micro_batches(1, 6),
           "one micro-batch": micro_batches(4)},
    forward={"loss": step_loss},
    gradients=(Result(
        "dW",
        factors={"dloss": lambda dloss: dloss,
                 "1 / N, N being the real tokens of all micro-batches": lambda targets: 1 / counts_of(targets).sum()},
        suspects={
            "a mean of means: each micro-batch is divided by its own tokens, so a token in a small one counts more":
                mean_of_means,
            "only the last micro-batch is in it: add to dW (+=), do not overwrite it":
                lambda dloss, x, W, targets: dloss * gradients_of_sums(x, W, targets)[-1] / counts_of(targets).sum(),
            "divided by all positions, padding among them: N counts real tokens only":
                lambda truth, targets: truth * counts_of(targets).sum() / targets.size,
            "divided by the number of micro-batches as well: N has counted all of them already":
                lambda truth, x: truth / len(x),
            "padding is learnt, too: where the target is 0 there is no loss, and no gradient": padding_asked_for,
            "each micro-batch is divided by its own tokens, and the means are added up": lambda dloss, x, W, targets:
                mean_of_means(dloss, x, W, targets) * len(x)}),),
    solution=accumulate,
    library=(cross_entropy, Ops.linear_backward, Ops.divide_inplace),
    hints=(
        "x (M, B, D), W (D, V), targets (M, B); dW has the shape of W. A micro-batch m has scores x[m] @ W, (B, V), "
        "and real tokens where targets[m] is not 0.",
        "For each micro-batch, the gradient of the sum of its losses: p - q of lesson 01 at real tokens, 0 at padding; "
        "then that of a linear layer. Add up, count the tokens, divide once.",
        "dW = dloss / N * sum over m of x[m]^T dscores[m], with dscores = softmax(scores) - one_hot(targets) where "
        "targets != 0, else 0.",
    ),
)

# 18_every_sentence_once -----------------------------------------------------------------------------------------------

EpochOf = Callable[[int], list[Array]]
"""The number of an epoch -> its batches, each an array of indices (B,)"""

BUDGET = 60
LENGTHS = np.random.default_rng(18).integers(2, 31, 200)
PLANS = {fineness: BatchPlan(pairs_of(LENGTHS, LENGTHS), BUDGET, 1, 7, fineness).epoch for fineness in (1, 4)}


def at_random(epoch: int, size: Callable[[Array], int] = lambda lengths: len(lengths) * lengths.max()) -> list[Array]:
    """Pairs in random order, as many to a batch as the budget allows."""
    batches: list[list[int]] = [[]]
    for i in np.random.default_rng([18, epoch]).permutation(len(LENGTHS)):
        if batches[-1] and size(LENGTHS[[*batches[-1], i]]) > BUDGET:
            batches.append([])
        batches[-1].append(int(i))
    return [np.array(batch) for batch in batches]


def one_for_another(epoch: int) -> list[Array]:
    """A pair is taken a second time, in place of one that is no longer."""
    batches = [batch.copy() for batch in at_random(epoch)]
    pairs = np.concatenate(batches)
    (lost,) = [batch for batch in batches if (batch == LENGTHS.argmax()).any()]
    lost[lost == LENGTHS.argmax()] = pairs[pairs != LENGTHS.argmax()][0]
    return batches


class Forgetful:
    """Shuffles with a generator of its own: no two answers are alike."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(18)

    def __call__(self, epoch: int) -> list[Array]:
        batches = PLANS[1](epoch)
        return [batches[i] for i in self.random.permutation(len(batches))]


SOUND: dict[str, Callable[[], EpochOf]] = {
    "the library's plan (its batches are not equally full: the last of a bucket is smaller)": lambda: PLANS[1],
    "the library's plan with finer buckets": lambda: PLANS[4],
    "random pairs under the budget (much padding, but every rule is kept)": lambda: at_random,
}
BROKEN: dict[str, Callable[[], EpochOf]] = {
    "the smaller batches at the ends of the buckets are dropped": lambda: lambda epoch: [
        batch for batch in PLANS[1](epoch) if (len(batch) + 1) * LENGTHS[batch].max() > BUDGET],
    "one pair comes twice and another never, so that their number is right": lambda: one_for_another,
    "the budget counts real tokens, so that padding exceeds it": lambda: lambda epoch: at_random(epoch, np.sum),
    "all epochs are alike": lambda: lambda epoch: PLANS[1](0),
    "every epoch goes from short to long": lambda: lambda epoch: sorted(
        PLANS[1](epoch), key=lambda batch: LENGTHS[batch].max()),
    "asked twice for one epoch, it answers differently (a run could not be resumed)": Forgetful,
    "a pair is lost in epoch 1, not in epoch 0": lambda: lambda epoch: PLANS[1](epoch)[epoch == 1:],
}


def alike(some: list[Array], others: list[Array]) -> bool:
    return len(some) == len(others) and all(map(np.array_equal, some, others))


def is_sound(epoch_of: EpochOf, lengths: Array, budget: int) -> bool:
    epochs = [epoch_of(epoch) for epoch in range(3)]
    longest = [[lengths[batch].max() for batch in batches] for batches in epochs]
    return (all(np.array_equal(np.sort(np.concatenate(batches)), np.arange(len(lengths))) for batches in epochs)
            and all(len(batch) * lengths[batch].max() <= budget for batches in epochs for batch in batches)
            and not alike(epochs[0], epochs[1]) and alike(epochs[0], epoch_of(0))
            and all(widths != sorted(widths) for widths in longest))


def misjudged(answer: Callable) -> str | None:
    """What is wrong with a test of plans; None if nothing is."""
    said = {words: answer(make(), LENGTHS, BUDGET) for words, make in (BROKEN | SOUND).items()}
    right = {words: words in SOUND for words in said}
    return misjudgements(said, right, {True: "it calls sound what is broken", False: "it calls broken what is sound"})


EVERY_SENTENCE_ONCE = Break(
    id="18_every_sentence_once",
    title="Write a test that tells sound batch plans from broken ones",
    function="is_sound",
    arguments=("epoch_of", "lengths", "budget"),
    complaint=misjudged,
    solution=is_sound,
    library=(BatchPlan.epoch,),
    hints=(
        "epoch_of(0) is a list of batches, each an array of indices; lengths[batch] are the lengths of its pairs. Ask "
        "for epochs 0, 1 and 2, and for one of them twice.",
        "Five rules: all pairs once; positions within the budget, padding included; other batches in another epoch; "
        "the same for the same epoch; not in order of length.",
        "np.sort(np.concatenate(batches)) must be np.arange(len(lengths)); len(batch) * lengths[batch].max() <= "
        "budget; the list of lengths[batch].max() must not be sorted.",
    ),
)

EXERCISES = (PADDING_SHARE, FILL_BATCHES, ACCUMULATE, EVERY_SENTENCE_ONCE)
