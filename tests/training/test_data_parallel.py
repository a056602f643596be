"""Several threads compute the same as one."""

import threading
import time

import numpy as np
import pytest

from scratchformer.nn.transformer import Transformer
from scratchformer.training import loop
from scratchformer.training import trainer as trainer_module
from scratchformer.training import validation
from scratchformer.training.trainer import Trainer


def step_of(begin, threads):
    """A trainer with so many threads, and the largest step of its first epoch."""
    trainer = begin(f"run{threads}", accumulation=4, threads=threads)
    return trainer, max(trainer.plan.epoch(0), key=len)


def gradient_of(trainer, indices):
    """-> the loss, the number of tokens, the norm of the mean gradient, the mean gradient"""
    batches = trainer.plan.micro_batches(indices)
    loss, n_tokens = trainer.parallel.step_gradient(batches, trainer.config.training, step=1)
    assert not any(model.store.grad.any() for model in trainer.parallel.replicas[1:])
    norm = trainer.parallel.average_inplace(n_tokens)
    return loss, n_tokens, norm, trainer.model.store.grad.copy()


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_threads_find_the_gradient_of_one_dropout_and_all(begin, threads):
    loss, n_tokens, norm, gradient = gradient_of(*step_of(begin, threads))
    loss_alone, n_alone, norm_alone, alone = gradient_of(*step_of(begin, 1))
    assert n_tokens == n_alone and loss == pytest.approx(loss_alone, rel=1e-6)
    assert norm == pytest.approx(norm_alone, rel=1e-5) == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    np.testing.assert_allclose(gradient, alone, rtol=0, atol=1e-6 * np.abs(alone).max())


def test_a_run_on_three_threads_repeats_itself_bit_for_bit(begin, monkeypatch):
    """Whichever thread is the quicker: each is made the slowest once."""
    trainer, indices = step_of(begin, 3)
    states, gradients = Transformer.states, []
    for slow in trainer.parallel.replicas:

        def delayed(model, *inputs, rng):
            if model is slow:
                time.sleep(0.02)
            return states(model, *inputs, rng=rng)

        monkeypatch.setattr(Transformer, "states", delayed)
        gradients.append(gradient_of(trainer, indices)[3])
        trainer.model.zero_grad()
    assert gradients[0].any()
    assert np.array_equal(gradients[0], gradients[1]) and np.array_equal(gradients[0], gradients[2])


def test_the_micro_batches_are_divided_among_all_threads(begin, monkeypatch):
    trainer, indices = step_of(begin, 2)
    together, states, seen = threading.Barrier(2, timeout=60), Transformer.states, set()

    def meet(model, *inputs, rng):
        together.wait()  # no one gets here alone
        seen.add(threading.get_ident())
        return states(model, *inputs, rng=rng)

    monkeypatch.setattr(Transformer, "states", meet)
    trainer.step(0, 0, indices)
    assert len(seen) == 2


@pytest.mark.parametrize("accumulation, of_blas", [(1, 2), (2, 1)])
def test_replicas_and_blas_share_the_cores(begin, monkeypatch, blas_threads, accumulation, of_blas):
    monkeypatch.setattr(trainer_module, "share_of_cores", lambda ranks: 2)
    trainer = begin(accumulation=accumulation, threads=2, steps=1, validate_every=1)
    step, seen = Trainer.step, []
    monkeypatch.setattr(Trainer, "step", lambda *arguments: seen.append(blas_threads()) or step(*arguments))
    monkeypatch.setattr(validation, "validation_loss", lambda *arguments: seen.append(blas_threads()) or 1.0)
    loop.train(trainer)
    assert seen == [{of_blas}, {of_blas}]  # a step, then validation
