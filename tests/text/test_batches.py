import itertools

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.text.batches import BatchPlan, batches_in_order, bucket_boundaries, encode_pairs, even_parts, steps
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import BOS, EOS, PAD

MAX_LENGTH = 40
BUDGET = 100


def encode(sentences):
    """A tokenizer for tests: every word is a number, which is its id."""
    return [[int(word) for word in sentence.split()] for sentence in sentences]


def pairs_of(source, target):
    return Pairs(source, target, list(range(1, len(source) + 1)), n_empty=0)


def pairs_of_lengths(source_lengths, target_lengths):
    """Pairs with these numbers of words, EOS not included. Every word of the corpus is another number."""
    words = itertools.count(10)
    sentences = [" ".join(str(next(words)) for _ in range(n)) for n in [*source_lengths, *target_lengths]]
    return pairs_of(sentences[: len(source_lengths)], sentences[len(source_lengths) :])


@pytest.fixture(scope="module")
def encoded():
    """500 pairs of 2 to 40 tokens on the longer side."""
    rng = np.random.default_rng(0)
    source_lengths, target_lengths = rng.integers(1, MAX_LENGTH, size=(2, 500))
    return encode_pairs(encode, pairs_of_lengths(source_lengths, target_lengths), MAX_LENGTH, BUDGET)


def same(some, others):
    return len(some) == len(others) and all(np.array_equal(a, b) for a, b in zip(some, others))


# --- bucket_boundaries


@pytest.mark.parametrize(
    "longest, fineness, boundaries",
    [
        (256, 1, [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]),
        (64, 2, [8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]),
        (20, 3, [8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20]),
        (100, 1, [8, 12, 16, 24, 32, 48, 64, 96, 100]),
        (8, 1, [8]),
        (5, 1, [5]),
    ],
)
def test_boundaries_of_the_papers_base_model(longest, fineness, boundaries):
    assert bucket_boundaries(longest, fineness) == boundaries


# --- encode_pairs


def test_ids_are_stored_flat_with_eos():
    encoded = encode_pairs(encode, pairs_of(["10 11", "12"], ["20", "21 22 23"]), MAX_LENGTH, BUDGET)
    assert encoded.source.ids.dtype == np.int32 and encoded.source.offsets.dtype == np.int64
    assert encoded.source.ids.tolist() == [10, 11, EOS, 12, EOS]
    assert encoded.source.offsets.tolist() == [0, 3, 5]
    assert encoded.target.ids.tolist() == [20, EOS, 21, 22, 23, EOS]
    assert encoded.target.offsets.tolist() == [0, 2, 6]
    assert encoded.lengths.tolist() == [3, 4] and encoded.n_dropped == 0


def test_long_corpora_are_encoded_in_parts(monkeypatch):
    pairs = pairs_of_lengths([3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1])
    whole = encode_pairs(encode, pairs, MAX_LENGTH, BUDGET)
    monkeypatch.setattr("scratchformer.text.batches.SENTENCES_PER_ENCODING", 3)
    parts = encode_pairs(encode, pairs, MAX_LENGTH, BUDGET)
    assert np.array_equal(parts.source.ids, whole.source.ids)
    assert np.array_equal(parts.target.offsets, whole.target.offsets)


def test_pairs_over_the_maximal_length_are_dropped():
    # In tokens with EOS: (5, 2), (6, 2), (2, 6), (5, 5); the maximum of 5 lets the first and the last pass.
    encoded = encode_pairs(encode, pairs_of_lengths([4, 5, 1, 4], [1, 1, 5, 4]), max_length=5, tokens_per_batch=BUDGET)
    assert encoded.n_dropped == 2
    assert encoded.line_numbers.tolist() == [1, 4]
    assert (encoded.source.lengths.tolist(), encoded.target.lengths.tolist()) == ([5, 5], [2, 5])


def test_pairs_that_are_too_long_are_refused():
    with pytest.raises(UserError, match="none of the 2 sentence pairs has at most max_length = 3 tokens"):
        encode_pairs(encode, pairs_of_lengths([3, 1], [1, 4]), max_length=3, tokens_per_batch=BUDGET)
    pairs = pairs_of_lengths([3, 20, 30, 5], [3, 24, 1, 5])
    with pytest.raises(UserError, match=r"line 3 has 31 tokens .* raise tokens_per_batch to 31, .* max_length = 40"):
        encode_pairs(encode, pairs, MAX_LENGTH, tokens_per_batch=24)
    encoded = encode_pairs(encode, pairs, MAX_LENGTH, tokens_per_batch=31)
    with pytest.raises(UserError, match="raise tokens_per_batch to 31"):
        next(batches_in_order(encoded, tokens_per_batch=30))


# --- Batch


def test_a_batch_written_out():
    pairs = pairs_of(["10 11", "12", "13 14 15"], ["20", "21 22 23", "24 25"])
    batch = encode_pairs(encode, pairs, MAX_LENGTH, BUDGET).batch(np.array([1, 0]))
    assert batch.inputs[0].tolist() == [[12, EOS, PAD], [10, 11, EOS]]
    assert batch.inputs[1].tolist() == [[BOS, 21, 22, 23], [BOS, 20, PAD, PAD]]
    assert batch.targets.tolist() == [[21, 22, 23, EOS], [20, EOS, PAD, PAD]]
    assert batch.indices.tolist() == [1, 0]
    assert (batch.n_source_tokens, batch.n_target_tokens, batch.n_positions) == (2 + 3, 4 + 2, 2 * 3 + 2 * 4)
    assert batch.inputs[0].dtype == batch.inputs[1].dtype == batch.targets.dtype == np.int32


# --- BatchPlan.epoch


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("fineness", [1, 2, 3])
def test_every_pair_is_in_one_step_of_one_bucket_within_the_budget(encoded, accumulation, fineness):
    boundaries = np.array(bucket_boundaries(MAX_LENGTH, fineness))
    smaller_steps = []
    epoch = BatchPlan(encoded, BUDGET, accumulation, seed=1, fineness=fineness).epoch(0)
    for step in epoch:
        [bucket] = set(np.searchsorted(boundaries, encoded.lengths[step]))
        full = BUDGET // boundaries[bucket] * accumulation
        assert len(step) <= full
        if len(step) < full:
            smaller_steps.append(bucket)
    assert sorted(np.concatenate(epoch)) == list(range(len(encoded)))
    assert len(smaller_steps) == len(set(smaller_steps))  # at most one remainder a bucket


def test_a_bucket_reaching_beyond_the_budget_holds_single_pairs():
    encoded = encode_pairs(encode, pairs_of_lengths([50] * 5, [1] * 5), max_length=64, tokens_per_batch=51)
    epoch = BatchPlan(encoded, tokens_per_batch=51, accumulation=2, seed=0).epoch(0)
    assert sorted(len(step) for step in epoch) == [1, 2, 2]


def test_the_order_depends_on_seed_and_epoch_alone(encoded):
    epoch = BatchPlan(encoded, BUDGET, 2, seed=5).epoch(3)
    another_plan = BatchPlan(encoded, BUDGET, 2, seed=5)
    another_plan.epoch(7)
    assert same(another_plan.epoch(3), epoch)
    assert not same(another_plan.epoch(4), epoch)
    assert not same(BatchPlan(encoded, BUDGET, 2, seed=6).epoch(3), epoch)


def test_steps_come_in_no_order_of_length(encoded):
    longest = [encoded.lengths[step].max() for step in BatchPlan(encoded, BUDGET, 1, seed=0).epoch(0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_the_order_of_an_epoch_is_that_of_numpy_s_permutation():
    """Pairs are numbered in 32 bits, which changes nothing."""
    encoded = encode_pairs(encode, pairs_of_lengths([1, 5, 9, 20] * 10, [2, 3, 8, 9] * 10), MAX_LENGTH, BUDGET)
    rng = np.random.Generator(np.random.PCG64([3, 1]))
    shuffled = rng.permutation(40)
    bounds = np.array(bucket_boundaries(MAX_LENGTH))
    buckets = np.searchsorted(bounds, encoded.lengths)
    expected = []
    for bucket, bound in enumerate(bounds):
        members, size = shuffled[buckets[shuffled] == bucket], max(BUDGET // bound, 1) * 2
        expected += [members[i : i + size] for i in range(0, len(members), size)]
    expected = [expected[i] for i in rng.permutation(len(expected))]
    found = BatchPlan(encoded, BUDGET, accumulation=2, seed=3).epoch(1)
    assert [step.tolist() for step in found] == [step.tolist() for step in expected]


# --- BatchPlan.micro_batches


@pytest.mark.parametrize("accumulation", [1, 2, 3, 7])
def test_micro_batches_share_out_the_step_within_the_budget(encoded, accumulation):
    plan = BatchPlan(encoded, BUDGET, accumulation, seed=0)
    for step in plan.epoch(0):
        batches = plan.micro_batches(step)
        assert len(batches) == min(accumulation, len(step))
        assert sorted(np.concatenate([batch.indices for batch in batches])) == sorted(step)
        assert all(max(batch.inputs[0].size, batch.targets.size) <= BUDGET for batch in batches)


def test_pairs_of_similar_length_make_a_micro_batch():
    lengths = [2, 3, 4, 5, 6, 7, 8]
    encoded = encode_pairs(encode, pairs_of_lengths([n - 1 for n in lengths], [1] * 7), MAX_LENGTH, BUDGET)
    batches = BatchPlan(encoded, BUDGET, accumulation=3, seed=0).micro_batches(np.array([4, 0, 6, 2, 1, 5, 3]))
    assert [encoded.lengths[batch.indices].tolist() for batch in batches] == [[8, 7], [6, 5], [4, 3, 2]]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_other_cut_makes_the_largest_part_smaller(n):
    random = np.random.default_rng(n)
    for _ in range(50):
        lengths = np.sort(random.integers(1, 30, random.integers(n, 9)))[::-1]
        area = max((part.stop - part.start) * lengths[part.start] for part in even_parts(lengths, n))
        ends = (sorted((0, *cut, len(lengths))) for cut in itertools.combinations(range(1, len(lengths)), n - 1))
        assert area == min(max((end - start) * lengths[start] for start, end in zip(cut, cut[1:])) for cut in ends)


def test_micro_batches_do_not_depend_on_the_order_of_the_step(encoded):
    plan = BatchPlan(encoded, BUDGET, accumulation=3, seed=0)
    step = max(plan.epoch(0), key=len)
    assert len(set(encoded.lengths[step])) < len(step)  # there are ties
    one, other = ([batch.indices for batch in plan.micro_batches(pairs)] for pairs in (step, step[::-1]))
    assert same(one, other)


# --- steps


def test_resuming_anywhere_continues_the_same_run(encoded):
    plan = BatchPlan(encoded, BUDGET, 2, seed=0)
    run = list(itertools.islice(steps(plan), 3 * len(plan.epoch(0))))
    assert [(epoch, index) for epoch, index, _ in run] == [
        (epoch, index) for epoch in range(3) for index in range(len(plan.epoch(epoch)))
    ]
    for start in range(0, len(run), 7):
        epoch, index, _ = run[start]
        resumed = itertools.islice(steps(BatchPlan(encoded, BUDGET, 2, seed=0), epoch, index), len(run) - start)
        assert all(same(step, expected) for step, expected in zip(resumed, run[start:], strict=True))


def test_the_first_step_may_be_the_end_of_an_epoch_and_no_later_one(encoded):
    plan = BatchPlan(encoded, BUDGET, 1, seed=0)
    n_steps = len(plan.epoch(2))
    epoch, index, indices = next(steps(plan, 2, n_steps))
    assert (epoch, index) == (3, 0) and np.array_equal(indices, plan.epoch(3)[0])
    with pytest.raises(UserError, match=f"cannot start at step {n_steps + 1} of epoch 2, which has {n_steps} steps"):
        next(steps(plan, 2, n_steps + 1))


# --- batches_in_order


def test_batches_in_order_hold_everything_once_shortest_first_as_the_budget_allows(encoded):
    batches = [batch.indices for batch in batches_in_order(encoded, BUDGET)]
    lengths = encoded.lengths[np.concatenate(batches)]
    assert sorted(np.concatenate(batches)) == list(range(len(encoded))) and np.all(np.diff(lengths) >= 0)
    for batch, following in itertools.pairwise(batches):
        assert len(batch) * encoded.lengths[batch[-1]] <= BUDGET
        assert (len(batch) + 1) * encoded.lengths[following[0]] > BUDGET
