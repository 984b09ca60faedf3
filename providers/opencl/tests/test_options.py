"""Provider options: which device, in which dialect; what is not allowed is refused by an error that says what is."""

import numpy as np
import pyopencl as cl
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import Fail, InvalidArgument
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.providers.opened import open_provider

pytestmark = pytest.mark.opencl


def _model():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _session(options):
    return ort.InferenceSession(_model(), providers=[("OpenCLExecutionProvider", options)])


def _provider(options):
    return open_provider(plugin_manager().handle("opencl"), options, {}).execution_provider


def test_a_device_by_platform_and_name(platform, index):
    from ort_sdk_opencl.devices import find_devices

    found = find_devices()[index]
    for options in (
        {"platform": found.platform.upper()},
        {"platform": found.platform[:8], "device_name": found.name[-12:]},
        {"device_id": str(index)},
        {"device_id": str(index), "platform": found.platform},
    ):
        provider = _provider(options)
        assert provider.context.launcher.queue.found is found, options
        assert provider.device.index == index
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    wanted = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(_session({"platform": found.platform}).run(None, {"x": x})[0], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"devise_id": "0"}, r"no option 'devise_id'; it has: device_id .*platform .*device_name .*dialect .*gpu_mem_limit"),
        ({"platform": "Atari"}, r"no device with platform='Atari'; there are 0: '.*' of platform '"),
        ({"device_name": "ST"}, r"no device with device_name='ST'"),
        ({"dialect": "cuda"}, r"dialect='cuda' .*there is no such dialect; allowed here: opencl"),
        ({"gpu_mem_limit": "much"}, r"gpu_mem_limit must be a number of bytes, 0 for no limit, got 'much'"),
        ({"tunable_op_enable": "yes"}, r"tunable_op_enable must be 0 or 1, got 'yes'"),
        ({"tunable_op_tuning_enable": "1"}, r"tunable_op_tuning_enable=1 without tunable_op_enable=1"),
        ({"device_id": "99"}, r"no device 99"),
        ({"device_id": "first"}, r"device_id must be a number"),
    ],
)
def test_what_is_not_allowed_is_refused(options, text):
    with pytest.raises(InvalidArgument, match=text):
        _session(options)


def test_a_number_and_a_name_that_contradict(index):
    from ort_sdk_opencl.devices import find_devices

    other = next((each.platform for number, each in enumerate(find_devices()) if number != index), "another")
    with pytest.raises(InvalidArgument, match=f"no device with device_id='{index}', platform="):
        _provider({"device_id": str(index), "platform": other})


def test_subgroups_only_where_there_are_some(platform, index):
    if platform == "intel":
        launcher = _provider({"device_id": str(index), "dialect": "opencl+subgroups"}).context.launcher
        assert launcher.dialect.name == "opencl+subgroups"
        assert _provider({"device_id": str(index)}).context.launcher.dialect.name == "opencl"
        return
    with pytest.raises(InvalidArgument, match=r"the device has no sub-groups; allowed here: opencl"):
        _provider({"device_id": str(index), "dialect": "opencl+subgroups"})


class _Device:
    """As pyopencl describes devices."""

    driver_version, extensions, max_num_sub_groups = "1", "", 0

    def __init__(self, name, kind):
        self.name, self.type = name, kind


class _Platform:
    version = "OpenCL 3.0"

    def __init__(self, name, devices):
        self.name, self._devices = name, devices

    def get_devices(self):
        if not self._devices:
            raise cl.LogicError(cl._cl._ErrorRecord(msg="no devices", code=-1, routine="clGetDeviceIDs"))
        return self._devices


@pytest.fixture
def platforms(monkeypatch):
    from ort_sdk_opencl import devices

    def found(listed):
        monkeypatch.setattr(cl, "get_platforms", lambda: listed)
        devices.find_devices.cache_clear()
        return devices.find_devices()

    yield found
    monkeypatch.undo()
    devices.find_devices.cache_clear()


def test_processors_come_last_and_platforms_without_devices_are_passed_over(platforms):
    kinds = cl.device_type
    listed = [
        _Platform("first", [_Device("a processor", kinds.CPU), _Device("a card", kinds.GPU)]),
        _Platform("empty", []),
        _Platform("second", [_Device("another processor", kinds.CPU), _Device("another card", kinds.ACCELERATOR)]),
    ]
    names = [each.name for each in platforms(listed)]
    assert names == ["a card", "another card", "a processor", "another processor"]


def test_without_a_device_the_reason_is_given(platforms):
    with pytest.raises(Fail, match=r"devices of 1 OpenCL platforms: there is none \(empty: "):
        platforms([_Platform("empty", [])])


def test_without_a_driver_a_remedy_is_given(platforms, monkeypatch):
    from ort_sdk_opencl import devices

    def no_platforms():
        raise cl.LogicError(cl._cl._ErrorRecord(msg="PLATFORM_NOT_FOUND_KHR", code=-1001, routine="clGetPlatformIDs"))

    monkeypatch.setattr(cl, "get_platforms", no_platforms)
    devices.find_devices.cache_clear()
    with pytest.raises(Fail, match=r"PLATFORM_NOT_FOUND_KHR.*install a driver .*pocl-opencl-icd"):
        devices.find_devices()


def test_reports_say_what_was_found(index):
    from ort_sdk_opencl.devices import find_devices

    found = find_devices()[index]
    lines = "\n".join(_provider({"device_id": str(index)}).describe_environment())
    for text in (
        found.name,
        found.platform,
        "driver",
        "dialect",
        "self-test passed",
        "compiled kernels are kept in",
        "bytes in use",
    ):
        assert text in lines
