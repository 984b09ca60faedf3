"""BatchNormalization that is in no convolution's reach: a product and a sum per channel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, node

RNG = np.random.default_rng(9)
NAMES = ("g", "h", "m", "v")


def statistics(channels, dtype=np.float32):
    made = {name: RNG.standard_normal(channels).astype(dtype) for name in NAMES}
    return made | {"v": RNG.uniform(1e-6, 4, channels).astype(dtype)}


def model_of(shape, constants, outputs=("y",), opset=17, **attributes):
    normalize = node("BatchNormalization", ["x", *NAMES], list(outputs), **attributes)
    wanted = [(name, FLOAT, None) for name in outputs]
    return build([normalize], [("x", FLOAT, shape)], wanted, constants, opset)


@pytest.mark.parametrize("shape", [[3, 4], [2, 4, 5], ["n", 4, "h", "w"], [1, 4, 2, 3, 2]], ids=str)
@pytest.mark.parametrize("opset", [8, 9, 14, 17])
def test_any_rank_and_version(shape, opset):
    model = model_of(shape, statistics(4), opset=opset, epsilon=1e-3)
    assert basic_ops(model) == ["Mul", "Add"]
    assert_equal_at_levels(model, rtol=1e-5, atol=1e-5)


def test_training_stays():
    model = model_of([2, 4, 3], statistics(4), outputs=("y", "nm", "nv"), training_mode=1)
    assert basic_ops(model) == ["BatchNormalization"]
    assert_equal_at_levels(model, rtol=1e-5, atol=1e-5)


def test_statistics_that_do_not_fit_stay():
    model = model_of([2, 4, 3], statistics(4) | {"g": np.ones(1, np.float32)})
    assert basic_ops(model) == ["BatchNormalization"]
