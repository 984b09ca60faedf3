"""Tuning: the fastest form of a product is found, kept for other processes, and never trusted more than that it is a name."""

import dataclasses
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import DeviceReset, KernelInfo, NodeArg, RuntimeException
from ort_sdk.device import GPU_CLASS, OPENCL
from ort_sdk.device.drivers import DeviceForm, DriverStore, Tuning
from ort_sdk.device.drivers import tuning as tuning_module
from ort_sdk.device.namespace.device_namespace import DeviceNamespace
from ort_sdk.device.products import product
from ort_sdk.device.products.operands import Matrices
from ort_sdk.device.products.overrides import PRODUCT_OVERRIDES
from ort_sdk.device.products.panels import PanelForm, panel_forms
from ort_sdk.device.products.tiles import Tile, TileForm
from ort_sdk.device.products.tuning_key import size_bucket

pytestmark = pytest.mark.opencl

KEY = ("product", "FLOAT", 64, 64)
DRIVER = {"device": "d", "driver": "1"}
FORM = DeviceForm(OPENCL, GPU_CLASS)


class Clock:
    """Time goes on by what forms take."""

    def __init__(self, monkeypatch):
        self.now, self.calls = 0.0, []
        monkeypatch.setattr(tuning_module.time, "perf_counter", lambda: self.now)

    def forms(self, **seconds):
        def queue(name):
            self.calls.append(name)
            self.now += seconds[name]

        return {name: lambda name=name: queue(name) for name in seconds}

    def wait(self):
        """Nothing is queued."""


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def tuning_in(folder, *, times=True, driver=None, form=FORM):
    return Tuning(DriverStore(folder, driver or DRIVER), form, times=times)


def test_sizes_that_are_not_told_apart():
    buckets = [size_bucket(size) for size in range(1, 5000)]
    assert buckets[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 10]
    assert buckets == sorted(buckets)
    assert all(size <= bucket <= size * 1.25 for size, bucket in enumerate(buckets, 1))
    assert all(size_bucket(bucket) == bucket for bucket in buckets)


@pytest.mark.parametrize(
    "seconds", [{"first": 1.0, "second": 0.1}, {"first": 1e-5, "second": 2e-5}, {"first": 1e-4, "second": 3}]
)
def test_the_slow_form_is_not_chosen_and_others_read_it(clock, tmp_path, seconds):
    own, fastest = tuning_in(tmp_path), min(seconds, key=seconds.get)
    forms = clock.forms(**seconds)
    assert own.chosen(KEY, forms) is None
    assert own.compared(KEY, forms, clock.wait) == fastest
    assert own.chosen(KEY, forms) == fastest
    # compared once, also where another thread had asked meanwhile
    clock.calls.clear()
    assert own.compared(KEY, forms, clock.wait) == fastest
    assert not clock.calls
    later = tuning_in(tmp_path, times=False)
    assert later.chosen(KEY, forms) == fastest
    assert later.chosen((*KEY, 1), forms) is None


def test_what_is_about_as_fast_is_no_reason(clock, tmp_path):
    assert tuning_in(tmp_path).compared(KEY, clock.forms(first=1.0, second=0.97), clock.wait) == "first"
    assert tuning_in(tmp_path).chosen(KEY, ["first", "second"]) == "first"


def test_choices_are_those_of_a_driver_and_a_form(clock, tmp_path):
    forms = clock.forms(first=2.0, second=1.0)
    tuning_in(tmp_path).compared(KEY, forms, clock.wait)
    scalars = DeviceForm(OPENCL, dataclasses.replace(GPU_CLASS, vector_width=1))
    for other in ({"driver": {**DRIVER, "driver": "2"}}, {"form": scalars}):
        assert tuning_in(tmp_path, **other).chosen(KEY, forms) is None
    assert tuning_in(tmp_path).chosen(KEY, ["first", "another"]) is None


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_counts_as_none_and_is_written_again(clock, tmp_path, damage, caplog):
    forms = clock.forms(first=2.0, second=1.0)
    tuning_in(tmp_path).compared(KEY, forms, clock.wait)
    (path,) = tmp_path.glob("tuning-*")
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-1], "changed": content[:-1] + b"?", "empty": b""}[damage])
    with caplog.at_level(logging.WARNING, "ort_sdk.device"):
        own = tuning_in(tmp_path)
        assert own.chosen(KEY, forms) is None
    assert path.name in caplog.text
    assert "damaged" in caplog.text
    assert own.compared(KEY, forms, clock.wait) == "second"
    assert tuning_in(tmp_path).chosen(KEY, forms) == "second"


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"null", b"{}", b'{"form": 3}', b'{"form": ["second"]}'])
def test_contents_of_others_count_as_none(clock, tmp_path, content, caplog):
    forms = clock.forms(first=1.0, second=2.0)
    tuning_in(tmp_path).compared(KEY, forms, clock.wait)
    store = DriverStore(tmp_path, DRIVER)
    own = tuning_in(tmp_path)
    store.write(content, "tuning", *own._own, repr(KEY))
    with caplog.at_level(logging.WARNING, "ort_sdk.device"):
        assert own.chosen(KEY, forms) is None
    assert "as if none were kept" in caplog.text


def test_forms_that_fail_are_passed_over(clock, tmp_path):
    def fails():
        raise RuntimeException("no room")

    forms = {**clock.forms(first=2.0), "failing": fails, **clock.forms(third=1.0)}
    assert tuning_in(tmp_path).compared(KEY, forms, clock.wait) == "third"
    with pytest.raises(RuntimeException, match="no room"):
        tuning_in(None).compared(KEY, {"failing": fails, **clock.forms(other=1.0)}, clock.wait)

    def loses():
        raise DeviceReset("lost")

    with pytest.raises(DeviceReset):
        tuning_in(None).compared(KEY, {**clock.forms(first=2.0), "losing": loses}, clock.wait)


def test_nothing_is_kept_without_a_folder(clock):
    own = tuning_in(None)
    assert own.compared(KEY, clock.forms(first=2.0, second=1.0), clock.wait) == "second"
    assert own.chosen(KEY, ["first", "second"]) == "second"


class Forced:
    """Takes the forms one after the other, instead of the fastest one."""

    times = False

    def __init__(self):
        self.position, self.names = 0, []

    def chosen(self, _key, forms):
        self.names = list(forms)
        return self.names[self.position] if self.position < len(self.names) else None


@pytest.fixture(params=["cpu", "gpu", "gpu of many units"])
def forced(request):
    """A namespace of a context of its own, whose forms are forced."""
    from ort_sdk_opencl.device import context_in_form
    from ort_sdk_opencl.devices import find_devices

    own = {
        "cpu": find_devices()[0].device_class(),
        "gpu": GPU_CLASS,
        "gpu of many units": dataclasses.replace(GPU_CLASS, units=64),
    }
    context = context_in_form(0, DeviceForm(OPENCL, own[request.param]))
    context.tuning = Forced()
    return DeviceNamespace(context)


def _all_forms(xp, compute, least=2):
    """Results in all forms."""
    tuning, results = xp.context.tuning, []
    while True:
        results.append(xp.to_host(compute()))
        tuning.position += 1
        if tuning.position >= len(tuning.names):
            assert len(tuning.names) >= least
            return results


@pytest.mark.parametrize(("m", "k", "n"), [(2, 600, 40), (4, 70, 300), (7, 33, 31), (9, 20, 40), (13, 1100, 200), (40, 64, 257)])
def test_products_are_the_same_in_all_forms(forced, m, k, n):
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    left, right = forced.from_host(a), forced.from_host(b)
    wanted = np.tanh(a.astype(np.float64) @ b)
    for found in _all_forms(forced, lambda: forced.tanh(left @ right)):
        np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("outputs", [9, 40])
def test_convolutions_are_the_same_in_all_forms(forced, outputs):
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 3, 12, 11)).astype("f4"), rng.standard_normal((outputs, 3, 3, 3)).astype("f4")
    info = KernelInfo("Conv", 11, attributes={}, inputs=(NodeArg("x", "tensor(float)", None),))
    convolve = PRODUCT_OVERRIDES["", "Conv"](info, forced, None)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (3, 3), axis=(2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", windows, weight.astype("f8"))
    arrays = [forced.from_host(each) for each in (x, weight)]
    for found in _all_forms(forced, lambda: convolve(*arrays)):
        np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("m", [1, 3, 12])
def test_products_with_blocks_are_the_same_in_all_forms(forced, m):
    rng, n, k = np.random.default_rng(m), 50, 256
    codes, scales = rng.integers(0, 256, (n, k // 32, 16)).astype("u1"), rng.uniform(0.5, 1, (n, k // 32)).astype("f4")
    info = KernelInfo(
        "MatMulNBits",
        1,
        "com.microsoft",
        attributes={"K": k, "N": n, "bits": 4, "block_size": 32},
        inputs=(NodeArg("a", "tensor(float)", None),),
    )
    multiply = PRODUCT_OVERRIDES["com.microsoft", "MatMulNBits"](info, forced, None)
    values = np.stack([codes & 15, codes >> 4], -1).reshape(n, k // 32, 32).astype("f8") - 8
    a = rng.standard_normal((m, k)).astype("f4")
    wanted = a.astype("f8") @ (values * scales[..., None]).reshape(n, k).T
    arrays = [forced.from_host(each) for each in (a, codes, scales)]
    has_one = forced.context.device.is_cpu and m == 1
    for found in _all_forms(forced, lambda: multiply(*arrays), least=0 if has_one else 2):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_rows_that_are_not_packed_are_all_there(xp):
    for m in range(1, 60):
        for n in (31, 191, 192, 1000):
            a, b = (xp.zeros(shape, dtype=xp.float32).strided() for shape in ((1, 1, m, 3), (1, 1, 3, n)))
            forms = panel_forms(Matrices(a, b))
            assert all(form.packs_rows or form.rows <= m for form in forms)
            assert len({form.name for form in forms}) == len(forms)


SLOW_PANELS, SLOW_TILES = PanelForm(1, packs_rows=False, group_operations=1), TileForm(Tile(16, 16, 16, 1, 1), 1)


@pytest.fixture
def tuned(tmp_path):
    """Gives a namespace whose tuning times forms and keeps choices in the test's folder."""
    from ort_sdk_opencl.device import context_in_form
    from ort_sdk_opencl.devices import find_devices

    def made(kind):
        form = DeviceForm(OPENCL, find_devices()[0].device_class() if kind == "cpu" else GPU_CLASS)
        context = context_in_form(0, form)
        context.tuning = tuning_in(tmp_path, form=form)
        return DeviceNamespace(context)

    return made


def _slowed(multiply):
    """Computes a slow form many times."""

    def run(*arguments):
        for _ in range(20 if arguments[-1] in (SLOW_PANELS, SLOW_TILES) else 1):
            multiply(*arguments)

    return run


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_slow_form_of_a_product_is_not_chosen(tuned, tmp_path, monkeypatch, kind):
    own_panels, own_tiles = product.panel_forms, product.tile_forms
    monkeypatch.setattr(product, "panel_forms", lambda matrices: [SLOW_PANELS, own_panels(matrices)[0]])
    monkeypatch.setattr(product, "tile_forms", lambda device, matrices: [SLOW_TILES, own_tiles(device, matrices)[0]])
    for name in ("multiply_panels", "multiply_tiles"):
        monkeypatch.setattr(product, name, _slowed(getattr(product, name)))
    xp = tuned(kind)
    a, b = (xp.from_host(np.ones((256, 256), np.float32)) for _ in range(2))
    np.testing.assert_array_equal(xp.to_host(a @ b), np.full((256, 256), 256))
    (key,) = xp.context.tuning._chosen
    assert key[0] == "product"
    assert xp.context.tuning._chosen[key] not in (SLOW_PANELS.name, SLOW_TILES.name)
    # packed weights of forms that were compared are not kept
    assert not b.strided().held.derived
    assert not b.strided().held.is_constant


def test_forms_are_not_compared_while_launches_are_captured(tuned, monkeypatch):
    xp = tuned("gpu")
    monkeypatch.setattr(Tuning, "compared", lambda *_: pytest.fail("forms are compared"))
    a, b = (xp.from_host(np.ones((64, 64), np.float32)) for _ in range(2))
    with xp.context.capture() as recording:
        (a @ b).strided()
    assert recording.launches
    xp.context.tuning.times = False
    np.testing.assert_array_equal(xp.to_host(a @ b), np.full((64, 64), 64))


def _model():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [40, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [40, 96])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 96], np.arange(64 * 96, dtype=np.float32) % 7)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _run(index, **options):
    providers = [("OpenCLExecutionProvider", {"device_id": str(index), **options}), "CPUExecutionProvider"]
    session = ort.InferenceSession(_model(), providers=providers)
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    weight = (np.arange(64 * 96) % 7).reshape(64, 96)
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x.astype("f8") @ weight, rtol=1e-4, atol=1e-4)
    return session


TUNED = {"tunable_op_enable": "1", "tunable_op_tuning_enable": "1"}
LATER = """
import os, sys
from ort_sdk_opencl.device import context_of
from ort_sdk_opencl.devices import find_devices
from ort_sdk_opencl.options import parsed_options
import numpy as np
from ort_sdk.device.drivers import Tuning
from ort_sdk.device.namespace.device_namespace import DeviceNamespace

index = int(sys.argv[1])
Tuning.compared = None
context = context_of(parsed_options({"tunable_op_enable": "1"}, find_devices(), index))
xp = DeviceNamespace(context)
a, b = (xp.from_host(np.ones(shape, np.float32)) for shape in ((40, 64), (64, 96)))
rows, launch = [], context.launcher.launch
def noted(each):
    rows.append(dict(each.kernel.defines).get("ROWS"))
    launch(each)
context.launcher.launch = noted
xp.to_host(a @ b)
print(rows[-1])
"""


def test_off_by_default_and_read_by_a_second_process(index, tmp_path, monkeypatch):
    from ort_sdk_opencl import device

    monkeypatch.setenv("ORT_SDK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(device, "_contexts", {})
    folder = tmp_path / "opencl"
    _run(index)
    _run(index, tunable_op_enable="1")
    assert not list(folder.glob("tuning-*"))
    # the form that is preferred has more rows
    monkeypatch.setattr(tuning_module, "_timed", lambda queue, _wait, _count: queue() or abs(queue.args[-1].rows - 4.0))
    _run(index, **TUNED)
    assert len(list(folder.glob("tuning-*"))) == 1
    found = subprocess.run(
        [sys.executable, "-c", LATER, str(index)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert found.stdout.split() == ["4"]


def test_sessions_that_tune_and_those_that_do_not_share_no_forms(index, tmp_path, monkeypatch):
    from ort_sdk_opencl import device

    monkeypatch.setenv("ORT_SDK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(device, "_contexts", {})
    _run(index, **TUNED)
    assert len(list((tmp_path / "opencl").glob("tuning-*"))) == 1
    tunings = [context.tuning for context in device._contexts.values()]
    assert [tuning is not None and tuning.times for tuning in tunings] == [True]
    _run(index)
    assert [context.tuning is None for context in device._contexts.values()] == [False, True]
