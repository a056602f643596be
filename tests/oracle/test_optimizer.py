"""A hundred steps of torch.optim.Adam under a LambdaLR, and torch's clipping, do what ours do."""

import numpy as np
import pytest
import torch
from side_by_side import TOLERANCE_OF_TRAINING, TRAINED, gradients_of, model_and_batch, training_differences, worst
from twins import Twin

from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace

EITHER_MODEL = pytest.mark.parametrize("config", TRAINED, ids=lambda config: f"{config.norm}, {config.tied} tied")


@EITHER_MODEL
def test_a_hundred_steps_stay_together(config):
    found = training_differences(config)
    assert worst(found) <= TOLERANCE_OF_TRAINING, found


@pytest.mark.slow
@EITHER_MODEL
def test_where_eps_stands_is_hardly_seen_in_the_loss(config):
    found = training_differences(config, same_eps=False)
    assert TOLERANCE_OF_TRAINING < found["loss"] < 1e-6


@pytest.mark.parametrize("share", [0.1, 0.9, 1.1])
def test_clipping_is_torchs(share):
    """torch divides by the norm plus 1e-6, we by the norm."""
    model, batch = model_and_batch(TRAINED[0], "float64")
    batch_loss_backward(model, batch[:2], batch[2])
    twin = Twin(model)
    for name, weight in twin.weights.items():
        weight.grad = torch.tensor(gradients_of(model)[name])

    max_norm = share * np.linalg.norm(model.store.grad)
    norm = float(np.linalg.norm(model.store.grad))
    clip_by_global_norm_inplace(model.store.grad, norm, max_norm)
    twin_norm = float(torch.nn.utils.clip_grad_norm_(twin.weights.values(), max_norm))
    assert norm == pytest.approx(twin_norm, rel=1e-12)
    shorter = (norm + 1e-6) / norm if share < 1 else 1.0
    for name, gradient in twin.gradients().items():
        np.testing.assert_allclose(gradients_of(model)[name], gradient * shorter, rtol=1e-12, atol=0)


def test_weight_decay_is_that_of_torchs_adamw():
    model, _ = model_and_batch(TRAINED[0], "float64")
    ours = {name: parameter.data for name, parameter in model.parameters().items()}
    theirs = Twin(model).weights
    groups = [
        {"params": [weight for weight in theirs.values() if (weight.ndim > 1) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    adam = Adam(model, (0.9, 0.95), 1e-9, weight_decay=0.1)
    torch_adam = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-9)
    random = np.random.default_rng(0)
    for _ in range(20):
        for name, parameter in model.parameters().items():
            parameter.grad[...] = random.normal(size=parameter.shape)
            theirs[name].grad = torch.tensor(parameter.grad)
        adam.step(0.01)
        torch_adam.step()
    for name, data in ours.items():
        np.testing.assert_allclose(data, theirs[name].detach(), rtol=1e-6, atol=1e-8)  # they add eps elsewhere
