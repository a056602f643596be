"""Search writes what the full decoder finds, and beam search what brute force and the textbook find."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding import search as module
from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import (
    TABLE_HEIGHT,
    beam_search,
    best_continuations,
    greedy_search,
    length_penalty,
    rows_to_keep,
    search,
)
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, EOS, PAD

V = 7
WORDS = [token for token in range(V) if token not in (PAD, BOS, EOS)]
CONFIG = ModelConfig(vocab_size=V, N=2, d_model=8, d_ff=16, h=2, P_drop=0, max_positions=12)
VARIANTS = [{}, {"norm": "pre"}, {"positions": "learned"}, {"tied": "none", "d_k": 3, "d_v": 5}, {"n_tags": 2}]
SOURCES = np.array([[4, EOS, 0, 0, 0], [6, 5, 4, 3, EOS], [5, 5, EOS, 0, 0], [EOS, 0, 0, 0, 0], [6, 4, 4, EOS, 0]])
PEAKY = 2.0


def new_model(seed, **changes):
    """A model that nobody has trained, with weights large enough to have opinions."""
    model = Transformer(replace(CONFIG, **changes), seed, "float64")
    model.store.data *= PEAKY
    return model


models = pytest.mark.parametrize(
    "model",
    [new_model(seed, **changes) for seed, changes in enumerate(VARIANTS * 2)],
    ids=lambda model: f"{model.config.norm}-{model.config.positions}-{model.config.tied}",
)


class EvenAndNeverTwice:
    """Rules by which no word follows itself, and only an even number of words may end."""

    def begin(self, source_length, longest):
        return ()

    def after(self, state, token):
        return (*state, token)

    def allowed(self, state):
        may = np.ones(V, bool)
        may[list(state[-1:])] = False
        may[EOS] = len(state) % 2 == 0
        return may


RULES = pytest.mark.parametrize("rules", [None, EvenAndNeverTwice()], ids=["free", "ruled"])


def forward_log_probabilities(model, source, sequences):
    """Without a cache: log p of every next token after BOS and each of the sequences (n, t) -> (n, t + 1, V)"""
    rows = np.array([[BOS, *ids] for ids in sequences])
    logits, _ = model.forward(np.tile(source[source != PAD], (len(rows), 1)), rows)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def log_probability(model, source, tokens):
    """log p of a whole sequence of tokens, EOS included if there is one."""
    log_p = forward_log_probabilities(model, source, [tokens[:-1]])[0]
    return log_p[np.arange(len(tokens)), tokens].sum()


def brute_force(model, source, alpha, longest):
    """Every translation of at most `longest` tokens -> [(score, ids)], best first"""
    found = []
    for n in range(longest):
        sequences = [list(ids) for ids in itertools.product(WORDS, repeat=n)]
        log_p = forward_log_probabilities(model, source, sequences)
        columns = np.arange(n + 1)
        for ids, row in zip(sequences, log_p):
            found.append((row[columns, [*ids, EOS]].sum() / length_penalty(n + 1, alpha), ids))
    return sorted(found, reverse=True)


def by_hand(model, source, longest, rules=None):
    """Greedy search as the paper would write it: run the whole decoder again for every token."""
    tokens = []
    while len(tokens) < longest and EOS not in tokens:
        log_p = forward_log_probabilities(model, source, [tokens])[0, -1]
        log_p[[PAD, BOS]] = -np.inf
        if rules:
            log_p[~rules.allowed(tuple(tokens))] = -np.inf
        tokens.append(int(log_p.argmax()))
    return [token for token in tokens if token != EOS]


def real_length(source):
    return np.count_nonzero(source)


# One token at a time --------------------------------------------------------------------------------------------------


@RULES
@models
def test_greedy_search_is_the_argmax_of_the_full_decoder(model, rules):
    for source, hypothesis in zip(SOURCES, greedy_search(model, SOURCES, extra_length=5, rules=rules)):
        assert hypothesis.ids == by_hand(model, source, real_length(source) + 5, rules)


@RULES
@models
def test_beam_1_is_greedy(model, rules):
    found = search(model, SOURCES, beam=1, rules=rules)
    assert found == [[hypothesis] for hypothesis in greedy_search(model, SOURCES, rules=rules)]


@models
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_cached_scores_are_those_of_the_full_decoder(model, beam):
    alpha, extra_length = 0.8, 4
    for source, hypotheses in zip(SOURCES, search(model, SOURCES, beam, alpha, extra_length, nbest=beam)):
        for ids, log_p, score in hypotheses:
            is_finished = len(ids) < real_length(source) + extra_length
            tokens = [*ids, EOS] if is_finished else ids
            assert log_p == pytest.approx(log_probability(model, source, tokens), rel=1e-9)
            assert score == pytest.approx(log_p / length_penalty(len(tokens), alpha), rel=1e-12)


def test_keys_and_values_outgrow_the_room_they_began_with():
    """70 positions. The hypotheses, one at first, then 2, change places, and from time to time a sentence leaves."""
    model, random = new_model(0), np.random.default_rng(0)
    sentences, written = np.arange(len(SOURCES)), np.full((len(SOURCES), 1, 1), BOS)
    state = begin_decoding(model, SOURCES, beam=2)
    for t in range(1, 71):
        logits, state = decoding_step(model, written[:, :, -1], state)
        for sentence, hypotheses, rows in zip(sentences, written, logits):
            source = np.tile(SOURCES[sentence], (len(hypotheses), 1))
            np.testing.assert_allclose(rows, model.forward(source, hypotheses)[0][:, -1], rtol=1e-9)
        W, stays = written.shape[1], np.ones(len(sentences), bool)
        stays[1] = t not in (3, 33, 65)
        kept = rows_to_keep(stays)
        parents = random.integers(0, W, (len(kept), 2))
        state = state.select(kept, (kept[:, None] * W + parents).reshape(-1))
        tokens = random.choice(WORDS, (len(kept), 2, 1))
        sentences, written = sentences[kept], np.concatenate([written[kept[:, None], parents], tokens], axis=2)
    assert len(sentences) == len(SOURCES) - 3


# Against all there are ------------------------------------------------------------------------------------------------


@models
@pytest.mark.parametrize("alpha", [0, 0.6, 2])
def test_an_exhaustive_beam_finds_what_brute_force_finds(model, alpha):
    extra_length, nbest = 2, 10
    for source in ([4, EOS], [EOS, PAD]):
        source = np.array(source)
        longest = real_length(source) + extra_length
        beam = len(WORDS) ** longest  # the last step has 5 / 4 of that
        (found,) = search(model, source[None], beam, alpha, extra_length, nbest)
        expected = brute_force(model, source, alpha, longest)[:nbest]
        assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected])


def textbook_beam(model, source, beam, alpha, longest, rules):
    """Beam search in plain lists, the whole decoder run again at every step and never stopped early.

    -> the finished translations [(score, ids)], best first
    """
    alive, finished = [(0.0, [])], []
    for n_tokens in range(1, longest + 1):
        log_p = forward_log_probabilities(model, source, [ids for _, ids in alive])[:, -1]
        continued = sorted(
            (
                (total + row[token], [*ids, token])
                for (total, ids), row in zip(alive, log_p)
                for token in [*WORDS, EOS]
                if rules is None or rules.allowed(ids)[token]
            ),
            reverse=True,
        )[: 2 * beam]
        finished += [(total / length_penalty(n_tokens, alpha), ids[:-1]) for total, ids in continued if ids[-1] == EOS]
        alive = [(total, ids) for total, ids in continued if ids[-1] != EOS][:beam]
    return sorted(finished, reverse=True)


@RULES
@models
@pytest.mark.parametrize("beam, nbest", [(2, 1), (3, 3)])
def test_a_small_beam_is_that_of_the_textbook(model, beam, nbest, rules):
    alpha, extra_length = 2, 5
    for source, hypotheses in zip(SOURCES, search(model, SOURCES, beam, alpha, extra_length, nbest, rules)):
        longest = real_length(source) + extra_length
        expected = textbook_beam(model, source, beam, alpha, longest, rules)[:nbest]
        found = [hypothesis for hypothesis in hypotheses if len(hypothesis.ids) < longest]
        assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected])


# What a search may and may not write ----------------------------------------------------------------------------------


@models
@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_does_not_depend_on_its_batch(model, beam):
    together = search(model, SOURCES, beam, nbest=beam)
    wider = search(model, np.pad(SOURCES, ((0, 0), (0, 3))), beam, nbest=beam)
    for source, in_batch, padded in zip(SOURCES, together, wider):
        (alone,) = search(model, source[None, : real_length(source)], beam, nbest=beam)
        for others in (in_batch, padded):
            assert [found.ids for found in others] == [found.ids for found in alone]
            assert [found.score for found in others] == pytest.approx([found.score for found in alone])


@pytest.mark.parametrize("beam", [1, 4])
def test_padding_and_start_symbol_are_never_written(beam):
    model = new_model(0, tied="none")
    output = model.unembedding.weight.data
    output[[PAD, BOS]] = 5 * output[[3, 4]]
    raw = forward_log_probabilities(model, SOURCES[1], list(itertools.product(WORDS, repeat=2))).argmax(axis=-1)
    assert np.isin(raw, [PAD, BOS]).any(), "the model was to like them"
    for hypotheses in search(model, SOURCES, beam, nbest=beam):
        for hypothesis in hypotheses:
            assert not {PAD, BOS, EOS} & set(hypothesis.ids)
            assert np.isfinite(hypothesis.log_probability)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("changes, limit", [({}, 20), ({"positions": "learned"}, CONFIG.max_positions)])
def test_no_translation_is_longer_than_allowed(beam, changes, limit):
    model = new_model(0, tied="none", **changes)
    model.unembedding.weight.data[EOS] = 0  # never the likeliest for long
    model.unembedding.weight.data[WORDS] += 3 * np.sign(model.unembedding.weight.data[WORDS])
    for extra_length in (0, 3, 15):
        for source, (hypothesis,) in zip(SOURCES, search(model, SOURCES, beam, extra_length=extra_length)):
            assert len(hypothesis.ids) <= min(real_length(source) + extra_length, limit)


@models
def test_nbest_is_sorted_and_without_doubles(model):
    for source, hypotheses in zip(SOURCES, search(model, SOURCES, beam=6, extra_length=30, nbest=6)):
        is_whole = [hypothesis for hypothesis in hypotheses if len(hypothesis.ids) < real_length(source) + 30]
        assert is_whole == sorted(is_whole, key=lambda hypothesis: -hypothesis.score)
        assert is_whole == hypotheses[: len(is_whole)], "unfinished translations come last"
        assert len({tuple(hypothesis.ids) for hypothesis in hypotheses}) == len(hypotheses) == 6


@pytest.mark.parametrize("beam", [1, 4])
def test_a_search_ends_as_soon_as_nothing_can_change(beam, monkeypatch):
    model = new_model(0, tied="none", norm="pre")
    model.decoder.final_norm.gamma.data[:] = 0  # logits are the same everywhere:
    model.decoder.final_norm.beta.data[:] = 1
    model.unembedding.weight.data[:] = 0
    model.unembedding.weight.data[EOS] = 5  # EOS, almost certainly
    steps = []
    step = module.decoding_step
    monkeypatch.setattr(module, "decoding_step", lambda m, ids, state: steps.append(len(ids)) or step(m, ids, state))
    found = search(model, SOURCES, beam)
    assert [hypothesis.ids for (hypothesis,) in found] == [[]] * len(SOURCES)
    assert steps == [len(SOURCES)]


def test_the_length_penalty_of_the_paper():
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 1) == 2
    assert length_penalty(7, 0) == 1
    assert length_penalty(19, 0.5) == 2


def test_a_length_penalty_prefers_longer_translations():
    model = new_model(3)
    lengths = [sum(len(best.ids) for (best,) in beam_search(model, SOURCES, 8, alpha, 6)) for alpha in (0, 0.6, 3)]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


@pytest.mark.parametrize("V", [5, TABLE_HEIGHT, 2 * TABLE_HEIGHT + 1, 25 * TABLE_HEIGHT])
@pytest.mark.parametrize("W, n", [(1, 1), (4, 8), (2, 10**6)])
@pytest.mark.parametrize("ties", [True, False])
def test_the_likeliest_are_those_of_a_sort(V, W, n, ties):
    random, B = np.random.default_rng(V), 5
    logits = random.integers(0, 3, (B, W, V)).astype(float) if ties else random.normal(size=(B, W, V))
    alive = random.integers(-2, 0, (B, W)).astype(float)
    alive[0, 0] = -np.inf  # a hypothesis that is none
    totals = alive[:, :, None] + logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    totals[:, :, [PAD, BOS]] = -np.inf
    n_found = min(n, W * V)

    best, parents, tokens = best_continuations(logits.copy(), alive, n)
    assert best.shape == parents.shape == tokens.shape == (B, n_found)
    np.testing.assert_allclose(best, -np.sort(-totals.reshape(B, -1))[:, :n_found], rtol=1e-12)
    np.testing.assert_allclose(totals[np.arange(B)[:, None], parents, tokens], best, rtol=1e-12)
    assert all(len(set(row)) == n_found for row in (parents * V + tokens).tolist()), "none is found twice"


@pytest.mark.parametrize("stays", ["", "..xx", "xx..", ".x.x.x", "x..xx.xx"])
def test_what_remains_moves_little(stays):
    stays = np.array([mark == "x" for mark in stays], bool)
    index = rows_to_keep(stays)
    assert sorted(index) == np.flatnonzero(stays).tolist()
    assert [index[row] for row in range(len(index)) if stays[row]] == [row for row in range(len(index)) if stays[row]]
