"""The self-test of drivers, with planted faults: a plainer form is taken, with a warning, and nothing that gives wrong values."""

import dataclasses
import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import OutOfMemory, ProviderUnavailableError
from ort_sdk.device import OPENCL
from ort_sdk.device.drivers import DeviceForm, DriverStore, UnusableDevice, chosen_form, known_reason
from ort_sdk.device.drivers import self_test as tests
from ort_sdk.device.drivers.self_test import FAMILIES, wrong_families

pytestmark = pytest.mark.opencl


@pytest.fixture
def made(index):
    """Gives the device in a form."""
    from ort_sdk_opencl.device import context_in_form

    return lambda form: context_in_form(index, form)


@pytest.fixture
def own_class(index):
    from ort_sdk_opencl.devices import find_devices

    return find_devices()[index].device_class()


def faulty(find, replacement, name="faulty"):
    """OpenCL C with a fault in its prelude."""
    assert find in OPENCL.prelude
    return dataclasses.replace(OPENCL, name=name, prelude=OPENCL.prelude.replace(find, replacement))


NO_COMPILER = faulty("#define KERNEL __kernel", "#define KERNEL __kernel no_such_type")
WRONG_TREE = faulty("width > 0; width >>= 1", "width > 1; width >>= 1")
LOST_UPDATES = faulty("while (old != was);", "while (0); *p = 1.0f;")
SILENT_REPORTS = faulty("{ atomic_or(status, bits); }", "{ }")
WRONG_HALF = faulty("return vload_half(0, (__private const half *)&x);", "return (f32)x;")
WRONG_VECTORS = faulty("#define load_f32v(p) VLOAD(p)", "#define load_f32v(p) (VLOAD(p) + 1.0f)")


@pytest.mark.parametrize(
    ("dialect", "families"),
    [
        (OPENCL, set()),
        (NO_COMPILER, set(FAMILIES)),
        (LOST_UPDATES, {"atomics"}),
        (SILENT_REPORTS, {"atomics"}),
        (WRONG_VECTORS, {"element-wise kernels on vectors", "reductions"}),
    ],
    ids=["sound", "no compiler", "lost updates", "silent reports", "wrong vectors"],
)
def test_faults_are_found_in_their_families(made, own_class, dialect, families):
    wrong = wrong_families(made(DeviceForm(dialect, own_class)))
    assert set(wrong) == families, wrong


def test_faults_of_groups_are_found_where_groups_have_lanes(made, own_class):
    lanes = dataclasses.replace(own_class, kind="gpu", lanes=64, vector_width=1)
    assert "reductions" in wrong_families(made(DeviceForm(WRONG_TREE, lanes)))
    assert wrong_families(made(DeviceForm(OPENCL, lanes))) == {}


def test_faults_of_float16_are_found_on_scalars_too(made, own_class):
    scalars = dataclasses.replace(own_class, vector_width=1)
    assert "element-wise kernels on vectors" in wrong_families(made(DeviceForm(WRONG_HALF, scalars)))


@pytest.mark.parametrize(
    ("dialect", "chosen"),
    [(WRONG_VECTORS, ("faulty", 1)), (LOST_UPDATES, ("opencl", 16)), (NO_COMPILER, ("opencl", 16)), (OPENCL, ("opencl", 16))],
    ids=["without vectors", "another dialect", "another dialect that compiles", "as wanted"],
)
def test_a_plainer_form_is_taken_with_a_warning(made, own_class, tmp_path, caplog, dialect, chosen):
    store = _store(tmp_path)
    wanted = DeviceForm(dialect, own_class)
    form = chosen_form(wanted, OPENCL, made, store, "a device")
    assert (form.dialect.name, form.device_class.vector_width) == chosen
    assert ("a device: kernels fail their self-test in the form 'dialect faulty" in caplog.text) == (dialect is not OPENCL)
    assert len(list(tmp_path.iterdir())) == 1

    def not_again(_form):
        raise AssertionError("tested again")

    assert chosen_form(wanted, OPENCL, not_again, store, "a device") == form


def test_wrong_values_everywhere_make_a_device_unusable(made, own_class, tmp_path, monkeypatch):
    store, wanted = _store(tmp_path), DeviceForm(OPENCL, own_class)
    monkeypatch.setitem(tests.FAMILIES, "gathers", lambda _context: "rows: 1.0 instead of 2.0")
    for _ in range(2):
        with pytest.raises(
            UnusableDevice, match=r"a device cannot be used: .*gathers: rows: 1.0 instead of 2.0.*Update its driver"
        ):
            chosen_form(wanted, OPENCL, made, store, "a device")
    assert "gathers" in known_reason(store, wanted)
    assert isinstance(UnusableDevice("text"), ProviderUnavailableError)


def test_memory_that_others_have_taken_is_no_fault_of_the_driver(made, own_class, tmp_path, monkeypatch):
    def no_room(_context):
        raise OutOfMemory("no room")

    store, wanted = _store(tmp_path), DeviceForm(OPENCL, own_class)
    with monkeypatch.context() as patch:
        patch.setitem(tests.FAMILIES, "gathers", no_room)
        with pytest.raises(OutOfMemory):
            chosen_form(wanted, OPENCL, made, store, "a device")
    assert known_reason(store, wanted) is None
    assert chosen_form(wanted, OPENCL, made, store, "a device") == wanted


@pytest.mark.parametrize("content", [b"no JSON", b"[]", json.dumps({"form": "another"}).encode(), b"{}"])
def test_a_foreign_result_is_no_result(made, own_class, tmp_path, content, monkeypatch):
    store, wanted = _store(tmp_path), DeviceForm(OPENCL, own_class)
    chosen_form(wanted, OPENCL, made, store, "a device")
    (path,) = tmp_path.iterdir()
    from ort_sdk.api.sealed_files import sealed

    path.write_bytes(sealed(path.name, content))
    assert known_reason(store, wanted) is None
    assert chosen_form(wanted, OPENCL, made, store, "a device") == wanted


def test_an_unusable_device_comes_last_and_the_host_goes_on(index, tmp_path, monkeypatch):
    from ort_sdk_opencl import device

    monkeypatch.setenv("ORT_SDK_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(tests.FAMILIES, "gathers", lambda _context: "wrong")
    monkeypatch.setattr(device, "_contexts", {})
    with pytest.raises(ProviderUnavailableError, match="cannot be used"):
        ort.InferenceSession(_model(), providers=[("OpenCLExecutionProvider", {"device_id": str(index)}), "CPUExecutionProvider"])
    with pytest.raises(ProviderUnavailableError, match="cannot be used"):
        device.device_context(index)
    others = [number for number, _ in enumerate(device.find_devices()) if number != index]
    if others:
        assert device.listed_devices() == [*others, index]
    for number in others:
        with pytest.raises(ProviderUnavailableError):
            device.device_context(number)
    with pytest.raises(UnusableDevice, match=r"no OpenCL device passes its self-test: .*gathers: wrong"):
        device.listed_devices()
    session = ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 2], np.float32)})[0], [0, 2])


def _model():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _store(folder):
    folder.chmod(0o700)
    return DriverStore(folder, {"driver": "1"})
