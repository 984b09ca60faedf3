"""Arrays of a device against NumPy: random programs of views, arithmetic and writing to parts."""

import itertools
import warnings

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device.element_types import NARROW_TYPES
from ort_sdk.opset.tensor.cast import host_converter

pytestmark = pytest.mark.opencl


class Program:
    """The same steps on NumPy's arrays and on a device's; all arrays made on the way are compared at the end, once more."""

    def __init__(self, xp, seed):
        self.xp, self.rng = xp, np.random.default_rng(seed)
        self.pairs = []
        for _ in range(3):
            self._start()

    def _start(self):
        shape = tuple(self.rng.integers(1, 6, self.rng.integers(1, 4)))
        kind = self.rng.choice(["f4", "f4", "i8", "i4", "u1", "?"])
        host = (self.rng.standard_normal(shape) * 4).astype(kind)
        self.pairs.append((host, self.xp.from_host(host.copy())))

    def _pick(self):
        return self.pairs[self.rng.integers(len(self.pairs))]

    def step(self):
        name = self.rng.choice([each for each in dir(self) if each.startswith("do_")])
        getattr(self, name)()

    def do_slice(self):
        host, own = self._pick()
        key = []
        for size in host.shape:
            choice = self.rng.integers(4)
            if choice == 0:
                key.append(int(self.rng.integers(-size, size)) if size else slice(None))
            elif choice == 1:
                key.append(slice(None, None, int(self.rng.choice([-2, -1, 2]))))
            elif choice == 2:
                key.append(slice(int(self.rng.integers(0, size + 1)), None))
            else:
                key.append(slice(None))
        if self.rng.integers(3) == 0:
            key.insert(int(self.rng.integers(len(key) + 1)), None)
        self.pairs.append((host[tuple(key)], own[tuple(key)]))

    def do_permute(self):
        host, own = self._pick()
        axes = tuple(int(axis) for axis in self.rng.permutation(host.ndim))
        self.pairs.append((host.transpose(axes), self.xp.permute_dims(own, axes)))

    def do_reshape(self):
        host, own = self._pick()
        self.pairs.append((host.reshape(-1), self.xp.reshape(own, (-1,))))
        shape = (1, *reversed(host.shape), 1)
        self.pairs.append((host.reshape(shape), self.xp.reshape(own, shape)))

    def do_broadcast(self):
        host, own = self._pick()
        if host.size <= 512:
            shape = (2, *host.shape)
            self.pairs.append((np.broadcast_to(host, shape), self.xp.broadcast_to(own, shape)))

    def do_unary(self):
        host, own = self._pick()
        if host.dtype == np.float32:
            name = self.rng.choice(["sin", "tanh", "abs", "negative", "floor", "square"])
            self.pairs.append((getattr(np, name)(host), getattr(self.xp, name)(own)))
        elif host.dtype != bool:
            self.pairs.append((host + host.dtype.type(1), own + 1))

    def do_binary(self):
        (a, own_a), (b, own_b) = self._pick(), self._pick()
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return
        if a.dtype != b.dtype or a.dtype == bool or np.prod(shape) > 4096:
            return
        name = self.rng.choice(["add", "subtract", "multiply", "minimum", "maximum"])
        self.pairs.append((getattr(np, name)(a, b), getattr(self.xp, name)(own_a, own_b)))
        self.pairs.append((a < b, own_a < own_b))

    def do_where(self):
        host, own = self._pick()
        if host.dtype == bool:
            return
        self.pairs.append((np.where(host > 1, host, host.dtype.type(0)), self.xp.where(own > 1, own, self.xp.zeros_like(own))))

    def do_cast(self):
        host, own = self._pick()
        kind = np.dtype(self.rng.choice(["f4", "i8", "i4"]))
        host = np.clip(host, -1000, 1000) if host.dtype.kind == "f" else host
        own = self.xp.clip(own, -1000, 1000) if own.dtype.kind == "f" else own
        self.pairs.append((host.astype(kind), self.xp.module.astype(own, kind)))

    def do_concat(self):
        host, own = self._pick()
        if host.ndim and host.size <= 512:
            axis = int(self.rng.integers(host.ndim))
            self.pairs.append((np.concatenate([host, host], axis), self.xp.concat([own, self.xp.flip(own, axis=())], axis=axis)))

    def do_sum(self):
        host, own = self._pick()
        if host.ndim and host.dtype != bool:
            axis = int(self.rng.integers(host.ndim))
            self.pairs.append((host.sum(axis), self.xp.sum(own, axis=axis)))

    def do_write(self):
        """Write to a part of a fresh array that expressions read, once before and once after they are made."""
        host, own = self._pick()
        if not host.ndim or not host.size or host.dtype == bool:
            return
        host, own = host.copy(), self.xp.asarray(own, copy=True)
        before = (host * host.dtype.type(2), own * 2)
        self.pairs.append((np.flip(host, 0) + host, self.xp.flip(own, axis=0) + own))
        self.pairs.append(((host + host) * host, (own + own) * own))
        self.pairs.append((((host + host) * host)[::-1], self.xp.flip((own + own) * own, axis=0)))
        count = int(self.rng.integers(1, host.shape[0] + 1))
        part = slice(host.shape[0] - count, None, int(self.rng.choice([1, 2])))
        value = host[part] * host.dtype.type(3)
        own[part, ...] = own[part, ...] * 3
        host[part, ...] = value
        self.pairs += [before, (host, own), (host + host.dtype.type(1), own + 1)]

    def check(self):
        for host, own in self.pairs:
            assert own.shape == host.shape
            assert own.dtype == host.dtype
            np.testing.assert_allclose(
                self.xp.to_host(own), host, rtol=2e-5, atol=2e-5 * (1 + np.abs(host.astype(np.float64)).max(initial=0))
            )


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(xp, seed):
    program = Program(xp, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(16):
            program.step()
    program.pairs = [pair for pair in program.pairs if np.all(np.abs(pair[0].astype(np.float64)) < 1e6)]
    program.check()


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize(("kind", "inner"), [("f4", ()), ("f4", (2, 70)), ("i4", (3,)), ("i8", ()), ("f2", (3,))])
def test_scatter(xp, reduction, kind, inner):
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 4, (9, *inner)).astype(kind)
    positions, updates = rng.integers(0, 9, 40), rng.integers(1, 4, (40, *inner)).astype(kind)
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.get(reduction)
    wanted = rows.copy()
    with np.errstate(all="ignore"):
        for position, update in zip(positions, updates, strict=True):
            wanted[position] = update if combine is None else combine(wanted[position], update)
    got = xp.scatter(xp.from_host(rows), xp.from_host(positions), xp.from_host(updates), reduction)
    np.testing.assert_allclose(xp.to_host(got), wanted, rtol=1e-5 if kind != "f2" else 2e-3)


@pytest.mark.parametrize("length", [1, 2, 97, 360])
@pytest.mark.parametrize("inverse", [False, True])
def test_fourier(xp, length, inverse):
    rng = np.random.default_rng(length)
    parts = rng.standard_normal((2, 50, 3, 2)).astype(np.float32)
    z = parts[..., 0] + 1j * parts[..., 1]
    wanted = (np.fft.ifft if inverse else np.fft.fft)(z, n=length, axis=1)
    got = xp.to_host(xp.fourier(xp.from_host(parts), length, 1, inverse=inverse))
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], wanted, atol=3e-6 * np.abs(wanted).max() + 1e-7)
    if inverse:
        got, wanted = xp.fourier(xp.from_host(parts), length, 1, inverse=True, onesided=True), np.fft.irfft(z, n=length, axis=1)
        np.testing.assert_allclose(xp.to_host(got)[..., 0], wanted, atol=3e-6 * np.abs(wanted).max() + 1e-7)
    else:
        got, wanted = xp.fourier(xp.from_host(parts[..., :1]), length, 1, onesided=True), np.fft.rfft(z.real, n=length, axis=1)
        got = xp.to_host(got)
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], wanted, atol=3e-6 * np.abs(wanted).max() + 1e-7)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_determinants_and_inverses(xp, kind):
    matrices = np.random.default_rng(1).standard_normal((3, 2, 6, 6)).astype(kind)
    matrices[0, 0, 0, 0] = 0
    own, tolerance = xp.from_host(matrices), 2e-4 if kind == "f4" else 1e-10
    np.testing.assert_allclose(xp.to_host(xp.linalg.det(own)), np.linalg.det(matrices), rtol=tolerance)
    np.testing.assert_allclose(
        xp.to_host(xp.linalg.inv(own)) @ matrices, np.broadcast_to(np.eye(6), matrices.shape), atol=tolerance
    )
    np.testing.assert_array_equal(xp.to_host(xp.linalg.det(own * 0)), np.zeros((3, 2)))
    np.testing.assert_array_equal(xp.to_host(own), matrices)
    with pytest.raises(InvalidArgument, match="must be the same"):
        xp.linalg.det(own[..., :5])


def test_writing_to_a_part_leaves_what_was_made_of_it(xp):
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = xp.asarray(xp.from_host(host), copy=True)
    tripled, nested, part = x * 3, (x * 2 + 1) * 4, ((x * 2 + 1) * 4)[::-1, 1:]
    x[...] = tripled
    np.testing.assert_array_equal(xp.to_host(x), host * 3)
    np.testing.assert_array_equal(xp.to_host(tripled), host * 3)
    np.testing.assert_array_equal(xp.to_host(nested), (host * 2 + 1) * 4)
    np.testing.assert_array_equal(xp.to_host(part), ((host * 2 + 1) * 4)[::-1, 1:])
    # what is read overlaps with what is written
    x[1:, ...] = x[:-1, ...] + 1
    host = np.concatenate([host[:1] * 3, host[:-1] * 3 + 1])
    np.testing.assert_array_equal(xp.to_host(x), host)
    x[..., :] = xp.flip(x, axis=1)
    np.testing.assert_array_equal(xp.to_host(x), host[:, ::-1])
    # an expression that another one reads becomes memory
    y = xp.exp(x * 0)
    z = y + 1
    y[0, ...] = 7
    np.testing.assert_array_equal(xp.to_host(z), np.full((3, 4), 2))
    np.testing.assert_array_equal(xp.to_host(y)[:2], [[7] * 4, [1] * 4])


def test_casts_to_types_of_at_most_8_bits(xp):
    rng = np.random.default_rng(0)
    exponents = np.concatenate([rng.integers(-140, 120, 500), rng.integers(-20, 20, 1500)])
    edges = [0, -0.0, np.inf, -np.inf, np.nan, 240, 248, 448, 464, 465, 57344, 61440, 61441]
    values = np.concatenate([rng.standard_normal(2000) * np.exp2(exponents), np.arange(-500, 500) / 64, edges]).astype(np.float32)
    for element_type in sorted(NARROW_TYPES):
        given = np.nan_to_num(np.clip(values, -1e6, 1e6)) if "INT" in element_type.name else values
        modes = ("up", "down", "nearest") if element_type is TensorElementType.FLOAT8E8M0 else ("up",)
        for saturate, mode in itertools.product((True, False), modes):
            own = xp.converted(xp.from_host(given), element_type, saturate=saturate, round_mode=mode)
            wanted = host_converter(TensorElementType.FLOAT, element_type, saturate=saturate, round_mode=mode)(given)
            np.testing.assert_array_equal(xp.to_host(own).view(np.uint8), wanted.view(np.uint8))
        codes = np.arange(2**element_type.bit_width).astype(np.uint8).view(element_type.numpy_dtype)
        decoded = xp.to_host(xp.astype(xp.from_host(codes), TensorElementType.FLOAT))
        np.testing.assert_array_equal(decoded, codes.astype(np.float32))
    with pytest.raises(InvalidArgument, match="round_mode 'away'"):
        xp.converted(xp.from_host(values), TensorElementType.FLOAT8E8M0, round_mode="away")


def test_bits_of_another_type(xp):
    x = np.array([[1.5, -0.0], [np.inf, 3]], np.float32)
    got = xp.with_bits_of(xp.from_host(x) * 1, TensorElementType.INT32)
    np.testing.assert_array_equal(xp.to_host(got + 0), x.view(np.int32))


def test_what_is_refused(xp):
    x = xp.from_host(np.zeros((2, 3), np.float32))
    for key in (2, -3, (0, 0, 0), (0, 3)):
        with pytest.raises(InvalidArgument):
            x[key]
    with pytest.raises(InvalidArgument, match="number of elements differs"):
        xp.reshape(x, (4, 2))
    with pytest.raises(InvalidArgument, match="do not broadcast"):
        x + xp.from_host(np.zeros(2, np.float32))
    with pytest.raises(InvalidArgument, match="sizes other than 1"):
        xp.broadcast_to(x, (3, 3))


def test_many_parts_one_after_the_other(xp):
    rng = np.random.default_rng(0)
    hosts = [rng.standard_normal((3, size, 2)).astype(np.float32) for size in (4, 4, 4, 4, 4, 1, 1, 4, 0, 2)]
    owns = [xp.from_host(host) for host in hosts]
    mixed = [own * 2 if index % 3 == 0 else xp.tanh(own) if index % 3 == 1 else own for index, own in enumerate(owns)]
    wanted = [host * 2 if index % 3 == 0 else np.tanh(host) if index % 3 == 1 else host for index, host in enumerate(hosts)]
    np.testing.assert_allclose(xp.to_host(xp.concat(mixed, axis=1)), np.concatenate(wanted, 1), rtol=1e-6)
    stacked = xp.to_host(xp.stack(owns[:5], axis=3))
    np.testing.assert_array_equal(stacked, np.stack(hosts[:5], axis=3))
