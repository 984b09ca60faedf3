"""Normalization, dropout and losses of ai.onnx against onnxruntime and formulas, and over another array library."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(5)
FLOAT, BOOL = TensorElementType.FLOAT, TensorElementType.BOOL


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def positive(*shape, dtype=np.float32):
    return (RNG.random(shape) + 0.1).astype(dtype)


def on_both(op_type, inputs, output_types, *, opset, attributes=None):
    """Outputs of the session, checked against those over another array library."""
    model, feeds = make_model(
        op_type, inputs, len(output_types), opset=opset, attributes=attributes, output_types=list(map(int, output_types))
    )
    results = run_sdk(model, feeds)
    others = run_kernel(op_type, inputs, output_types, opset=opset, attributes=attributes)
    for result, other in zip(results, others[: len(results)], strict=True):
        assert_same(other, result, 1e-5, 1e-6)
    return results


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 6, 5, 4), (3, 6), (3, 6, 2, 3, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_batch_normalization(dtype, shape, opset):
    parameters = [normal(6, dtype=dtype), normal(6, dtype=dtype), normal(6, dtype=dtype), positive(6, dtype=dtype)]
    tolerance = 2e-2 if dtype is np.float16 else 1e-4
    compare(
        "BatchNormalization",
        [normal(*shape, dtype=dtype), *parameters],
        opset=opset,
        attributes={"epsilon": 1e-3},
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("opset", [14, 15])
def test_batch_normalization_in_training(opset):
    inputs = [normal(2, 6, 5, 4), normal(6), normal(6), normal(6), positive(6)]
    attributes = {"training_mode": 1, "momentum": 0.7}
    compare("BatchNormalization", inputs, 3, opset=opset, attributes=attributes, rtol=1e-4)
    on_both("BatchNormalization", inputs, [FLOAT] * 3, opset=opset, attributes=attributes)


@pytest.mark.parametrize(("opset", "attributes"), [(1, {"consumed_inputs": [0]}), (6, {}), (7, {}), (9, {})])
def test_batch_normalization_in_training_by_older_rules(opset, attributes):
    x, scale, bias, mean, variance = normal(2, 3, 4, 5), normal(3), normal(3), normal(3), positive(3)
    results = on_both(
        "BatchNormalization",
        [x, scale, bias, mean, variance],
        [FLOAT] * 5,
        opset=opset,
        attributes={"momentum": 0.6, **attributes},
    )
    wide = x.astype(np.float64)
    batch_mean, batch_variance = wide.mean(axis=(0, 2, 3)), wide.var(axis=(0, 2, 3))
    columns = [value.reshape(3, 1, 1) for value in (batch_mean, batch_variance, scale, bias)]
    expected = (
        (wide - columns[0]) / np.sqrt(columns[1] + 1e-5) * columns[2] + columns[3],
        mean * 0.6 + batch_mean * 0.4,
        variance * 0.6 + batch_variance * 0.4,
        batch_mean,
        batch_variance,
    )
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_batch_normalization_per_activation():
    inputs = [normal(2, 3, 2, 2), normal(3, 2, 2), normal(3, 2, 2), normal(3, 2, 2), positive(3, 2, 2)]
    compare("BatchNormalization", inputs, opset=7, attributes={"spatial": 0})
    on_both("BatchNormalization", inputs, [FLOAT], opset=1, attributes={"spatial": 0, "is_test": 1, "consumed_inputs": [0]})


def test_batch_normalization_of_mixed_types():
    parameters = [normal(6), normal(6), normal(6), positive(6)]
    compare("BatchNormalization", [normal(3, 6, 2, dtype=np.float16), *parameters], opset=15, rtol=1e-2, atol=1e-2)
    compare("BatchNormalization", [normal(5), normal(1), normal(1), normal(1), positive(1)], opset=15)


@pytest.mark.parametrize("axis", [-1, 1, 2, 0])
def test_layer_and_rms_normalization(axis):
    x = normal(2, 6, 5, 4)
    scale, bias = normal(*x.shape[axis:]), normal(*x.shape[axis:])
    attributes = {"axis": axis, "epsilon": 1e-3}
    compare("LayerNormalization", [x, scale, bias], 3, opset=17, attributes=attributes, rtol=1e-4)
    compare("LayerNormalization", [x, scale], opset=17, attributes=attributes, rtol=1e-4)
    compare("RMSNormalization", [x, scale], opset=23, attributes=attributes, rtol=1e-4)
    on_both("LayerNormalization", [x, scale, bias], [FLOAT] * 3, opset=17, attributes=attributes)
    on_both("RMSNormalization", [x, scale], [FLOAT], opset=23, attributes=attributes)


def test_layer_normalization_of_other_types_and_broadcast_scales():
    x = normal(2, 6, 5, 4)
    compare("LayerNormalization", [x.astype(np.float64), normal(4, dtype=np.float64)], 3, opset=17)
    compare("LayerNormalization", [x.astype(np.float16), normal(4, dtype=np.float16)], 3, opset=17, rtol=1e-2, atol=1e-2)
    compare("LayerNormalization", [x, normal(5, 1), normal(1, 4)], opset=17, attributes={"axis": 2}, rtol=1e-4)


def test_rms_normalization_gives_the_type_of_its_scale():
    x, scale = normal(3, 8, dtype=np.float16), normal(8)
    (result,) = run_sdk(*make_model("RMSNormalization", [x, scale], opset=23, output_types=[1]))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt(np.mean(wide**2, axis=-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert result.dtype == np.float32


@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_an_axis_out_of_range_is_refused(op_type):
    with pytest.raises(InvalidArgument, match="axis is 2"):
        run_kernel(op_type, [normal(2, 3), normal(3)], [FLOAT], opset=23, attributes={"axis": 2})


@pytest.mark.parametrize("opset", [6, 22])
def test_instance_normalization(opset):
    inputs, attributes = [normal(2, 6, 5, 4), normal(6), normal(6)], {"epsilon": 1e-2}
    compare("InstanceNormalization", inputs, opset=opset, attributes=attributes, rtol=1e-4)
    results = on_both("InstanceNormalization", inputs, [FLOAT], opset=opset, attributes=attributes)
    (first,) = run_kernel("InstanceNormalization", inputs, [FLOAT], opset=1, attributes={**attributes, "consumed_inputs": [0]})
    assert_same(first, results[0], 1e-5, 1e-6)


def test_group_normalization():
    inputs, attributes = [normal(2, 6, 5, 4), normal(6), normal(6)], {"num_groups": 3}
    compare("GroupNormalization", inputs, opset=21, attributes=attributes, rtol=1e-4)
    on_both("GroupNormalization", inputs, [FLOAT], opset=21, attributes=attributes)
    with pytest.raises(InvalidArgument, match="must divide"):
        run_kernel("GroupNormalization", inputs, [FLOAT], opset=21, attributes={"num_groups": 4})
    with pytest.raises(InvalidArgument, match=r"\[6\]"):
        run_kernel("GroupNormalization", [inputs[0], normal(3), normal(3)], [FLOAT], opset=21, attributes=attributes)


@pytest.mark.parametrize("opset", [1, 22])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p, opset):
    x = normal(2, 3, 4)
    x[0] = 0
    for axis in (-1, 0, 1):
        compare("LpNormalization", [x], opset=opset, attributes={"axis": axis, "p": p})
        on_both("LpNormalization", [x], [FLOAT], opset=opset, attributes={"axis": axis, "p": p})


def test_lp_normalization_refuses_other_norms():
    with pytest.raises(InvalidArgument, match="1 or 2"):
        run_kernel("LpNormalization", [normal(2, 3)], [FLOAT], opset=22, attributes={"p": 3})


@pytest.mark.parametrize("opset", [1, 13])
def test_lrn(opset):
    x = normal(2, 6, 5, 4)
    for attributes in ({"size": 1}, {"size": 3, "alpha": 0.5, "bias": 2.0}, {"size": 11, "alpha": 0.5}, {"size": 3, "beta": 0.5}):
        compare("LRN", [x], opset=opset, attributes=attributes, rtol=1e-4)
        on_both("LRN", [x], [FLOAT], opset=opset, attributes=attributes)


def test_lrn_over_an_even_number_of_channels():
    x = normal(1, 5, 3)
    (result,) = on_both("LRN", [x], [FLOAT], opset=13, attributes={"size": 4, "alpha": 0.5, "bias": 2.0})
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 2), (0, 0)))
    sums = sum(squares[:, offset : offset + 5] for offset in range(4))
    np.testing.assert_allclose(result, x / (2 + 0.5 / 4 * sums) ** 0.75, rtol=1e-5)


@pytest.mark.timeout(20)
def test_lrn_over_more_channels_than_there_are():
    x, size = normal(1, 5, 3), 2**31 - 1
    (result,) = on_both("LRN", [x], [FLOAT], opset=13, attributes={"size": size, "alpha": float(size)})
    np.testing.assert_allclose(result, x / (1 + np.sum(x.astype(np.float64) ** 2, axis=1, keepdims=True)) ** 0.75, rtol=1e-5)


@pytest.mark.parametrize("opset", [9, 13])
def test_mean_variance_normalization(opset):
    x = normal(2, 6, 5, 4)
    for attributes in ({}, {"axes": [1, 2]}):
        compare("MeanVarianceNormalization", [x], opset=opset, attributes=attributes, rtol=1e-4, atol=1e-5)
        on_both("MeanVarianceNormalization", [x], [FLOAT], opset=opset, attributes=attributes)


@pytest.mark.parametrize("shape", [(5, 4), (2, 6, 5), (2, 6, 5, 4, 3)])
def test_mean_variance_normalization_of_other_ranks(shape):
    x = normal(*shape)
    compare("MeanVarianceNormalization", [x], opset=13, rtol=1e-4, atol=1e-5)
    on_both("MeanVarianceNormalization", [x], [FLOAT], opset=13)
    model, feeds = make_model("MeanVarianceNormalization", [x], 1, opset=13, attributes={"axes": [0, 7]})
    with pytest.raises(InvalidArgument, match=r"axis 7 is outside"):
        run_sdk(model, feeds)


@pytest.mark.parametrize("opset", [12, 13, 22])
def test_dropout_in_inference_passes_its_input(opset):
    x = normal(3, 4)
    for inputs in ([x], [x, np.array(0.2, np.float32)], [x, np.array(0, np.float32), np.array(True)], [x, None, np.array(False)]):
        compare("Dropout", inputs, 2, opset=opset)


@pytest.mark.parametrize(("opset", "mask_type"), [(7, FLOAT), (10, BOOL)])
def test_mask_of_older_dropouts(opset, mask_type):
    compare("Dropout", [normal(3, 4)], 2, opset=opset, output_types=[int(FLOAT), int(mask_type)])


@pytest.mark.parametrize(
    ("opset", "attributes", "mask_type"),
    [(1, {"is_test": 1, "consumed_inputs": [0]}, FLOAT), (6, {"is_test": 1}, FLOAT), (7, {}, FLOAT), (10, {}, BOOL)],
)
def test_older_dropouts_in_inference(opset, attributes, mask_type):
    x = normal(3, 4)
    output, mask = on_both("Dropout", [x], [FLOAT, mask_type], opset=opset, attributes={"ratio": 0.3, **attributes})
    np.testing.assert_array_equal(output, x)
    np.testing.assert_array_equal(mask, np.zeros((3, 4), mask_type.numpy_dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_dropout_in_training(dtype):
    x = (RNG.random((200, 50)) + 1).astype(dtype)
    inputs = [x, np.array(0.25, np.float32), np.array(True)]
    element_type = TensorElementType.from_numpy_dtype(dtype)
    model, feeds = make_model("Dropout", inputs, 2, opset=22, attributes={"seed": 7}, output_types=[int(element_type), int(BOOL)])
    output, mask = run_sdk(model, feeds)
    assert 0.72 < mask.mean() < 0.78
    assert output.dtype == dtype
    expected = np.where(mask, x.astype(np.float64) / 0.75, 0)
    np.testing.assert_allclose(output.astype(np.float64), expected, rtol=1e-2)
    again, _ = run_sdk(model, feeds)
    np.testing.assert_array_equal(output, again)


def test_dropout_without_a_seed_differs_from_run_to_run():
    inputs = [np.ones((50, 50), np.float32), np.array(0.5, np.float32), np.array(True)]
    first, second = (run_kernel("Dropout", inputs, [FLOAT, BOOL], opset=22) for _ in range(2))
    assert not np.array_equal(first[1], second[1])
    (trained,) = run_kernel("Dropout", inputs[:1], [FLOAT], opset=6)
    assert set(np.unique(trained)) == {0.0, 2.0}


def test_dropout_refuses_a_ratio_out_of_range():
    with pytest.raises(InvalidArgument, match=r"\[0, 1\)"):
        run_kernel("Dropout", [normal(2), np.array(1.0, np.float32), np.array(True)], [FLOAT], opset=22)


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_losses(index_dtype, reduction, opset):
    x, weights = normal(2, 6, 5, 4), positive(6)
    target = RNG.integers(0, 6, (2, 5, 4)).astype(index_dtype)
    for extra, ignored in itertools.product(([], [weights]), ({}, {"ignore_index": 2})):
        attributes = {"reduction": reduction, **ignored}
        inputs = [x, target, *extra]
        compare("NegativeLogLikelihoodLoss", inputs, opset=opset, attributes=attributes, rtol=1e-4)
        compare("SoftmaxCrossEntropyLoss", inputs, 2, opset=opset, attributes=attributes, rtol=1e-4)
        on_both("NegativeLogLikelihoodLoss", inputs, [FLOAT], opset=opset, attributes=attributes)
        on_both("SoftmaxCrossEntropyLoss", inputs, [FLOAT, FLOAT], opset=opset, attributes=attributes)


def test_loss_ignores_a_class_that_does_not_exist():
    x, target = normal(4, 3), np.array([0, -100, 2, -100])
    (result,) = on_both("NegativeLogLikelihoodLoss", [x, target], [FLOAT], opset=22, attributes={"ignore_index": -100})
    np.testing.assert_allclose(result, -(x[0, 0] + x[2, 2]) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "attributes", "error"),
    [
        ([normal(2, 3), np.array([0, 3])], {}, InvalidArgument),
        ([normal(2, 3), np.array([0, -1])], {}, InvalidArgument),
        ([normal(2, 3), np.array([0, 1, 2])], {}, InvalidArgument),
        ([normal(2, 3), np.array([0, 1]), positive(2)], {}, InvalidArgument),
        ([normal(2, 3), np.array([0, 1])], {"reduction": "product"}, InvalidGraph),
    ],
)
def test_losses_refuse_what_does_not_fit(inputs, attributes, error):
    with pytest.raises(error):
        run_kernel("NegativeLogLikelihoodLoss", inputs, [FLOAT], opset=22, attributes=attributes)


@pytest.mark.parametrize(
    ("op_type", "inputs", "expected_shape"),
    [
        ("GlobalAveragePool", [normal(1, 3, 0, 4)], (1, 3, 1, 1)),
        ("ReduceMean", [normal(2, 0, 3), np.array([1])], (2, 1, 3)),
        ("LayerNormalization", [normal(2, 0), normal(1)], (2, 0)),
        ("InstanceNormalization", [normal(1, 2, 0, 3), normal(2), normal(2)], (1, 2, 0, 3)),
        ("MeanVarianceNormalization", [normal(0, 2, 3, 4)], (0, 2, 3, 4)),
    ],
)
def test_statistics_of_nothing_are_no_numbers_and_no_warnings(op_type, inputs, expected_shape):
    model, feeds = make_model(op_type, inputs, opset=18)
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(5):
        (found,) = session.run(None, feeds)
        assert found.shape == expected_shape
        assert np.isnan(found).all()


def test_training_on_no_samples_warns_of_nothing():
    inputs = [normal(0, 3, 2), *(positive(3) for _ in range(4))]
    model, feeds = make_model("BatchNormalization", inputs, 3, opset=15, attributes={"training_mode": 1})
    assert run_sdk(model, feeds)[0].shape == (0, 3, 2)
