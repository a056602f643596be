"""`differentiable` as it is while a learner's file runs: it names slips that the short one of the file lets pass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


class Slip(Exception):
    """Raised for wrong halves of a function; says what is wrong in one sentence."""


def differentiable(function: Callable) -> Callable:
    """Turn a function with two halves into one that returns y and backward. One that returns them already may stay."""
    name = function.__name__

    @functools.wraps(function)
    def forward(*inputs: Any, **weights: Any) -> Any:
        halves = function(*inputs, **weights)
        if not inspect.isgenerator(halves):
            if is_pair(halves):
                return halves
            raise Slip(f"{name} has no `yield`: forward ends with `dy = yield y`, and backward goes on from there")
        try:
            y = next(halves)
        except StopIteration:
            raise Slip(f"{name} returns before its `yield`") from None
        called = False

        def backward(dy: Any) -> Any:
            nonlocal called
            if called:
                raise Slip(twice(name)) from None
            called = True
            try:
                halves.send(dy)
            except StopIteration as end:
                return end.value
            raise Slip(f"{name} has a second `yield`: backward ends with `return`")

        return y, backward

    return forward


def twice(name: str) -> str:
    return (
        f"backward of {name} is called twice; each call of {name} gives one that works once. (A lambda in a loop sees "
        "what its variables are at the end of the loop.)"
    )


def once(name: str, forward: Callable) -> Callable:
    """Wrap one of our differentiable functions, so that a second call of its backward is told."""

    def wrapped(*inputs: Any, **weights: Any) -> Any:
        y, its_backward = forward(*inputs, **weights)
        called = False

        def backward(dy: Any) -> Any:
            nonlocal called
            if called:
                raise Slip(twice(name))
            called = True
            return its_backward(dy)

        return y, backward

    return wrapped


def is_pair(result: Any) -> bool:
    """Tell whether it is (y, backward)."""
    return isinstance(result, tuple) and len(result) == 2 and callable(result[1])


def both(result: Any, name: str) -> tuple[Any, Callable]:
    """y and backward, which a differentiable function has returned. Raises Slip for anything else."""
    if inspect.isgenerator(result):
        result.close()
        raise Slip(f"{name} has a `yield`, but no line @differentiable above its `def`")
    if not is_pair(result):
        kind = "None" if result is None else f"a {type(result).__name__}"
        raise Slip(f"{name} returns {kind}, and should give y and backward: @differentiable above `def`, one `yield`")
    return result
