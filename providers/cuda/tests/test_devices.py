"""Devices: which architecture kernels are compiled for, and which devices cannot be used."""

from types import SimpleNamespace

import pytest
from ort_sdk_cuda.device import listed_devices
from ort_sdk_cuda.devices import FoundDevice, find_devices

from ort_sdk.api import ProviderUnavailableError
from ort_sdk.device.drivers import UnusableDevice


def _found(capability, architectures=(75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121), *, has_pools=True):
    cuda = SimpleNamespace(compiler=SimpleNamespace(architectures=architectures, version="13.5"))
    return FoundDevice(cuda, 0, "GPU", capability, 132, 49152, 1 << 36, has_pools)


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ((7, 5), "sm_75"),
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90"),
        ((10, 1), "sm_100"),
        ((12, 9), "sm_121"),
    ],
)
def test_the_newest_architecture_that_the_device_runs(capability, architecture):
    assert _found(capability).architecture == architecture
    assert _found(capability).reason is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (_found((7, 0)), r"compute capability 7.0, NVRTC 13.5 knows 75 to 121: the device is too old"),
        (_found((14, 0)), r"compute capability 14.0, .*: python -m pip install --upgrade nvidia-cuda-nvrtc"),
        (_found((9, 0), has_pools=False), "no memory pools"),
    ],
)
def test_devices_that_cannot_be_used(found, reason, monkeypatch):
    monkeypatch.setattr("ort_sdk_cuda.device.find_devices", lambda: (found,))
    with pytest.raises(UnusableDevice, match=reason):
        listed_devices()


def test_several_devices(on_stand_in):
    on_stand_in(devices=2)
    assert [found.label for found in find_devices()] == ["'Stand-in 0' (cuda:0)", "'Stand-in 1' (cuda:1)"]
    assert listed_devices() == [0, 1]


def test_a_driver_that_fails_to_describe_a_device(on_stand_in):
    from ort_sdk_cuda.driver import CudaError

    driver = on_stand_in().driver

    def fail(_ordinal, _name):
        raise CudaError("cuDeviceGetAttribute", 101, "CUDA_ERROR_INVALID_DEVICE")

    driver.attribute = fail
    with pytest.raises(ProviderUnavailableError, match=r"asking CUDA for its devices: .*INVALID_DEVICE.*nvidia-smi"):
        find_devices()
