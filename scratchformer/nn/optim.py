"""From gradients to new weights: the learning rate of §5.3, Adam, and clipping by the global norm; and what replaced
them since: cosine and AdamW."""

from __future__ import annotations

import math
from typing import Any, Callable

from scratchformer.config import Config
from scratchformer.nn.ops import chunks, ops_of
from scratchformer.nn.parameter import Array


def noam(step: int, d_model: int = 512, warmup: int = 4000, factor: float = 1.0) -> float:
    """The learning rate of paper §5.3, equation 3; `step` counts from 1.

        lr = factor d_model^-0.5 min(step^-0.5, step warmup^-1.5)

    It rises linearly for `warmup` steps, then falls with the square root of the step.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} count from 1")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine(step: int, peak: float, warmup: int, steps: int, final: float = 0.1) -> float:
    """The learning rate of Touvron et al. 2023, section 2.3; `step` counts from 1.

    It rises linearly to `peak` for `warmup` steps, then falls along half a cosine to `final` of it at the last step.
    """
    if step <= warmup:
        return peak * step / warmup
    share = min(1, (step - warmup) / max(1, steps - warmup))
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share)))


def scheduled(config: Config, step: int) -> float:
    """The learning rate of a step in the schedule of the configuration."""
    training = config.training
    if training.schedule == "cosine":
        return cosine(step, training.learning_rate, training.warmup, training.steps)
    return noam(step, config.model.d_model, training.warmup, training.lr_factor)


class Adam:
    """Adam (Kingma & Ba 2015) with the constants of paper §5.3, on flat arrays.

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        w = w - lr sqrt(1 - beta2^t) / (1 - beta1^t)  m / (sqrt(v) + eps)

    With `weight_decay` it is AdamW (Loshchilov and Hutter 2019): arrays of two axes or more, embeddings
    too, also lose lr weight_decay of themselves at each step; biases and norms do not.

    model  has `parameters` and their `store`
    m, v   (n_parameters,) arrays; t: steps taken
    map    applies a function to parts of the arrays: Python's map, or that of a thread pool

    Raises:   ValueError if the model has parameters that its store does not hold.
    Differs:  eps is added outside the bias correction, as in the paper's code (at 1e-9 the difference is negligible).
    """

    def __init__(
        self,
        model: Any,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        map: Callable = map,
        weight_decay: float = 0.0,
    ) -> None:
        self.store = model.store
        self.store.require(model.parameters())
        self.map = map
        xp = ops_of(self.store.data).xp
        self.m, self.v = xp.zeros_like(self.store.data), xp.zeros_like(self.store.data)
        self.t = 0
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay

    def step(self, learning_rate: float, norm: Array | None = None) -> None:
        """One step along the gradients in the store.

        norm  of the whole gradient, or None. If it is not finite, weights and moments do not change, but the step is
              counted: on a GPU the host does not know the norm yet
        Raises ValueError if the parameters are in another store by now.
        """
        self.store.require(self.store.parameters)
        self.t += 1
        beta1, beta2 = self.betas
        step_size = learning_rate * math.sqrt(1 - beta2**self.t) / (1 - beta1**self.t)
        store, ops = self.store, ops_of(self.store.data)

        def update(part: slice) -> None:
            ops.adam_inplace(
                store.data[part], store.grad[part], self.m[part], self.v[part], step_size, beta1, beta2, self.eps, norm
            )

        if self.weight_decay:
            decay = learning_rate * self.weight_decay
            keep = 1 - decay * (1 if norm is None else ops.xp.isfinite(norm))
            for view in store.named_views(store.data).values():
                if view.ndim > 1:
                    view *= keep
        list(self.map(update, chunks(store.data.size, ops.elements_at_once)))  # list, because map is lazy
        store.refresh()


def clip_by_global_norm_inplace(grad: Array, norm: Array, max_norm: float) -> None:
    """Scale the flat gradient, whose length is `norm`, down to length `max_norm` if it is longer.

    Differs:  the paper does not clip.
    """
    grad *= (max_norm / ops_of(grad).xp.maximum(norm, max_norm)).astype(grad.dtype)
