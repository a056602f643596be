"""The tasks of the lessons ask what they say, and their models learn what is easy."""

import more
import numpy as np
import pytest
import transformer

from scratchformer.nn.layers import FeedForward, Linear
from scratchformer.nn.ops import using
from scratchformer.text.tokenizer import BOS, EOS
from support import (
    constructions,
    feed_forward,
    latest_name,
    next_word,
    noun_lookup,
    one_key,
    planted_bugs,
    recall,
    reversal,
    short_run,
    six_boxes,
    stacks,
    to_the_left,
    word_translator,
)
from support.lexicon import Genders
from support.positions import alibi_bias, alibi_slopes
from support.recurrent import LSTM, RNN, AdditiveAttention

# Lesson 01: constructions ---------------------------------------------------------------------------------------------


def test_words_are_counted_and_unknown_ones_left_out():
    known = [("the cat saw the dog".split(), "a"), ("did the cat".split(), "b")]
    counted = constructions.as_counts(known, [("the dog the bird".split(), "b")])  # words: cat, did, dog, saw, the
    assert counted.x.tolist() == [[1, 0, 1, 1, 2], [1, 1, 0, 0, 1]]
    assert counted.x_test.tolist() == [[0, 0, 1, 0, 2]]
    assert (counted.t.tolist(), counted.t_test.tolist(), counted.classes) == ([0, 1], [1], ["a", "b"])


def test_one_step_by_hand():
    """One sentence with one word, two classes: after a step of 1 the logits are 1 and -1, as W and b each have half."""
    one = constructions.Sentences(np.ones((1, 1)), np.array([0]), np.ones((1, 1)), np.array([0]), ["a", "b"])
    run = constructions.train(one, lambda p, q: p - q, lambda dy: dy.sum(axis=0), steps=1, rate=1.0)
    np.testing.assert_allclose(run.losses, [np.log(2), np.log(1 + np.exp(-2))])
    assert run.right.tolist() == [True]


# Lesson 02: recall ----------------------------------------------------------------------------------------------------


def test_the_first_symbol_is_marked_and_the_answer():
    x, first = recall.sequences(np.random.default_rng(0), 5, 7)
    np.testing.assert_array_equal(x[:, :, 0], np.eye(7)[[0] * 5])
    np.testing.assert_array_equal(x[:, :, 1:].sum(axis=-1), 1)
    np.testing.assert_array_equal(x[:, 0, 1:].argmax(axis=-1) + 1, first)


@pytest.mark.parametrize("kind", [RNN, LSTM, recall.AttentionReader])
def test_a_short_distance_is_learnt_and_training_ends_when_it_is_enough(kind):
    model, twin = recall.FirstSymbol(kind, 24, seed=0), recall.FirstSymbol(kind, 24, seed=0)
    losses = recall.train(model, 2, 0.01, seed=1, steps=60)
    assert losses == recall.train(twin, 2, 0.01, seed=1, steps=99, enough=lambda step: step == 60)
    assert losses[0] > 2 > losses[-1] and recall.accuracy(model, 2) > 0.9


def test_the_readers_differ_in_what_their_names_say():
    models = {reader: recall.model_of(reader, seed=0) for reader in recall.READERS}
    sizes = [model.store.data.size for model in models.values()]
    assert max(sizes) < 1.03 * min(sizes)
    rnn, larger, usual, open_gate = (models[reader].reader for reader in recall.READERS if reader != "attention")
    np.testing.assert_array_equal(larger.recurrent.weight.data, 1.2 * rnn.recurrent.weight.data)
    for lstm, forget in (usual, 1), (open_gate, 5):
        assert lstm.input.bias.data.reshape(4, 31).mean(axis=1).tolist() == [0, forget, 0, 0]


# Lesson 03: reversal --------------------------------------------------------------------------------------------------


def test_the_answer_is_the_source_turned_round_and_what_is_read_is_one_position_behind():
    source, read, target = reversal.pairs(np.random.default_rng(0), 3, 5)
    np.testing.assert_array_equal(target, source[:, ::-1])
    np.testing.assert_array_equal(read[:, 1:], target[:, :-1])
    assert not read[:, 0].any() and source.min() >= 1 and source.max() <= reversal.SYMBOLS


def test_positions_are_given_by_a_second_one():
    rows = reversal.EncoderDecoder(5, seed=0, positions="e").rows(np.full((2, 5), 3), True)
    assert rows.shape == (2, 5, 1 + reversal.SYMBOLS + 5)
    np.testing.assert_array_equal(rows[1, 2].nonzero()[0], [3, 1 + reversal.SYMBOLS + 2])


def test_a_decoder_that_looks_back_learns():
    options = dict(look=AdditiveAttention, encoder=Linear, decoder=Linear, positions="ed", d=16)
    model = reversal.EncoderDecoder(2, seed=0, **options)
    before = reversal.right(model).mean()
    assert reversal.right(reversal.train(model, steps=150)).mean() > 0.95 > before
    weights = model.weights(*reversal.pairs(np.random.default_rng(0), 3, 2)[:2])
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((3, 2)))


def test_short_sentences_keep_their_links_and_the_padding_comes_last():
    corpus = word_translator.Corpus()
    lena, short = corpus.test[0], next(pair for pair in corpus.test if pair.german == ["Maria", "kam", "zurück"])
    assert (lena.english[2], lena.german[4]) == ("sold", "verkauft") and [2, 4] in lena.links
    source, read, target = corpus.ids([short, short._replace(german=lena.german)])
    assert source.shape == (2, 3) and read.shape == target.shape == (2, 6)
    assert read[:, 0].tolist() == [word_translator.BEGIN] * 2 and target[0, 3:].tolist() == [word_translator.END, 0, 0]
    looked = {tuple(pair.english): [min(j, len(pair.english) - 1) for j in range(12)] for pair in corpus.test}
    corpus.test = [lena]  # Lena, hat, acht, Ziegen, verkauft are linked to words 0, 1, 3, 4, 2
    assert word_translator.share_linked(corpus, lambda pair: looked[tuple(pair.english)]) == 2 / 5


# Lesson 04: a lookup --------------------------------------------------------------------------------------------------

TASK = noun_lookup.Task(
    train=[(["the", "dog", "sees", "a", "cat"], [("Hund", 1), ("Katze", 4)])],
    test=[(["a", "cat", "sees", "the", "dog"], [("Katze", 1), ("Hund", 4)])],
    english={word: i for i, word in enumerate(["a", "cat", "dog", "sees", "the"])},
    german={"Hund": 0, "Katze": 1},
)


def attention(q, k, v):
    weights = one_key.softmax(q @ k.T)
    return weights @ v, weights


def attention_backward(dy, q, k, v, weights):
    dweights = dy @ v.T
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    return dscores @ k, dscores.T @ q, weights.T @ dy


def lookup(way):
    return noun_lookup.Lookup(TASK, way, 0, attention, attention_backward, d_k=4, d_v=8)


@pytest.mark.parametrize("way, learns", [("soft", "qkv"), ("frozen", "v"), ("hard", "v"), ("mean", "v")])
def test_what_learns(way, learns):
    ours, before = lookup(way), lookup(way)
    ours.train(1, 0.1, 0)
    changed = [not np.array_equal(getattr(ours, name), getattr(before, name)) for name in ("queries", "keys", "values")]
    assert "".join(np.array(["q", "k", "v"])[changed]) == learns


def test_a_lookup_learns_and_the_nearest_code_decides():
    assert TASK.nouns == [1, 2] and TASK.chance == 0.5
    (sentence,), ours = TASK.test, lookup("soft")
    assert np.allclose(lookup("mean").look(sentence)[4], 0.2)
    assert (lookup("hard").look(sentence)[4].argmax(axis=1) == ours.look(sentence)[4].argmax(axis=1)).all()
    losses = ours.train(200, 1.0, 0)
    assert losses[-1] < 0.1 * losses[0]
    assert ours.accuracy(TASK.train) == 1
    assert list(ours.nearest(sentence, ours.codes[[TASK.english["dog"]]])) == [4]


# Lesson 05: one key ---------------------------------------------------------------------------------------------------


def test_a_smaller_start_replaces_the_division_and_a_larger_one_undoes_it():
    divided, whole = one_key.learn_to_look(16, 1 / 4, 8), one_key.learn_to_look(16, 1, 8 / 16)
    assert np.allclose(divided, one_key.learn_to_look(16, 1, 8 / 16, start=1 / 4), atol=1e-6)
    assert np.allclose(one_key.learn_to_look(16, 1 / 4, 8, start=4), whole, atol=1e-6)
    assert one_key.found(16, 1 / 4) >= one_key.successes(divided)
    assert one_key.successes(np.array([0.5, 0.51, 0.2, 1.0])) == 2


# Lessons 06 and 08: the next word -------------------------------------------------------------------------------------

READ, WRITE = next_word.shifted(next_word.NEW[:8])


def test_what_is_read_is_one_position_behind_what_is_written():
    read, write = next_word.shifted([["the", "boy", "."], ["the"]])
    words = [[[next_word.VOCABULARY[i] for i in row] for row in ids] for ids in (read, write)]
    assert words[0] == [["<s>", "the", "boy", "."], ["<s>", "the", "<pad>", "<pad>"]]
    assert words[1] == [["the", "boy", ".", "</s>"], ["the", "</s>", "<pad>", "<pad>"]]
    assert not [words for words in next_word.NEW if words in next_word.TRAINING]


def test_the_two_ways_of_asking_agree_with_the_causal_mask_only():
    causal, open_ = (next_word.NextWord(causal, seed=0, N=2) for causal in (True, False))
    np.testing.assert_allclose(next_word.word_by_word(causal, READ), next_word.all_at_once(causal, READ), atol=1e-9)
    assert np.abs(next_word.word_by_word(open_, READ) - next_word.all_at_once(open_, READ)).max() > 1e-3
    with using(next_word.Hiding(lambda t, s: s <= t)):
        hidden = next_word.all_at_once(open_, READ)
    np.testing.assert_allclose(hidden, next_word.all_at_once(causal, READ), atol=1e-12)


def test_training_is_repeatable_and_learns():
    model, twin = (next_word.NextWord(causal=True, seed=0, d_model=16) for _ in range(2))
    losses = next_word.train(model, next_word.shifted, seed=1, steps=25)
    assert losses == next_word.train(twin, next_word.shifted, seed=1, steps=25)
    assert losses[-1] < losses[0] - 0.5
    text = next_word.continued(model, ["<s>", "the"], at_most=5)
    assert text[:2] == ["<s>", "the"] and (len(text) == 5 or text[-1] == "</s>")


# Lesson 07: six boxes -------------------------------------------------------------------------------------------------


def test_the_contents_of_the_two_boxes_that_are_asked_for():
    queries, boxes, contents = six_boxes.problems(np.random.default_rng(0), 50)
    for query, table, answers in zip(queries[:, 0], boxes, contents):
        labels, inside = table[:, :8].argmax(axis=1), table[:, 8:].argmax(axis=1)
        asked = [np.flatnonzero(labels == half.argmax()) for half in np.split(query, 2)]
        assert len(set(labels)) == 6 and [inside[box].tolist() for box in asked] == [[answer] for answer in answers]


def test_a_reader_learns_one_question():
    assert six_boxes.Reader(0).train(questions=1, steps=300).share_right(questions=1) > 0.9


# Lesson 08: nouns and their genders -----------------------------------------------------------------------------------


def test_the_nearest_noun_and_its_gender():
    """dog, m; goat, f; horse, n; aunt, f: aunt and goat are near each other; dog is nearest to horse."""
    genders, vectors = Genders(["dog", "goat", "horse", "aunt"]), np.array([[1, 0], [0, 1], [9, 2], [1, 7]])
    assert genders.of.tolist() == ["m", "f", "n", "f"] and genders.nearest(vectors)[:, 0].tolist() == [2, 3, 0, 1]
    assert genders.agreement(vectors) == genders.same_kind(vectors) == 0.5 <= genders.highest_exchanged(vectors) + 0.5
    assert (genders.plane(vectors)[2] > 0).all() and Genders.known(["the", "goat"]) == ["goat"]


# Lesson 09: three to the left -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sinusoids", "big steps", "four speeds", "four speeds, shuffled"])
def test_all_rows_of_a_table_are_as_long(name):
    assert np.allclose((to_the_left.table_of(name, np.random.default_rng(1)) ** 2).sum(axis=1), to_the_left.D / 2)


def test_fourteen_positions_are_asked():
    asked, alone, row = to_the_left.which(np.random.default_rng(0))
    assert (asked.sum(), alone.sum(), row.sum()) == (to_the_left.TEXT - 3 - 7, 2, 5)
    assert not (asked & (alone | row)).any() and not asked[:3].any()
    outcome = to_the_left.to_the_left("big steps", 0, steps=10)
    assert ((0 <= outcome.right) & (outcome.right <= 1)).all() and outcome.moved[0] > outcome.moved[1]


# Lesson 10: the latest name -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "sinusoids", "ALiBi", "RoPE"])
def test_a_reader_learns_by_the_right_gradient(kind):
    trained, reader = latest_name.trained(kind, seed=0, steps=30), latest_name.Reader(kind, seed=0)
    assert trained.accuracy(8) > reader.accuracy(8)
    for w in reader.weights.values():
        w.data, w.grad = w.data.astype(float), np.zeros(w.data.shape)
    ids, answers = latest_name.latest_name(np.random.default_rng(1), 2, 6)
    reader.loss(ids, answers)[1](1.0)
    for w in reader.weights.values():
        direction, start, losses = np.random.default_rng(2).normal(size=w.data.shape), w.data, []
        for step in (1e-5, -1e-5):
            w.data = start + step * direction
            losses.append(reader.loss(ids, answers)[0])
        w.data = start
        assert np.isclose((w.grad * direction).sum(), (losses[0] - losses[1]) / 2e-5, rtol=1e-6, atol=1e-9)


def test_alibi_subtracts_slope_times_distance_but_for_a_number_that_all_keys_share():
    x = np.random.default_rng(0).normal(size=(1, 7, latest_name.D_MODEL))
    plain, alibi = (latest_name.Reader(kind, seed=0) for kind in ("none", "ALiBi"))
    products = []
    for reader in plain, alibi:
        q, k, _ = latest_name.queries_and_keys(reader, x)
        products.append(np.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5)
    penalty = alibi_bias(7, 7, latest_name.H)
    first, second = (each - each[..., :1] for each in (products[0] + penalty, products[1]))
    assert np.allclose(np.tril(first), np.tril(second), rtol=0, atol=1e-5)  # no key lies ahead


def test_the_score_of_a_name_falls_by_the_slope_of_alibi_from_word_to_word():
    scores = latest_name.Reader("ALiBi", seed=0).score_of_a_name(0, 7)
    slopes = alibi_slopes(latest_name.H)[:, None]
    assert scores.shape == (latest_name.H, 8) and np.allclose(np.diff(scores), -slopes, rtol=0, atol=1e-4)


def test_pairs_turn_at_a_third_of_their_speed():
    x = np.random.default_rng(0).normal(size=(1, 1, 2, latest_name.D_K)).repeat(7, axis=1)
    turned, slow = more.rope(x)[0], latest_name.slowed(x, (1,))[0]
    pair, others = [1, 5], [0, 2, 3, 4, 6, 7]  # numbers i and i + d_k / 2
    assert np.allclose(slow[..., others], turned[..., others], rtol=0, atol=1e-12)
    assert np.allclose(slow[:, ::3, :, pair], turned[:, :3, :, pair], rtol=0, atol=1e-12)


# Lessons 11 and 12: agreement, stacks ---------------------------------------------------------------------------------


def test_a_judge_learns_and_new_pairs_are_not_among_the_known():
    ids, is_right, is_new = feed_forward.sentences()
    assert ids.shape == (256, 4) and is_right.mean() == 0.5 and is_new.mean() == 0.25
    assert not {tuple(row) for row in ids[~is_new]} & {tuple(row) for row in ids[is_new]}
    judge = feed_forward.trained(feed_forward.Judge(1, lambda random: [FeedForward(12, 48, random, "float64")]))
    assert judge.share_right(ids[~is_new], is_right[~is_new]) > 0.9


def test_a_classifier_learns():
    model, data = stacks.Classifier("post-LN", 2, seed=0), stacks.sentences()
    losses = [loss for _, loss in stacks.train(model, 0.1, seed=0, steps=20)]
    assert np.mean(losses[-5:]) < losses[0] and 0 <= model.share_right(data.x_test, data.t_test) <= 1


# Lessons 16, 18, 19: planted bugs, batches, a short run ---------------------------------------------------------------


def test_a_batch_reverses_its_words():
    source, target = planted_bugs.batch_of([[3, 4, 5], [6, 7]])
    assert source.tolist() == [[3, 4, 5, EOS], [6, 7, EOS, 0]]
    assert target.tolist() == [[BOS, 5, 4, 3, EOS], [BOS, 7, 6, EOS, 0]]
    ids = target[:, 1:].copy()
    ids[1, 3], ids[0, 0] = 9, 9
    assert planted_bugs.words_right(ids, target) == 0.5, "padding counts for no word"
    assert planted_bugs.symbols_right(ids, target) == pytest.approx(6 / 7)


def test_training_reads_no_word_that_is_kept_for_tests():
    read, kept = (planted_bugs.words(np.random.default_rng(0), 2000, kept) for kept in (False, True))
    assert not {*map(tuple, read)} & {*map(tuple, kept)}
    assert {*map(len, read)} == {*map(len, kept)} == {2, 3, 4, 5}


@pytest.mark.parametrize("bug", planted_bugs.BUGS)
def test_a_bug_changes_two_steps_of_training(bug):
    def weights_after(bug=None):
        file = planted_bugs.planted(bug)
        model = planted_bugs.new_model(file, 0)
        for step, batch in zip((1, 2), planted_bugs.fresh(0)):
            file.loss_of(*batch, model, eps_ls=0.0)[1](1.0)
            file.adam(model, step)
        return np.concatenate([w.data.ravel() for w in model.weights.values()])

    assert np.abs(weights_after(bug) - weights_after()).max() > 1e-9


def test_guesses_are_made_from_what_the_model_reads_in_training():
    """A model that copies what it reads is right if it reads its answers, and only then."""
    batch = planted_bugs.batch_of([[3, 4, 5], [6, 7]])
    for bug, right in ("target not shifted", 1), (None, 0):
        file = planted_bugs.planted(bug)
        model = planted_bugs.new_model(file, 0)
        model.E.data *= 9
        model.decoder.clear()
        assert planted_bugs.symbols_right(planted_bugs.guessed(file, model, batch), batch[1]) == right


def test_slopes_name_the_weight_whose_gradient_is_wrong():
    batch = planted_bugs.batch_of([[3, 4, 3], [6, 7]])
    wrong = {bug: {name for name, slope in planted_bugs.slopes(planted_bugs.planted(bug), batch).items()
                   if slope.error > 1e-4} for bug in (None, "repeats overwrite", "scaled by d_model")}  # fmt: skip
    assert wrong == {None: set(), "repeats overwrite": {"E"}, "scaled by d_model": set()}


def go_on(run, last):
    for step, (source, target) in zip(range(len(run.log) + 1, last + 1), run.batches):
        loss, backward = transformer.loss_of(source, target, run.model)
        backward(1.0)
        run.note(loss, target)
        transformer.adam(run.model, step)


def test_a_branch_reads_the_same_batches_and_its_run_goes_on_alone():
    run = short_run.ShortRun()
    go_on(run, 2)
    same = run.branch()
    go_on(same, 3)
    assert len(run.log) == 2
    go_on(run, 3)
    assert run.log == same.log and np.array_equal(run.model.E.data, same.model.E.data)
    source, target = run.pairs(["The dog ate the apple."], ["Der Hund."])[0]
    assert source[-1] == 1 and target[0] == 2 and target[-1] == 1


def test_the_mean_of_the_last_checkpoints_leaves_the_run_as_it_is():
    run = short_run.ShortRun()
    for value in 5.0, 1.0, 2.0:
        run.model.E.data[...] = value
        run.keep_copy()
    assert (run.averaged(2).model.E.data == 1.5).all() and (run.model.E.data == 2).all()


def test_clipping_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    run = short_run.ShortRun()
    transformer.loss_of(*next(run.batches), run.model)[1](1.0)
    theirs = [torch.nn.Parameter(torch.zeros(w.data.shape)) for w in run.model.weights.values()]
    for limit in 1e9, 0.5:
        for parameter, w in zip(theirs, run.model.weights.values()):
            parameter.grad = torch.from_numpy(w.grad.copy())
        torch.nn.utils.clip_grad_norm_(theirs, limit)
        short_run.clip(run.model, limit)
        for parameter, w in zip(theirs, run.model.weights.values()):
            np.testing.assert_allclose(w.grad, parameter.grad.numpy(), rtol=1e-3, atol=1e-7)


def test_a_run_without_a_source_and_with_shuffled_ones():
    english, german = ["a dog", "a cat", "an apple", "the door", "a door"], list("xyzwv")
    for version, right in ("no source", [1]), ("shuffled sources", None):
        run = short_run.ShortRun.__new__(short_run.ShortRun)
        run.version, run.seed = version, 0
        run.ids = {word: i for i, word in enumerate("a dog cat an apple the door x y z w v".split(), 3)}
        pairs = run.pairs(english, german)
        assert [target[1] for _, target in pairs] == [run.ids[word] for word in german]
        sources = [source for source, _ in pairs]
        own = [[*(run.ids[word] for word in line.split()), 1] for line in english]
        assert sources == [right] * 5 if right else sorted(sources) == sorted(own) and sources != own
