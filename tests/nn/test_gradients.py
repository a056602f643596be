"""Every backward in `scratchformer.nn` is the derivative of its forward."""

import importlib
import inspect
import pkgutil

import pytest

import scratchformer.nn
from scratchformer.errors import UserError
from scratchformer.nn.gradient_cases import CASES, check, run
from scratchformer.nn.parameter import Layer


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}: {case.description}")
def test_backward_agrees_with_finite_differences(case):
    report = check(case)
    assert report.passed, f"\n{report}"


def test_the_table_names_every_layer():
    for module in pkgutil.iter_modules(scratchformer.nn.__path__, "scratchformer.nn."):
        importlib.import_module(module.name)
    concrete = {
        kind.__name__
        for kind in subclasses(Layer)
        if kind.__module__.startswith("scratchformer.nn.") and hasattr(kind, "forward") and not inspect.isabstract(kind)
    }
    assert {"Linear", "AddNorm", "Transformer"} <= concrete
    assert concrete <= {case.layer for case in CASES}


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_run_checks_the_layers_it_is_asked_for():
    results = list(run(["Linear", "AddNorm"]))
    assert {case.layer for case, _ in results} == {"Linear", "AddNorm"}
    assert all(report.passed for _, report in results)


def test_run_suggests_a_layer_for_an_unknown_name():
    with pytest.raises(UserError, match="no layer 'linear'; did you mean 'Linear'"):
        run(["Linear", "linear"])
