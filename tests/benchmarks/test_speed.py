"""The benchmarks of speed measure what they say: the work is counted right, and every program does the same work."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import EOS, PAD, UNK

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def cpu_step(script):
    return script("cpu_step")


def batch_of(cpu_step, *sizes, **options):
    """All pairs in one batch."""
    return cpu_step.micro_batches(cpu_step.pairs_of(*sizes, **options), 1)[0]


def test_the_operations_of_a_step_are_counted_right(cpu_step, monkeypatch):
    config = ModelConfig(vocab_size=40, N=2, d_model=12, d_ff=20, h=3, d_k=5, d_v=7)
    batch = batch_of(cpu_step, 6, 9, 3, config.vocab_size, seed=0)
    longer = batch_of(cpu_step, 6, 11, 4, config.vocab_size, seed=1)
    batch = batch._replace(inputs=(longer.inputs[0], batch.inputs[1]))
    matmul, counted = np.matmul, []

    def counting(a, b, out=None):
        product = matmul(a, b, out=out)
        counted.append(2 * product.size * a.shape[-1])
        return product

    monkeypatch.setattr(np, "matmul", counting)
    batch_loss_backward(Transformer(config), batch.inputs, batch.targets, 0.1)
    assert cpu_step.matmul_flops(config, batch) == sum(counted)


def test_a_batch_of_random_words_has_the_padding_it_should(cpu_step):
    batch = batch_of(cpu_step, 128, 20, 9, vocab_size=2000, seed=1)
    for ids in (batch.inputs[0], batch.targets):
        assert ids.shape == (128, 20) and np.mean(ids == PAD) == pytest.approx(0.275, abs=0.002)
        lengths = (ids != PAD).sum(axis=1)
        assert set(lengths) == set(range(9, 21)) and np.ptp(np.diff(lengths)) > 2  # every length, in no order
        assert (ids[np.arange(128), lengths - 1] == EOS).all() and (ids == EOS).sum() == 128
        words, counts = np.unique(ids[ids > EOS], return_counts=True)
        assert words.min() == UNK + 1 and counts.max() > 100 and np.median(counts) <= 2
    difference = (batch.inputs[0] != PAD).sum(axis=1) - (batch.targets != PAD).sum(axis=1)
    assert 1 < difference.std() < 3  # similar, not equal
    assert (batch_of(cpu_step, 3, 20, 20, 2000, seed=1).inputs[0] != PAD).all()


def test_our_memory_is_measured_without_pytorch():
    script = (
        "import sys, cpu_step\n"
        "print(cpu_step.measure_alone(cpu_step.Cell('tiny', 'with', 1, quick=True), cpu_step.OURS))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, cwd=BENCHMARKS)


def test_rivals_must_learn_the_same(cpu_step):
    first = {cpu_step.OURS: 9.5, "pytorch": 9.6, "bf16": 9.5}
    cpu_step.assert_learned_alike(first, {cpu_step.OURS: 8.0, "pytorch": 8.1})
    for last in ({"pytorch": 9.0}, {"pytorch": 7.5}, {"bf16": float("nan")}, {"pytorch": 8.1, "bf16": 9.5}):
        with pytest.raises(AssertionError, match=list(last)[-1]):
            cpu_step.assert_learned_alike(first, {cpu_step.OURS: 8.0, **last})
    with pytest.raises(AssertionError, match="nothing was learned"):
        cpu_step.assert_learned_alike(first, first)
