"""From gradients to better weights: the learning rate of §5.3, Adam, and clipping by the global norm."""

from __future__ import annotations

import math
from typing import Callable

from scratchformer.nn.ops import chunks, ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer


def noam(step: int, d_model: int = 512, warmup: int = 4000, factor: float = 1.0) -> float:
    """The learning rate of paper §5.3, equation 3; `step` counts from 1.

        lr = factor d_model^-0.5 min(step^-0.5, step warmup^-1.5)

    It rises linearly for `warmup` steps, then falls with the square root of the step.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step={step} and warmup={warmup} count from 1")
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


class Adam:
    """Adam (Kingma & Ba 2015) with the constants of paper §5.3, on the model's flat buffers.

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        w = w - lr sqrt(1 - beta2^t) / (1 - beta1^t)  m / (sqrt(v) + eps)

    m, v: (n_parameters,) arrays; t: steps taken.
    map: how parts of the arrays are gone through, Python's or that of a team, whose threads share them.

    Differs:  eps is added outside the bias correction, as in the paper's code (at 1e-9 it hardly matters).
    """

    def __init__(
        self, model: Transformer, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-9, map: Callable = map
    ) -> None:
        self.store, self.map = model.store, map
        xp = ops_of(self.store.data).xp
        self.m, self.v = xp.zeros_like(self.store.data), xp.zeros_like(self.store.data)
        self.t = 0
        self.betas, self.eps = betas, eps

    def step(self, learning_rate: float, norm: Array | None = None) -> None:
        """One step along the gradients that the model's parameters hold.

        norm  of all of them together: if it is given and not finite, weights and moments stay as they are; but the step
              counts, since on a GPU the host does not know yet
        """
        self.t += 1
        beta1, beta2 = self.betas
        step_size = learning_rate * math.sqrt(1 - beta2**self.t) / (1 - beta1**self.t)
        store, ops = self.store, ops_of(self.store.data)

        def update(part: slice) -> None:
            ops.adam(
                store.data[part], store.grad[part], self.m[part], self.v[part], step_size, beta1, beta2, self.eps, norm
            )

        list(self.map(update, chunks(store.data.size, ops.part)))  # `map` alone would not begin
        store.refresh()


def clip_by_global_norm_inplace(grad: Array, norm: Array, max_norm: float) -> None:
    """Scale the flat gradient, whose length is `norm`, down to length `max_norm` if it is longer.

    Differs:  the paper does not clip.
    """
    grad *= (max_norm / ops_of(grad).xp.maximum(norm, max_norm)).astype(grad.dtype)
