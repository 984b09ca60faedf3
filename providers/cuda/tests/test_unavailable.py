"""Without a GPU, a driver or a compiler: the provider says what is missing, and what to do."""

import os
import subprocess
import sys

import pytest
from ort_sdk_cuda.driver import CudaError, opening
from ort_sdk_cuda.plugin import CudaProvider

from ort_sdk.api import NoDeviceError, ProviderUnavailableError
from ort_sdk.plugins import PluginManager, ProviderState


class Compiler:
    version = "13.0"


class Driver:
    """A driver that fails where it is told to.

    Args:
        fails: what initialising raises.
        count: of devices.
        version: of CUDA.
    """

    library = "/usr/lib/libcuda.so.1"

    def __init__(self, fails=None, count=1, version=(13, 0)):
        self._fails, self._count, self.version = fails, count, version

    def initialise(self):
        if self._fails is not None:
            raise self._fails

    def device_count(self):
        return self._count


def _raises(error):
    def make():
        raise error

    return make


def _reason(make, kind=ProviderUnavailableError):
    with pytest.raises(kind) as raised:
        opening._driver(make, "13.5")
    return raised.value.text


@pytest.fixture(autouse=True)
def dev_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(opening, "Path", lambda _path: tmp_path)
    return tmp_path


def test_no_driver_library():
    reason = _reason(_raises(RuntimeError("Failed to dlopen libcuda.so.1\nmore")), NoDeviceError)
    assert "libcuda.so.1" in reason
    assert "more" not in reason
    assert "Install the driver, version 580 or newer" in reason
    assert "--gpus all" in reason


def test_hardware_without_a_driver_is_no_sound_provider(dev_folder):
    (dev_folder / "nvidia0").touch()
    with pytest.raises(ProviderUnavailableError) as raised:
        opening._driver(_raises(RuntimeError("Failed to dlopen libcuda.so.1")), "13.5")
    assert not isinstance(raised.value, NoDeviceError)


def test_a_driver_that_is_too_old():
    reason = _reason(lambda: Driver(version=(12, 4)))
    assert "supports CUDA 12.4" in reason
    assert "NVRTC is of CUDA 13.5" in reason
    assert "update the driver to version 580 or newer" in reason


@pytest.mark.parametrize("driver", [Driver(count=0), Driver(CudaError("cuInit", 100, "CUDA_ERROR_NO_DEVICE"))])
def test_no_device(driver, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "finds no device; `nvidia-smi` lists" in _reason(lambda: driver, NoDeviceError)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "CUDA_VISIBLE_DEVICES='-1' hides" in _reason(lambda: driver, NoDeviceError)


@pytest.mark.parametrize(
    ("code", "remedy"), [(34, "stubs"), (803, "restart the machine"), (804, "update the driver"), (999, "nvidia-smi")]
)
def test_a_driver_that_does_not_start(code, remedy):
    reason = _reason(lambda: Driver(CudaError("cuInit", code, "CUDA_ERROR_X")))
    assert f"cuInit answered CUDA_ERROR_X ({code})" in reason
    assert remedy in reason


def test_no_compiler():
    with pytest.raises(ProviderUnavailableError, match="pip install 'nvidia-cuda-nvrtc==13"):
        opening._compiler(_raises(RuntimeError("no libnvrtc")))


def test_an_unavailable_provider_keeps_nobody_away(monkeypatch):
    def fail():
        raise NoDeviceError("there is none here; do this")

    monkeypatch.setattr("ort_sdk_cuda.devices.cuda", fail)
    manager = PluginManager(discovery=False)
    manager.register(CudaProvider)
    assert manager.available_providers() == ()
    (record,) = manager.provider_records()
    assert record.state is ProviderState.UNAVAILABLE
    assert record.reason == "no device: there is none here; do this"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_child_of_a_process_that_opened_cuda(monkeypatch):
    monkeypatch.setattr(opening._process, "is_forked", True)
    with pytest.raises(ProviderUnavailableError, match=r"before this process was forked.*get_context\('spawn'\)"):
        opening.cuda()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_is_noted():
    code = (
        "import os\n"
        "from ort_sdk_cuda.driver import opening\n"
        "opening._opened = lambda: 'opened'\n"
        "opening.cuda()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        opening.cuda()\n"
        "    except Exception as error:\n"
        "        os._exit(7 if 'forked' in str(error) else 8)\n"
        "    os._exit(9)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert opening.cuda() == 'opened'\n"
    )
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", code], check=True)


def test_importing_the_plugin_imports_nothing_heavy():
    code = "import sys, ort_sdk_cuda.plugin; print([name for name in ('cuda', 'pyopencl', 'numba') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
