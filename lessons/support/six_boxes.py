"""Six boxes with a label and a content, and two questions: a task for the heads of attention (lesson 07).

A box is a vector of 16 numbers: a 1 among the first 8 for its label, a 1 among the last 8 for its content. The query
has a 1 among the first 8 for the first label asked for, and a 1 among the last 8 for the second.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import transformer

from scratchformer.nn.parameter import Array

KINDS, BOXES = 8, 6
"""The number of labels, which is that of contents, and the number of boxes on the table."""


def problems(random: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    """-> queries (B, 1, 16), boxes (B, 6, 16), the two right contents (B, 2)"""
    labels = random.permuted(np.tile(np.arange(KINDS), (count, 1)), axis=1)[:, :BOXES]
    contents = random.integers(0, KINDS, (count, BOXES))
    asked = random.permuted(np.tile(np.arange(BOXES), (count, 1)), axis=1)[:, :2]
    row = np.arange(count)[:, None]
    queries = np.eye(KINDS)[labels[row, asked]].reshape(count, 1, 2 * KINDS)
    boxes = np.concatenate([np.eye(KINDS)[labels], np.eye(KINDS)[contents]], axis=-1)
    return queries, boxes, contents[row, asked]


class Reader:
    """One multi-head attention, and what reads its output.

    behind  "": nothing; "linear": two linear maps; "ReLU": the same two, with a ReLU between them
    """

    def __init__(self, seed: int, h: int = 1, d_k: int = 16, behind: str = "", hidden: int = 64) -> None:
        self.random, d, self.behind = np.random.default_rng(seed), 2 * KINDS, behind
        self.attention = {name: self.weight(d, h, d_k) for name in ("W_Q", "W_K", "W_V")}
        self.attention["W_O"] = self.weight(h, d_k, d)
        self.after: dict[str, SimpleNamespace] = {}
        if behind:
            self.after = {"W_1": self.weight(d, hidden), "W_2": self.weight(hidden, d, size=hidden**-0.5)}

    def weight(self, *shape: int, size: float = 0.25) -> SimpleNamespace:
        data = size * self.random.normal(size=shape)
        return SimpleNamespace(data=data, grad=np.zeros(shape))

    def forward(self, queries: Array, boxes: Array) -> tuple[Array, Callable[[Array], object]]:
        """-> the logits of both contents (B, 1, 16), backward"""
        y, backward = transformer.multi_head_attention(queries, boxes, True, **self.attention)
        if not self.behind:
            return y, backward
        hidden, first_backward = transformer.linear("btd,df->btf", y, self.after["W_1"])
        is_on = (hidden > 0) if self.behind == "ReLU" else 1.0
        logits, second_backward = transformer.linear("btf,fd->btd", is_on * hidden, self.after["W_2"])
        return logits, lambda dlogits: backward(first_backward(is_on * second_backward(dlogits)))

    def train(self, questions: int = 2, steps: int = 1200, rate: float = 1.0) -> Reader:
        """Plain gradient descent on 32 new problems at each step. With one question, only the first content counts."""
        for _ in range(steps):
            queries, boxes, contents = problems(self.random, 32)
            y, backward = self.forward(queries, boxes)
            logits = y.reshape(-1, 2, KINDS)[:, :questions]
            _, loss_backward = transformer.cross_entropy(
                logits.reshape(-1, KINDS), contents[:, :questions].ravel(), eps_ls=0.0
            )
            dlogits = np.zeros((len(y), 2, KINDS))
            dlogits[:, :questions] = loss_backward(1.0).reshape(logits.shape)
            backward(dlogits.reshape(y.shape))
            for weight in [*self.attention.values(), *self.after.values()]:
                weight.data -= rate * weight.grad
                weight.grad[...] = 0
        return self

    def share_right(self, questions: int = 2) -> float:
        """-> in how many of 2,000 new problems all contents asked for have the highest logits"""
        queries, boxes, contents = problems(np.random.default_rng(99), 2000)
        found = self.forward(queries, boxes)[0].reshape(-1, 2, KINDS).argmax(axis=-1)
        return float((found == contents)[:, :questions].all(axis=1).mean())

    def mean_weights(self) -> Array:
        """-> (h, 2): the mean weights that each head gives to the first and the second box asked for"""
        queries, boxes, _ = problems(np.random.default_rng(99), 2000)
        Q, K = (
            np.einsum("bsd,dhk->bhsk", x, self.attention[name].data) for x, name in ((queries, "W_Q"), (boxes, "W_K"))
        )
        weights, _ = transformer.softmax(Q @ K.swapaxes(-1, -2) / Q.shape[-1] ** 0.5, True)  # (B, h, 1, 6)
        is_asked = queries.reshape(-1, 2, KINDS) @ boxes[:, :, :KINDS].swapaxes(1, 2)  # (B, 2, 6)
        return np.einsum("bhs,bqs->hq", weights[:, :, 0], is_asked) / len(queries)
