"""Fixtures of the model's tests: random numbers, and small models in which every vector of parameters is random."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.nn import models
from scratchformer.nn.gradient_cases import FLOAT64, SMALL


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def new_model(random):
    """new_model(**changes to the small configuration) -> model in float64, with no gamma at 1 or bias at 0"""

    def build(**changes):
        model = models.new_model(replace(SMALL, **changes), dtype=FLOAT64)
        for parameter in model.parameters().values():
            if parameter.data.ndim == 1:
                parameter.data += 0.5 * random.standard_normal(parameter.shape)
        return model

    return build
