"""What the tests of bound kernels share: kernels made without a session, and both ways of running them."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cpu.jit.call_list import CallList
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.registry import kernel_registry

from ort_sdk.api import KernelInfo, NodeArg, schema_versions, tensor_type
from ort_sdk.api.element_type import element_type_of

# Tests are to see the kernels that compute in the end, from the first run on.
os.environ.setdefault("ORT_SDK_COMPILATION", "wait")


def pytest_addoption(parser):
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="run every N-th test of the CPU provider")


def pytest_collection_modifyitems(config, items):
    """The short form of a suite that is run in full elsewhere: neighbours differ in one parameter."""
    step, folder = config.getoption("--one-in"), Path(__file__).parent
    if step > 1:
        sampled = [item for item in items if folder in item.path.parents]
        chosen = set(sampled[::step])
        config.hook.pytest_deselected(items=[item for item in sampled if item not in chosen])
        items[:] = [item for item in items if item in chosen or folder not in item.path.parents]


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


class UnalignedConstant(Constant):
    """The same with its bytes at an odd address."""

    def packed(self):
        unaligned = np.empty(self.nbytes + 1, np.uint8)[1:]
        unaligned[:] = super().packed()
        return unaligned


def _argument(name, value):
    return None if value is None else NodeArg(name, tensor_type(element_type_of(value)), value.shape)


def _kernel(op_type, inputs, attributes, domain, version, constants, outputs):
    version = version or schema_versions(op_type, domain)[-1]
    rows = [row for row in kernel_registry().candidates(domain, op_type) if row.kernel_def.since_version == version]
    info = KernelInfo(
        op_type,
        version,
        domain,
        attributes=attributes,
        inputs=tuple(_argument(f"x{index}", value) for index, value in enumerate(inputs)),
        outputs=outputs,
        constants={index: Constant(inputs[index]) for index in constants},
    )
    accepting = [row for row in rows if row.kernel_def.when is None or row.kernel_def.when(info) is None]
    return accepting[0].create(info)


def _run_all(op_type, *inputs, domain="", version=None, constants=(), wanted=(0,), **attributes):
    """Outputs by ``compute``, and by ``bind`` with fixed and with changing slots; the first alone if the kernel is not bound."""
    count = max(wanted) + 1
    declared = tuple(NodeArg(f"y{index}", None) for index in range(count))
    plain = _kernel(op_type, inputs, attributes, domain, version, constants, declared)
    with np.errstate(all="ignore"):
        found = plain.compute(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        typed = tuple(_argument(f"y{index}", np.asarray(found[index])) if index in wanted else None for index in range(count))
        kernel = _kernel(op_type, inputs, attributes, domain, version, constants, typed)
        expected = kernel.compute(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        expected = [np.asarray(value) if index in wanted else None for index, value in enumerate(expected)]
        if not hasattr(kernel, "bind"):
            return [expected]
        before = [None if value is None else value.copy() for value in inputs]
        results = [_bound(kernel, inputs, constants, expected, is_fixed=is_fixed) for is_fixed in (True, False)]
    for value, kept in zip(inputs, before, strict=True):
        if value is not None:
            np.testing.assert_array_equal(value, kept)
    return [expected, *results]


def _run_both(*operands, **options):
    """Outputs by ``compute`` and by ``bind``, for one task whatever its slots; None if the kernel is not bound."""
    expected, *results = _run_all(*operands, **options)
    if not results:
        return expected, None
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    return expected, results[0]


def _bound(kernel, inputs, constants, expected, *, is_fixed):
    outputs = [None if value is None else np.full(value.shape, 7, dtype=value.dtype) for value in expected]
    given = [value if index in constants else _stand_in(value) for index, value in enumerate(inputs)]
    read = [_slot(value, is_fixed=is_fixed) for value in given]
    written = [_slot(value, is_fixed=is_fixed or value is None) for value in outputs]
    call = kernel.bind(read, written)
    for value, array in zip(inputs, given, strict=True):
        if array is not value:
            np.copyto(array, value)
    for run in (call, joined(call)):
        for output in outputs:
            if output is not None:
                output.fill(3)
        run()
    return outputs


def _stand_in(value):
    """Floats that lie as the given ones, and are others until they are copied: nothing of them may be kept by binding."""
    if value is None or value.dtype.kind != "f" or not value.size or min(value.strides, default=0) < 0:
        return value
    extent = sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True)) // value.itemsize + 1
    array = np.lib.stride_tricks.as_strided(np.full(extent, 5, value.dtype), value.shape, value.strides)
    return value if 0 in value.strides else array


def _slot(value, *, is_fixed):
    return SimpleNamespace(array=value, is_fixed=is_fixed, is_constant=False, shape=getattr(value, "shape", None))


def joined(call):
    """A call as programs drive it where it needs no Python."""
    return CallList([call]) if libraries.compiled_kernels().is_usable and getattr(call, "native", None) is not None else call


def _check(op_type, *inputs, tolerance=0.0, **options):
    expected, bound = _run_both(op_type, *inputs, **options)
    assert bound is not None, f"{op_type} is not bound"
    for value, wanted in zip(bound, expected, strict=True):
        if wanted is None:
            continue
        assert value.shape == wanted.shape
        if tolerance:
            np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(value, wanted)


def _layouts(shape, dtype=np.float32, seed=0):
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


GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _recurrent_inputs(op_type, directions, sizes, hidden=5):
    """X, W, R, B, no lengths, and first states."""
    rng = np.random.default_rng(0)
    steps, batch, inputs = sizes
    rows = GATES[op_type] * hidden
    shapes = [(steps, batch, inputs), (directions, rows, inputs), (directions, rows, hidden), (directions, 2 * rows)]
    states = [(directions, batch, hidden)] * (2 if op_type == "LSTM" else 1)
    made = [rng.standard_normal(shape).astype(np.float32) / max(2, hidden**0.5) for shape in (*shapes, *states)]
    return [*made[:4], None, *made[4:]]


@pytest.fixture
def recurrent_inputs():
    """``recurrent_inputs(op_type, directions, (steps, batch, inputs), hidden)``: a layer's inputs but for lengths."""
    return _recurrent_inputs


@pytest.fixture
def unaligned_constant():
    """``unaligned_constant(array)``: a constant as it may lie in a file."""
    return UnalignedConstant


@pytest.fixture
def make_kernel():
    """``make_kernel(op_type, inputs, attributes, domain, version, constants, outputs)``: the provider's kernel."""
    return _kernel


@pytest.fixture
def run_both():
    """``run_both(op_type, *inputs, **options)``: outputs by ``compute`` and by ``bind``; None if the kernel has none."""
    return _run_both


@pytest.fixture
def run_all():
    """``run_all(op_type, *inputs, **options)``: outputs of each way to call a kernel, for those whose primitives may differ."""
    return _run_all


@pytest.fixture
def check():
    """``check(op_type, *inputs, tolerance=0.0, **options)``: the kernel is bound, and both ways agree."""
    return _check


@pytest.fixture
def layouts():
    """``layouts(shape, dtype, seed)``: read-only arrays of several strides."""
    return _layouts
