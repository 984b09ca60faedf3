"""Einsum of two operands as a product of matrices: every order of axes beside float64, for sizes that the graph does not tell."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.platform import libraries

import ort_sdk
from ort_sdk.api import InvalidArgument

SIZES = {"a": 2, "b": 3, "c": 5, "d": 17, "e": 20, "f": 33, "l": 40}
EQUATIONS = [
    "abd,cfd->acbf",  # Rows and columns take turns in the output.
    "abde,def->abdf",  # A stack whose axis is in the middle.
    "abde,abfe->abdf",
    "ade,aef->afd",  # Columns first: the second operand is on the left.
    "adl,del->ae",  # Several axes are summed over.
    "dla,lef->adef",  # Rows lie apart.
    "del,ed->l",
    "ad,ad->a",
    "da,da->a",
    "abcde,fe->fabcd",
    "d,d e->e",
]
NOT_BOUND = ["ad,ae->ade", "aad,ad->d", "ade,ad->a", "ad,d,d->a", "...d,d->..."]

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="products are compiled")


def _operands(equation):
    rng = np.random.default_rng(0)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    return [rng.standard_normal([SIZES[label] for label in term.replace("...", "a")], dtype=np.float32) for term in terms]


def _expected(equation, operands):
    wide = [operand.astype(np.float64) for operand in operands]
    return np.einsum(equation.replace(" ", ""), *wide)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_every_order(run_both, equation):
    operands = _operands(equation)
    found, bound = run_both("Einsum", *operands, equation=equation)
    for one in (found[0], bound[0]):
        np.testing.assert_allclose(one, _expected(equation, operands), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("equation", NOT_BOUND)
def test_what_is_no_product(run_both, equation):
    operands = _operands(equation)
    found, bound = run_both("Einsum", *operands, equation=equation)
    assert bound is None
    np.testing.assert_allclose(found[0], _expected(equation, operands), rtol=1e-4, atol=1e-4)


def test_product_and_copies_are_native(make_kernel):
    equation = EQUATIONS[0]
    operands = _operands(equation)
    out = np.empty([SIZES[label] for label in "acbf"], np.float32)
    kernel = make_kernel("Einsum", tuple(operands), {"equation": equation}, "", None, (), ())
    call = kernel.bind([FixedSlot(operand) for operand in operands], [FixedSlot(out)])
    assert call.native is not None


@pytest.mark.parametrize("shapes", [((2, 1, 17), (5, 33, 17)), ((2, 3, 17), (5, 33, 1)), ((0, 3, 17), (5, 33, 17))], ids=str)
def test_broadcast_and_empty_axes(shapes):
    value = helper.make_tensor_value_info
    equation = EQUATIONS[0]
    node = helper.make_node("Einsum", ["x", "y"], ["z"], equation=equation)
    inputs = [value(name, TensorProto.FLOAT, [None] * 3) for name in "xy"]
    graph = helper.make_graph([node], "g", inputs, [value("z", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    full = np.broadcast_to(y, (5, 33, 17))
    session = ort_sdk.InferenceSession(model)
    for _ in range(4):
        found = session.run(None, {"x": x, "y": y})[0]
        np.testing.assert_allclose(found, np.einsum(equation, x.astype(np.float64), full), rtol=1e-4, atol=1e-4)


def test_other_ranks_are_refused(make_kernel):
    x, y = _operands(EQUATIONS[0])
    kernel = make_kernel("Einsum", (x, y), {"equation": EQUATIONS[0]}, "", None, (), ())
    out = np.empty((2, 5, 3, 33), np.float32)
    call = kernel.bind([FixedSlot(x[0]), FixedSlot(y)], [FixedSlot(out)])
    for compute in (call, lambda: kernel.compute(x[0], y)):
        with pytest.raises(InvalidArgument, match="rank 2"):
            compute()
