"""Whatever the graph: results do not depend on the level, and inferred shapes are the ones values have."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimizer.basic.basic_model import assert_equal_at_levels
from tests.optimizer.basic.random_graph import random_model
from tests.optimizer.extended.fused_graph import open_session


@pytest.mark.parametrize("seed", range(60))
def test_results_are_the_same_at_every_level(seed):
    model, feeds, _ = random_model(seed)
    with np.errstate(all="ignore"):
        assert_equal_at_levels(model, feeds, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(60))
def test_inferred_shapes_hold(seed):
    model, feeds, known = random_model(seed, every_value=True)
    session = open_session(model, 1)
    with np.errstate(all="ignore"):
        results = session.run(None, feeds)
    for argument, result in zip(session.get_outputs(), results, strict=True):
        assert result.shape == known[argument.name]
        assert len(argument.shape) == result.ndim
        for size, actual in zip(argument.shape, result.shape, strict=True):
            assert not isinstance(size, int) or size == actual
