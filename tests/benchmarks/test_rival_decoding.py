"""PyTorch's search in cpu_decode.py finds the translations that scratchformer finds, and the script checks that."""

from pathlib import Path

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.search import Hypothesis, search
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import EOS, PAD
from scratchformer.training.run import load_run

torch = pytest.importorskip("torch")

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"


@pytest.fixture
def rival(script):
    torch.set_num_threads(1)  # such small products gain nothing from threads
    return script("rival_decoding")


def new_model(vocab_size, seed=0, **changes):
    """An untrained model that often writes EOS, so that some translations end early."""
    config = ModelConfig(**{"vocab_size": vocab_size, "N": 2, "d_model": 16, "d_ff": 32, "h": 2} | changes)
    model = Transformer(config, seed)
    weights = model.store.named_views(model.store.data)
    weights["decoder.layers.1.feed_forward.norm.beta"] += weights["source_embedding.weight"][EOS]
    return model


def sources_of(vocab_size, count=13):
    random = np.random.default_rng(1)
    sources = np.full((count, 9), PAD, np.int32)
    for row, length in zip(sources, random.integers(1, 10, count)):
        row[:length] = [*random.integers(3, vocab_size, length - 1), EOS]
    return sources


def assert_same(ours, theirs):
    assert [found.ids for found in theirs] == [found.ids for found in ours]
    for mine, other in zip(ours, theirs):
        assert other[1:] == pytest.approx(mine[1:], abs=1e-4)  # log probability and score


@pytest.mark.parametrize("extra_length", [0, 20])
@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("vocab_size", [20, 61, 200])  # 200 words: in two rounds
def test_the_rival_finds_the_same_translations(rival, vocab_size, beam, extra_length):
    model, sources = new_model(vocab_size), sources_of(vocab_size)
    searcher = rival.Searcher(rival.Weights(model), beam, 0.6, extra_length, len(sources), sources.shape[1])
    ours = [nbest[0] for nbest in search(model, sources, beam, 0.6, extra_length)]
    for _ in range(2):  # its arrays may be used again
        assert_same(ours, searcher.search(sources))


def test_in_bfloat16_it_finds_nearly_the_same(rival):
    model, sources = new_model(20), sources_of(20)
    weights = rival.Weights(model, torch.bfloat16)
    theirs = rival.Searcher(weights, 4, 0.6, 2, len(sources), sources.shape[1]).search(sources)
    ours = [nbest[0] for nbest in search(model, sources, 4, 0.6, 2)]
    assert np.mean([other.score - mine.score for mine, other in zip(ours, theirs)]) == pytest.approx(0, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_also_where_sentences_end_one_after_another(rival, beam):
    model = load_run(TINY_MODEL).model
    sources = sources_of(model.config.vocab_size, 40)
    ours = [nbest[0] for nbest in search(model, sources, beam, 0.6, 10)]
    lengths = np.array([len(found.ids) for found in ours])
    assert len(set(lengths)) > 5 and (lengths < (sources != PAD).sum(axis=1) + 9).mean() > 0.5
    searcher = rival.Searcher(rival.Weights(model), beam, 0.6, 10, len(sources), sources.shape[1])
    assert_same(ours, searcher.search(sources))


def test_threads_that_take_batches_keep_their_order(rival):
    model = new_model(20)
    batches = [sources_of(20, count) for count in (1, 2, 3, 4, 5)]
    searchers = [rival.Searcher(rival.Weights(model), 2, 0.6, 2, 5, 9) for _ in range(2)]
    assert rival.search_over_batches(searchers, batches) == rival.search_in_operations(searchers[0], batches, 1)


@pytest.mark.parametrize(
    "changes", [{"norm": "pre"}, {"positions": "learned"}, {"tied": "none"}, {"attention_bias": False}, {"d_k": 4}]
)
def test_the_rival_refuses_other_models(rival, changes):
    with pytest.raises(ValueError, match="the rival"):
        rival.Weights(new_model(20, **changes))


# cpu_decode.py --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cpu_decode(script):
    return script("cpu_decode")


def test_only_ties_may_be_translated_differently(cpu_decode):
    model, sources = new_model(20), sources_of(20)
    task = cpu_decode.Task(model, "random", [sources], 2)
    ours = [nbest[0] for nbest in search(model, sources, 1, 0.6, 2)]
    assert cpu_decode.agreement(task, "pytorch", ours, ours) == {"identical_share": 1, "score_over_ours": 0}

    off = [found._replace(score=found.score + 0.1) for found in ours]
    with pytest.raises(AssertionError, match="not the same search"):
        cpu_decode.agreement(task, "pytorch", ours, off)
    assert cpu_decode.agreement(task, "pytorch_bf16", ours, off) == {"identical_share": 1, "score_over_ours": 0.1}
    wrong = [Hypothesis([19 if token != 19 else 18 for token in found.ids], *found[1:]) for found in ours]
    with pytest.raises(AssertionError, match="only"):  # not even if the scores are right
        cpu_decode.agreement(task, "pytorch", ours, wrong)
    assert cpu_decode.agreement(task, "pytorch_bf16", ours, wrong)["identical_share"] == 0


def test_words_of_equal_probability_are_a_tie(cpu_decode):
    model, source = new_model(20), np.array([7, 8, EOS])
    E = model.store.named_views(model.store.data)["source_embedding.weight"]
    E[5] = E[6]
    assert cpu_decode.is_tie(model, source, [9, 5, 7], [9, 6, 8, 8])
    assert not cpu_decode.is_tie(model, source, [9, 5, 7], [9, 4, 7])
    assert not cpu_decode.is_tie(model, source, [9, 5, 7], [9, 5, 7])
