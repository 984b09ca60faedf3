"""Which algorithm a problem of 8-bit integers gets."""

import numpy as np
import pytest
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.quantized.conv import select
from ort_sdk_cpu.quantized.conv.select import (
    ConvIntegerProblem,
    QLinearConvProblem,
    QuantizedConvAlgorithm,
    select_conv_integer,
    select_qlinear_conv,
)
from ort_sdk_cpu.quantized.matmul.select import QuantizedGemmAlgorithm, are_sums_exact, select_dynamic_b

from ort_sdk.opset.nn.windows import WindowAttributes

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba cannot be used")

UINT8 = np.dtype(np.uint8)


def geometry(groups=1, **given):
    values = dict.fromkeys(("kernel_shape", "strides", "dilations", "pads")) | {"auto_pad": "NOTSET", "ceil_mode": False}
    return ConvGeometry(WindowAttributes("a convolution", **(values | given)), groups)


@pytest.fixture(autouse=True)
def processor(monkeypatch):
    """VNNI without AMX, and nothing at hand."""
    monkeypatch.setattr(select, "has_vnni", lambda: True)
    monkeypatch.setattr(select, "has_amx", lambda: False)
    monkeypatch.setattr(select, "is_loaded", lambda: False)
    monkeypatch.setattr(select, "_is_at_hand", lambda _problem: False)
    return monkeypatch


def qlinear(x=(1, 64, 28, 28), weight=(64, 64, 3, 3), dtype=UINT8, *, last=False, is_wide=False, **given):
    return select_qlinear_conv(QLinearConvProblem(geometry(**given), weight, x, dtype, last, is_wide))


def integer(x=(1, 64, 28, 28), weight=(64, 64, 3, 3), dtype=UINT8, *, last=False, is_split=False, **given):
    return select_conv_integer(ConvIntegerProblem(geometry(**given), weight, x, dtype, last, is_split))


def test_direct_convolutions_by_vectors():
    assert qlinear() is QuantizedConvAlgorithm.VNNI
    assert qlinear(is_wide=True) is QuantizedConvAlgorithm.VNNI
    assert qlinear(x=(1, 64, 900), weight=(64, 64, 3), dtype=np.dtype(np.int8)) is QuantizedConvAlgorithm.VNNI
    assert qlinear(x=(1, 64, 1, 900), weight=(64, 64, 1, 3), dilations=(1, 2)) is QuantizedConvAlgorithm.VNNI


def test_amx_for_full_tiles_and_enough_work(processor):
    processor.setattr(select, "has_amx", lambda: True)
    assert qlinear() is QuantizedConvAlgorithm.AMX
    assert qlinear(x=(1, 64, 20, 4), weight=(64, 64, 3, 3)) is QuantizedConvAlgorithm.VNNI
    assert qlinear(x=(1, 68, 40, 40), weight=(64, 68, 1, 1)) is QuantizedConvAlgorithm.VNNI
    assert qlinear(x=(1, 64, 40, 40), weight=(64, 64, 1, 1)) is QuantizedConvAlgorithm.AMX


def test_groups_and_windows_that_are_not_direct_are_onednns():
    depthwise = {"x": (1, 64, 28, 28), "weight": (64, 1, 3, 3), "groups": 64}
    assert qlinear(**depthwise) is QuantizedConvAlgorithm.ONEDNN
    assert qlinear(**depthwise, is_wide=True) is QuantizedConvAlgorithm.ONEDNN_SPLIT
    assert qlinear(dilations=(2, 2)) is QuantizedConvAlgorithm.ONEDNN
    assert qlinear(dilations=(2, 2), is_wide=True) is QuantizedConvAlgorithm.ONEDNN_SPLIT
    assert qlinear(x=(1, 16, 9, 9, 9), weight=(16, 16, 3, 3, 3)) is QuantizedConvAlgorithm.ONEDNN


def test_little_work_is_numpys_unless_something_is_at_hand(processor):
    little = {"x": (1, 8, 14, 14), "weight": (8, 8, 3, 3)}
    assert qlinear(**little) is QuantizedConvAlgorithm.NUMPY
    assert qlinear(**little, last=True) is QuantizedConvAlgorithm.VNNI
    assert qlinear(**little, is_wide=True) is QuantizedConvAlgorithm.VNNI
    few = {"x": (1, 8, 9, 9), "weight": (8, 1, 3, 3), "groups": 8}
    assert qlinear(**few) is QuantizedConvAlgorithm.NUMPY
    processor.setattr(select, "is_loaded", lambda: True)
    assert qlinear(**few) is QuantizedConvAlgorithm.ONEDNN
    assert qlinear(**little) is QuantizedConvAlgorithm.NUMPY
    processor.setattr(select, "_is_at_hand", lambda _problem: True)
    assert qlinear(**little) is QuantizedConvAlgorithm.VNNI


def test_without_vnni_onednn_is_not_exact(processor):
    processor.setattr(select, "has_vnni", lambda: False)
    assert qlinear() is QuantizedConvAlgorithm.VNNI
    assert qlinear(is_wide=True) is QuantizedConvAlgorithm.NUMPY
    depthwise = {"x": (1, 64, 28, 28), "weight": (64, 1, 3, 3), "groups": 64}
    assert qlinear(**depthwise) is QuantizedConvAlgorithm.NUMPY_UNTIL_SHAPES_VARY


def test_what_does_not_fit_is_the_opsets_to_refuse():
    for given in ({"x": (1, 63, 28, 28)}, {"x": (1, 64, 28)}, {"x": (0, 64, 28, 28)}, {"dtype": np.dtype(np.int16)}):
        assert qlinear(**given) is QuantizedConvAlgorithm.NUMPY
        assert integer(**given) is QuantizedConvAlgorithm.NUMPY


def test_integer_sums_are_onednns():
    assert integer() is QuantizedConvAlgorithm.ONEDNN
    assert integer(is_split=True) is QuantizedConvAlgorithm.ONEDNN_SPLIT
    assert integer(x=(1, 2, 6, 6), weight=(4, 2, 3, 3)) is QuantizedConvAlgorithm.NUMPY
    assert integer(x=(1, 2, 6, 6), weight=(4, 2, 3, 3), last=True) is QuantizedConvAlgorithm.ONEDNN


def dynamic_b(a=(8, 64), b=(64, 96), a_type=np.uint8, b_type=np.int8, zero_points=(None, None)):
    return select_dynamic_b(np.zeros(a, a_type), np.zeros(b, b_type), zero_points)


def test_matrices_that_come_with_a_run():
    assert dynamic_b() is QuantizedGemmAlgorithm.DYNAMIC_B
    assert dynamic_b(a=(3, 8, 64), b=(3, 64, 96)) is QuantizedGemmAlgorithm.DYNAMIC_B
    assert dynamic_b(a=(3, 8, 64)) is QuantizedGemmAlgorithm.DYNAMIC_B
    zeros = np.zeros(1, np.uint8), np.zeros(96, np.int8)
    assert dynamic_b(zero_points=zeros) is QuantizedGemmAlgorithm.DYNAMIC_B
    wrong = [
        {"a": (3, 8, 64), "b": (2, 64, 96)},
        {"a_type": np.int16},
        {"a": (8, 63)},
        {"a": (0, 64)},
        {"zero_points": (np.zeros(8, np.uint8), None)},
        {"zero_points": (None, np.zeros(96, np.uint8))},
        {"zero_points": (None, np.zeros(95, np.int8))},
    ]
    assert {dynamic_b(**given) for given in wrong} == {QuantizedGemmAlgorithm.NUMPY}


def test_k_is_split_where_float32_does_not_hold_all_sums():
    assert are_sums_exact(np.full((256, 3), 255, np.uint8), np.zeros(1, np.uint8))
    assert not are_sums_exact(np.full((260, 3), 255, np.uint8), np.zeros(1, np.uint8))
    assert are_sums_exact(np.full((260, 3), 255, np.uint8), np.full(3, 128, np.uint8))
