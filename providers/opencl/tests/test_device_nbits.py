"""MatMulNBits on the device layer against float64, in the forms for processors and for GPUs."""

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, KernelInfo, NodeArg
from ort_sdk.device.products.overrides import PRODUCT_OVERRIDES

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl

EPSILON = {"f4": 2.0**-24, "f2": 2.0**-11}


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _packed(codes, bits):
    if bits == 8:
        return codes
    codes = np.pad(codes, [(0, 0), (0, codes.shape[-1] % 2)])
    return codes[:, 0::2] | codes[:, 1::2] << 4


class _Weight:
    """Codes, scales and zero points of n rows of k elements."""

    def __init__(self, n, k, bits, size, zeros, dtype="f4"):
        generator = np.random.default_rng(n + k)
        self.n, self.k, self.bits, self.size = n, k, bits, size
        blocks = -(-k // size)
        codes = generator.integers(0, 1 << bits, (n, blocks * size)).astype("u1")
        self.scales = generator.uniform(0.5, 1.5, (n, blocks)).astype(dtype)
        whole = generator.integers(0, 1 << bits, (n, blocks)).astype("u1")
        self.zeros = {"none": None, "bytes": _packed(whole, bits), "floats": (whole + 0.25).astype(dtype)}[zeros]
        known = {"none": np.full((n, blocks), 1 << (bits - 1)), "bytes": whole, "floats": self.zeros}[zeros]
        values = codes.reshape(n, blocks, size) - known[..., None].astype("f8")
        self.values = (values * self.scales[..., None].astype("f8")).reshape(n, -1)[:, :k]
        self.codes = _packed(codes, bits).reshape(n, blocks, size * bits // 8)

    def kernel(self, xp, dtype="f4"):
        kind = {"f4": "tensor(float)", "f2": "tensor(float16)"}[dtype]
        attributes = {"K": self.k, "N": self.n, "bits": self.bits, "block_size": self.size}
        info = KernelInfo("MatMulNBits", 1, "com.microsoft", attributes=attributes, inputs=(NodeArg("a", kind, None),))
        return PRODUCT_OVERRIDES["com.microsoft", "MatMulNBits"](info, xp, None)

    def arrays(self, xp):
        return [None if each is None else xp.from_host(each) for each in (self.codes, self.scales, self.zeros)]


@pytest.mark.parametrize("zeros", ["none", "bytes", "floats"])
@pytest.mark.parametrize(
    ("m", "n", "k", "bits", "size"),
    [
        (1, 1, 16, 4, 16),
        (1, 40, 100, 4, 32),
        (1, 19, 640, 4, 16),
        (1, 33, 512, 4, 64),
        (3, 33, 130, 4, 32),
        (5, 17, 70, 4, 16),
        (8, 20, 300, 8, 64),
        (1, 50, 600, 8, 16),
        (2, 20, 300, 8, 128),
        (4, 18, 520, 8, 32),
        (33, 45, 200, 4, 32),
        (9, 33, 257, 4, 256),
        (70, 300, 513, 4, 128),
        (20, 1000, 64, 8, 32),
    ],
)
def test_blocks_rows_and_zero_points(xp, m, n, k, bits, size, zeros):
    weight = _Weight(n, k, bits, size, zeros)
    generator = np.random.default_rng(1)
    a, bias = generator.standard_normal((m, k)).astype("f4"), generator.standard_normal(n).astype("f4")
    found = host(weight.kernel(xp)(xp.from_host(a), *weight.arrays(xp), None, xp.from_host(bias)))
    wanted = a.astype("f8") @ weight.values.T + bias
    # codes are summed from 0 to their largest, whatever the zero point
    scales = np.repeat(weight.scales.astype("f8"), size, axis=1)[:, :k]
    bound = (k + 16) * EPSILON["f4"] * (np.abs(a) @ (scales.T * (1 << bits) * 2) + np.abs(bias))
    assert found.shape == wanted.shape
    assert (np.abs(found - wanted) <= bound).all()
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("m", [1, 12])
def test_halves_and_leading_axes(xp, m):
    weight = _Weight(40, 256, 4, 32, "bytes", "f2")
    a = np.random.default_rng(1).standard_normal((2, m, 256)).astype("f2")
    found = weight.kernel(xp, "f2")(xp.from_host(a), *weight.arrays(xp))
    assert found.dtype == np.float16
    wanted = a.astype("f8") @ weight.values.T
    assert (np.abs(host(found) - wanted) <= 2 * EPSILON["f2"] * np.abs(wanted) + 1e-4).all()


def test_subnormal_activations_count_as_zero(xp):
    weight = _Weight(40, 256, 4, 32, "none")
    a = np.full((1, 256), 1e-40, "f4")
    a[0, 7] = 2.0
    found = host(weight.kernel(xp)(xp.from_host(a), *weight.arrays(xp)))
    np.testing.assert_allclose(found, 2.0 * weight.values[:, 7][None], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("m", [2, 20])
def test_what_follows_is_computed_by_the_kernel_that_multiplies(xp, monkeypatch, m):
    weight = _Weight(40, 256, 4, 32, "none")
    a, rest = (np.random.default_rng(seed).standard_normal((m, size)).astype("f4") for seed, size in ((1, 256), (2, 40)))
    y = weight.kernel(xp)(xp.from_host(a), *weight.arrays(xp))
    y = xp.tanh(y) * xp.from_host(rest)
    names = launches_of(xp, monkeypatch)
    found = host(y)
    assert "elementwise" not in names
    np.testing.assert_allclose(found, np.tanh(a.astype("f8") @ weight.values.T) * rest, atol=1e-3)


def test_a_weight_in_several_parts(xp, monkeypatch):
    from ort_sdk.device.products import nbits

    monkeypatch.setattr(nbits, "PANEL_BYTES", 1 << 15)
    monkeypatch.setattr(nbits, "MATRIX_BYTES", 1 << 15)
    weight = _Weight(150, 100, 4, 32, "bytes")
    a = np.random.default_rng(1).standard_normal((20, 100)).astype("f4")
    names = launches_of(xp, monkeypatch)
    found = host(weight.kernel(xp)(xp.from_host(a), *weight.arrays(xp)))
    assert names.count("dequantize") > 1
    np.testing.assert_allclose(found, a.astype("f8") @ weight.values.T, rtol=1e-5, atol=1e-3)


def test_sizes_that_do_not_fit_are_refused(xp):
    weight = _Weight(40, 256, 4, 32, "bytes")
    codes, scales, zeros = weight.arrays(xp)
    a = xp.from_host(np.zeros((1, 256), "f4"))
    with pytest.raises(InvalidArgument, match="B "):
        weight.kernel(xp)(a, codes[:20], scales, zeros)
    with pytest.raises(InvalidArgument, match="zero_points has shape"):
        weight.kernel(xp)(a, codes, scales, zeros[:20])
    with pytest.raises(InvalidArgument, match="scales"):
        weight.kernel(xp)(a, codes, scales[:, :3], zeros)
