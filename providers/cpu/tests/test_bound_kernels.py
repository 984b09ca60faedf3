"""Bound kernels write what ``compute`` returns: any strides, broadcasting, no elements, no dimensions, infinities and NaNs."""

import math

import numpy as np
import pytest
from ort_sdk_cpu.kernels import index
from ort_sdk_cpu.kernels.bindable import BINDERS
from ort_sdk_cpu.kernels.error_function import erf_float32, gelu_float32
from ort_sdk_cpu.registry import kernel_registry

from ort_sdk.api import NOT_PACKED, KernelInfo, NodeArg, find_schema, schema_versions, tensor_type
from ort_sdk.api.element_type import element_type_of

MICROSOFT = "com.microsoft"


class Slot:
    def __init__(self, array, *, is_fixed):
        self.array = array
        self.is_fixed = is_fixed


class Constant:
    """A constant tensor over an array."""

    def __init__(self, array):
        self.array = array
        self.element_type = element_type_of(array)
        self.shape = array.shape
        self.nbytes = array.nbytes

    def numpy(self):
        return self.array

    def packed(self):
        return np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)


def _argument(name, value):
    return None if value is None else NodeArg(name, tensor_type(element_type_of(value)), value.shape)


def _kernel(op_type, inputs, attributes, domain, version, constants, outputs):
    version = version or schema_versions(op_type, domain)[-1]
    (row,) = [row for row in kernel_registry().candidates(domain, op_type) if row.kernel_def.since_version == version]
    info = KernelInfo(
        op_type,
        version,
        domain,
        attributes=attributes,
        inputs=tuple(_argument(f"x{index}", value) for index, value in enumerate(inputs)),
        outputs=outputs,
        constants={index: Constant(inputs[index]) for index in constants},
    )
    return row.create(info)


def run_both(op_type, *inputs, domain="", version=None, constants=(), wanted=(0,), **attributes):
    """Outputs by ``compute`` and by ``bind``, with fixed and with changing slots; None if the kernel is not bound."""
    count = max(wanted) + 1
    schema = find_schema(op_type, version or schema_versions(op_type, domain)[-1], domain)
    assert schema is not None
    declared = tuple(NodeArg(f"y{index}", None) for index in range(count))
    plain = _kernel(op_type, inputs, attributes, domain, version, constants, declared[:1])
    with np.errstate(all="ignore"):
        found = plain.compute(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        typed = tuple(_argument(f"y{index}", np.asarray(found[index])) if index < len(found) else None for index in range(count))
        kernel = _kernel(op_type, inputs, attributes, domain, version, constants, typed)
        expected = kernel.compute(*inputs)
        expected = [np.asarray(value) for value in (expected if isinstance(expected, tuple) else (expected,))]
        if not hasattr(kernel, "bind"):
            return expected, None
        before = [None if value is None else value.copy() for value in inputs]
        results = [_bound(kernel, inputs, expected, is_fixed=is_fixed) for is_fixed in (True, False)]
    for value, kept in zip(inputs, before, strict=True):
        if value is not None:
            np.testing.assert_array_equal(value, kept)
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    return expected, results[0]


def _bound(kernel, inputs, expected, *, is_fixed):
    outputs = [np.full(value.shape, 7, dtype=value.dtype) for value in expected]
    read, written = [Slot(value, is_fixed=is_fixed) for value in inputs], [Slot(value, is_fixed=is_fixed) for value in outputs]
    call = kernel.bind(read, written)
    for _ in range(2):
        for output in outputs:
            output.fill(3)
        call()
    return outputs


def check(op_type, *inputs, tolerance=0.0, **options):
    expected, bound = run_both(op_type, *inputs, **options)
    assert bound is not None, f"{op_type} is not bound"
    for value, wanted in zip(bound, expected, strict=True):
        assert value.shape == wanted.shape
        if tolerance:
            np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(value, wanted)


def layouts(shape, dtype=np.float32, seed=0):
    """Arrays of a shape and several strides, read-only, with NaN and infinities if of floats."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    values = rng.standard_normal(shape) * 3 if dtype.kind == "f" else rng.integers(0, 2 if dtype.kind == "b" else 50, shape)
    base = np.asarray(values).astype(dtype)
    if dtype.kind == "f" and base.size > 5:
        base.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, -0.0]
    wide = np.empty((*shape[:-1], shape[-1] * 2), dtype)[..., ::2] if shape else base.copy()
    wide[...] = base
    found = [base, np.asfortranarray(base), wide]
    for array in found:
        array.flags.writeable = False
    return found


SHAPES = [(), (0,), (3, 0, 2), (7,), (4, 5), (2, 3, 17), (3, 70, 101)]
UNARY = [
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu"),
    *("HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
]


@pytest.mark.parametrize("op_type", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_one_input(op_type, dtype):
    for shape in SHAPES:
        for x in layouts(shape, dtype):
            check(op_type, x, tolerance=2e-6)


def test_truth_values_and_bits():
    for x in layouts((3, 7), np.bool_):
        check("Not", x)
    for x in layouts((3, 7), np.int16):
        check("BitwiseNot", x)
        check("Neg", x)
    for x in layouts((3, 7)):
        check("IsNaN", x)


BROADCAST = [((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((3, 1), (1, 5)), ((), (3,)), ((0, 2), (1, 2)), ((), ())]


@pytest.mark.parametrize("shapes", BROADCAST, ids=str)
def test_functions_of_two_inputs_broadcast(shapes):
    for op_type in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Equal", "Less", "GreaterOrEqual"):
        for a, b in zip(layouts(shapes[0]), layouts(shapes[1], seed=1), strict=True):
            check(op_type, a, b)
    for op_type in ("And", "Or", "Xor"):
        for a, b in zip(layouts(shapes[0], np.bool_), layouts(shapes[1], np.bool_, seed=1), strict=True):
            check(op_type, a, b)
    for op_type in ("Add", "Mul", "BitwiseXor", "Max"):
        for a, b in zip(layouts(shapes[0], np.int32), layouts(shapes[1], np.int32, seed=1), strict=True):
            check(op_type, a, b)


def test_any_number_of_inputs():
    arrays = [*layouts((2, 3)), *layouts((3,), seed=2)]
    for op_type in ("Max", "Min", "Sum"):
        check(op_type, *arrays)
        check(op_type, arrays[0])


def test_constant_exponents():
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    for exponent in (2.0, 3.0, 0.5):
        check("Pow", x, np.array(exponent, np.float32), constants=(1,))


def test_signed_quotients_and_narrow_types_are_not_bound():
    _, bound = run_both("Div", np.array([7, -7]), np.array([2, 2]))
    assert bound is None
    _, bound = run_both("Add", np.ones(3, np.float16), np.ones(3, np.float16))
    assert bound is None


def test_clip():
    low, high = np.array(-0.5, np.float32), np.array(1, np.float32)
    for x in layouts((5, 9)):
        for bounds in [(), (low,), (low, high), (None, high), (None, None), (high, low)]:
            check("Clip", x, *bounds)
        check("Clip", x, version=6, min=-1.0, max=0.25)


def test_gelu_forms():
    for x in layouts((40, 1000)):
        check("Gelu", x, approximate="tanh", tolerance=1e-6)
        check("QuickGelu", x, domain=MICROSOFT, tolerance=1e-6)
        for op_type in ("BiasGelu", "FastGelu"):
            check(op_type, x, layouts((1000,))[0], domain=MICROSOFT, tolerance=1e-6)
        check("FastGelu", x, domain=MICROSOFT, tolerance=1e-6)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (0, 4), (700, 130)], ids=str)
def test_softmax(shape):
    for x in layouts(shape):
        for axis in range(-len(shape), len(shape)):
            check("Softmax", x, axis=axis, tolerance=1e-6)
        for axis in range(len(shape)):
            check("Softmax", x, axis=axis, version=11, tolerance=1e-6)


@pytest.mark.parametrize("shape", [(6,), (3, 8), (2, 5, 8), (900, 96)], ids=str)
def test_normalizations_of_rows(shape):
    rng = np.random.default_rng(0)
    scale, shift = (rng.standard_normal(shape[-1]).astype(np.float32) for _ in range(2))
    for x in (np.nan_to_num(layout) for layout in layouts(shape)):
        check("LayerNormalization", x, scale, shift, tolerance=2e-5)
        check("LayerNormalization", x, scale, tolerance=2e-5)
        check("RMSNormalization", x, scale, tolerance=2e-5)
        check("LayerNormalization", x, np.ones(shape, np.float32), np.ones(shape, np.float32), axis=0, tolerance=2e-5)
        if len(shape) > 1:
            check("SkipLayerNormalization", x, x, scale, shift, shift, domain=MICROSOFT, tolerance=2e-5)
            check("SkipLayerNormalization", x, x, scale, domain=MICROSOFT, tolerance=2e-5)
            check("SkipSimplifiedLayerNormalization", x, x, scale, shift, domain=MICROSOFT, tolerance=2e-5)


@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4)])
def test_batch_normalization(constants):
    rng = np.random.default_rng(0)
    parameters = [rng.random(3).astype(np.float32) for _ in range(4)]
    for shape in [(2, 3), (2, 3, 4, 5), (0, 3, 2)]:
        for x in layouts(shape):
            check("BatchNormalization", x, *parameters, constants=constants, tolerance=1e-6)


PRODUCTS = [
    *[((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,))],
    *[((0, 4), (4, 5)), ((2, 3, 0), (0, 5)), ((5, 1, 3, 4), (2, 4, 6))],
]


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul(shapes):
    for a, b in zip(layouts(shapes[0]), layouts(shapes[1], seed=1), strict=True):
        check("MatMul", np.nan_to_num(a, posinf=1, neginf=1), np.nan_to_num(b, posinf=1, neginf=1), tolerance=1e-5)
    check("MatMul", layouts(shapes[0], np.int32)[0], layouts(shapes[1], np.int32)[0])


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
def test_gemm_and_fused_products(trans):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 3) if trans[0] else (3, 4)).astype(np.float32)
    b = rng.standard_normal((5, 4) if trans[1] else (4, 5)).astype(np.float32)
    attributes = {"transA": trans[0], "transB": trans[1], "alpha": 0.5, "tolerance": 1e-5}
    for c in ([], [np.float32(2).reshape(())], [rng.standard_normal((1, 5)).astype(np.float32)]):
        check("Gemm", a, b, *c, beta=1.5, **attributes)
        check("FusedGemm", a, b, *c, domain=MICROSOFT, activation="Relu", **attributes)
    check("FusedMatMul", np.stack([a, a]), b, domain=MICROSOFT, **attributes)
    for activation in ("Relu", "Sigmoid", "Tanh", "LeakyRelu"):
        options = {"activation": activation, "activation_alpha": 0.25}
        check("FusedMatMulActivation", a, b, domain=MICROSOFT, **options, **attributes)


CONVOLUTIONS = [
    ((1, 3, 8, 8), (5, 3, 1, 1), {}),
    ((2, 4, 9, 8), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 0]}),
    ((2, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1], "dilations": [2, 1]}),
    ((1, 6, 7), (12, 1, 3), {"group": 6}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {"auto_pad": "SAME_UPPER"}),
    ((0, 3, 8, 8), (5, 3, 3, 3), {}),
    ((1, 32, 64, 64), (8, 32, 5, 5), {"pads": [2, 2, 2, 2]}),
    ((1, 40, 90, 90), (40, 1, 3, 3), {"group": 40, "strides": [2, 2]}),
    ((2, 3, 8, 8), (5, 3, 1, 1), {"strides": [2, 2]}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS, ids=str)
def test_convolution(x_shape, w_shape, attributes):
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal(w_shape).astype(np.float32), rng.standard_normal(w_shape[0]).astype(np.float32)
    for layout in layouts(x_shape):
        x = np.nan_to_num(layout, posinf=1, neginf=1)
        check("Conv", x, weight, bias, tolerance=1e-4, **attributes)
        check("Conv", x, weight, tolerance=1e-4, **attributes)
        for activation in ("Relu", "HardSigmoid", "LeakyRelu"):
            parameters = [0.1, 0.5][: 1 + (activation == "HardSigmoid")]
            fused = {"domain": MICROSOFT, "activation": activation, "activation_params": parameters}
            check("FusedConv", x, weight, bias, tolerance=1e-4, **fused, **attributes)
    expected, _ = run_both("Conv", x, weight, **attributes)
    check("FusedConv", x, weight, bias, np.ones_like(expected[0]), tolerance=1e-4, domain=MICROSOFT, **attributes)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [1, 1]},
        {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [3, 3]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "dilations": [2, 2]},
    ],
    ids=str,
)
def test_pooling(op_type, attributes):
    for x in layouts((2, 3, 9, 8)):
        check(op_type, x, tolerance=1e-6, **attributes)
    if op_type == "AveragePool":
        check(op_type, np.ones((1, 2, 7, 7), np.float32), count_include_pad=1, **attributes)
    else:
        check(op_type, layouts((2, 3, 9, 8), np.uint8)[2], **attributes)


def test_global_pooling():
    for shape in [(2, 3, 4, 5), (2, 3, 7), (1, 2, 3, 4, 5)]:
        for x in layouts(shape):
            check("GlobalAveragePool", x, tolerance=1e-6)
            check("GlobalMaxPool", x)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.bool_])
def test_moved_elements(dtype):
    for x, y in zip(layouts((3, 4, 5), dtype), layouts((3, 1, 5), dtype, seed=1), strict=True):
        for axis in (1, -2):
            check("Concat", x, y, x, axis=axis)
        check("Where", layouts((4, 5), np.bool_)[1], x, y)
        check("Expand", y, np.array([2, 3, 4, 5]))
        for axis in range(-3, 3):
            check("Gather", x, np.array([[2, 0], [-1, -3]]), axis=axis)
            check("Gather", x, np.array(1, np.int32), axis=axis)
            check("Gather", x, np.zeros((0,), np.int64), axis=axis)


def test_gather_out_of_range_is_refused():
    kernel = _kernel("Gather", (np.ones(3, np.float32), np.array([0])), {}, "", None, (), (NodeArg("y", "tensor(float)"),))
    indices = Slot(np.array([0]), is_fixed=False)
    call = kernel.bind([Slot(np.ones(3, np.float32), is_fixed=True), indices], [Slot(np.empty(1, np.float32), is_fixed=True)])
    call()
    for outside in (3, -4):
        indices.array = np.array([outside])
        with pytest.raises(Exception, match="outside axis 0"):
            call()


def test_casts_to_floats():
    for dtype in (np.int32, np.bool_, np.float64, np.uint8):
        for x in layouts((3, 5), dtype):
            check("Cast", x, to=1)
    _, bound = run_both("Cast", np.ones(3, np.float32), to=7)
    assert bound is None


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"])
def test_reductions(op_type):
    for shape in [(), (5,), (2, 3, 4), (3, 0)]:
        if op_type == "ReduceMean" and 0 in shape:
            continue
        for x in layouts(shape):
            for axes in ([], list(range(len(shape))), [-1], [0])[: 2 if not shape else 4]:
                for options in ({"keepdims": 0}, {"keepdims": 1}, {"noop_with_empty_axes": 1}):
                    check(op_type, x, np.array(axes, np.int64), tolerance=1e-6, **options)
    for x in layouts((3, 4), np.int32):
        if op_type != "ReduceMean":
            check(op_type, x, np.array([1]))


def test_the_index_names_what_the_modules_bind():
    listed = {(domain, name) for domains in index.MODULES.values() for domain, names in domains.items() for name in names}
    for domain, name in listed:
        assert index.load(domain, name)
    assert set(BINDERS) == listed
    assert listed <= set(kernel_registry().operators())


def test_softmax_of_rows_far_apart():
    """Rows that vanish beside the largest element of all, masked ones, and rows of nothing but infinities."""
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    x += np.array([0, -19, -90, 300, -1e9, 1e9], np.float32)[:, None]
    check("Softmax", x, tolerance=1e-6)
    x[2, 10:] = -np.inf
    check("Softmax", x, tolerance=1e-6)
    x[3, :] = -np.inf
    check("Softmax", x, tolerance=1e-6)
    check("Softmax", np.where(np.arange(50) < 30, x[:1], np.finfo(np.float32).min), tolerance=1e-6)


def test_softmax_with_a_bias():
    for x in layouts((2, 3, 4, 5)):
        for axis, inner, shape in [(3, 1, (2, 3, 1, 5)), (3, 0, (4, 5)), (2, 1, (2, 1, 4, 5)), (-1, 0, (1, 1, 4, 5))]:
            options = {"axis": axis, "is_inner_broadcast": inner, "domain": MICROSOFT, "tolerance": 1e-6}
            check("BiasSoftmax", x, layouts(shape)[0], **options)


@pytest.mark.parametrize("keys", [4, 7, 700])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention(keys, unidirectional):
    rng = np.random.default_rng(keys)
    length = min(keys, 300)
    query, key = (rng.standard_normal((2, size, 12)).astype(np.float32) for size in (length, keys))
    value, bias = rng.standard_normal((2, keys, 12)).astype(np.float32), rng.standard_normal(36).astype(np.float32)
    mask = (rng.random((2, keys)) < 0.8).astype(np.int32)
    added = rng.standard_normal((1, 3, length, keys)).astype(np.float32)
    options = {"domain": MICROSOFT, "num_heads": 3, "unidirectional": unidirectional, "tolerance": 1e-5}
    check("MultiHeadAttention", query, key, value, **options)
    check("MultiHeadAttention", query, key, value, bias, **options)
    check("MultiHeadAttention", query, key, value, None, mask, added, scale=0.3, **options)
    by_head = [np.ascontiguousarray(part.reshape(2, keys, 3, 4).transpose(0, 2, 1, 3)) for part in (key, value)]
    check("MultiHeadAttention", query, *by_head, **options)
    packed = np.stack([part.reshape(2, keys, 3, 4) for part in (key, value)], axis=3)
    check("MultiHeadAttention", query, packed, **options)


class UnalignedTensor:
    """A constant one byte past an aligned address."""

    def __init__(self, array):
        raw = np.empty(array.nbytes + 65, np.uint8)
        start = -raw.ctypes.data % 64 + 1
        self._bytes = raw[start : start + array.nbytes]
        self._bytes[:] = array.reshape(-1).view(np.uint8)
        self.element_type, self.shape, self.nbytes = element_type_of(array), array.shape, array.nbytes

    def numpy(self):
        raise AssertionError("a tensor that is packed must not be copied otherwise")

    def packed(self):
        return self._bytes


def test_unaligned_weights_are_packed_and_used():
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5), (5, 3)))
    (row,) = [row for row in kernel_registry().candidates("", "MatMul") if row.kernel_def.since_version == 13]
    tensor = UnalignedTensor(weight)
    arguments = (_argument("x", x), _argument("w", weight))
    kernel = row.create(KernelInfo("MatMul", 13, inputs=arguments, outputs=(_argument("y", x),), constants={1: tensor}))
    assert kernel.packing_identity(0) is None
    assert "64" in kernel.packing_identity(1)
    assert kernel.prepack(Constant(weight), 1, None) is NOT_PACKED
    packed = kernel.prepack(tensor, 1, None)
    assert packed.buffers[0].ctypes.data % 64 == 0
    kernel.use_prepacked(packed, 1)
    np.testing.assert_array_equal(kernel.compute(x, None), x @ weight)
    out = np.empty((2, 3), np.float32)
    kernel.bind([Slot(x, is_fixed=False), Slot(None, is_fixed=True)], [Slot(out, is_fixed=True)])()
    np.testing.assert_array_equal(out, x @ weight)


def test_the_error_function_is_right_to_a_few_units_in_the_last_place():
    x = np.concatenate([np.linspace(-6, 6, 200_001), np.geomspace(1e-30, 1, 1000), [0.0, -0.0]]).astype(np.float32)
    found = np.empty_like(x)
    erf_float32(x, found)
    np.testing.assert_allclose(found, [math.erf(value) for value in x.tolist()], rtol=4e-7, atol=0)
    gelu_float32(x, found)
    expected = [value * (math.erf(value * math.sqrt(0.5)) + 1) / 2 for value in x.tolist()]
    np.testing.assert_allclose(found, expected, rtol=4e-7, atol=4e-7)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_recurrent_operators(op_type, direction):
    rng = np.random.default_rng(0)
    directions, gates, hidden = 1 + (direction == "bidirectional"), 4 if op_type == "LSTM" else 3, 6
    x = rng.standard_normal((5, 3, 4)).astype(np.float32)
    w = rng.standard_normal((directions, gates * hidden, 4)).astype(np.float32)
    r, b = (rng.standard_normal((directions, gates * hidden, *rest)).astype(np.float32) for rest in ((hidden,), ()))
    b = np.concatenate([b, b + 1], axis=1)
    initial = [rng.standard_normal((directions, 3, hidden)).astype(np.float32) for _ in range(gates - 2)]
    states = tuple(range(gates - 1))
    for attributes in [{}] if op_type == "LSTM" else [{"linear_before_reset": 0}, {"linear_before_reset": 1}]:
        options = {"hidden_size": hidden, "direction": direction, "wanted": states, "tolerance": 1e-5, **attributes}
        check(op_type, x, w, r, **options)
        check(op_type, x, w, r, b, None, *initial, **options)
        check(op_type, np.asfortranarray(x), w, r, b, **options)
    for other in [{"clip": 1.0}, {"activations": ["Relu"] * directions * (gates - 1)}]:
        _, bound = run_both(op_type, x, w, r, hidden_size=hidden, direction=direction, **other)
        assert bound is None


def test_bounds_of_large_arrays():
    for dtype in (np.float32, np.float64, np.int32, np.int8, np.uint8):
        for x in layouts((3, 50, 60), dtype):
            if np.dtype(dtype).kind != "u":
                check("Relu", x)
            low, high = np.array(3, dtype), np.array(20, dtype)
            for bounds in [(low,), (low, high), (None, high), (high, low)]:
                check("Clip", x, *bounds)
