"""Opens driver and compiler once per process, and says what is missing where that fails."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ort_sdk.api import NoDeviceError, ProviderUnavailableError
from ort_sdk.api.data_classes import dataclass

from .compiler import CudaCompiler
from .cuda_driver import CudaDriver
from .cuda_error import CudaError

if TYPE_CHECKING:
    from .bindings import BindingsDriver

__all__ = ["Cuda", "check_not_forked", "cuda", "use_cuda"]

LEAST_DRIVER = "580"
"""Version of NVIDIA's driver that runs what CUDA 13's compiler makes."""
_NO_DEVICE = 100
_REMEDIES = {
    34: "a stub of libcuda was loaded: remove the toolkit's folder 'stubs' from LD_LIBRARY_PATH",
    803: "the driver's library and its kernel module are of different versions: restart the machine",
    804: "CUDA's compatibility package does not work on this device: remove it, and update the driver",
}
"""Code → what to do."""
_DEVICE_FILES = ("nvidiactl", "nvidia[0-9]*", "dxg")
"""Below /dev: they show that the hardware is there."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuda:
    """Driver and compiler."""

    driver: CudaDriver
    compiler: CudaCompiler


class _Process:
    opened: Cuda | None = None
    is_forked = False
    """Whether this is a child of a process that had opened CUDA, which CUDA does not survive."""


_process = _Process()
_lock = threading.Lock()


def cuda() -> Cuda:
    """Driver and compiler of this process.

    Raises:
        ProviderUnavailableError: something is missing, or too old; says what to do.
    """
    check_not_forked()
    with _lock:
        if _process.opened is None:
            _process.opened = _opened()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_note_fork)
        return _process.opened


def use_cuda(other: Cuda | None) -> None:
    """Let another driver and compiler take the installed ones' place, for sessions made from now on; None to end that.

    Args:
        other: what keeps CUDA's semantics, as a stand-in for a GPU does.
    """
    with _lock:
        _process.opened = other


def check_not_forked() -> None:
    """Raise in a child of a process that had opened CUDA.

    Raises:
        ProviderUnavailableError: it is one.
    """
    if _process.is_forked:
        raise ProviderUnavailableError(
            "CUDA was opened before this process was forked, and does not work in children: start processes with "
            "multiprocessing.get_context('spawn'), or make the first session, and list providers, in the children only"
        )


def _note_fork() -> None:
    _process.is_forked = _process.opened is not None


def _opened() -> Cuda:
    if sys.platform == "darwin":
        raise NoDeviceError("there is no CUDA for macOS: use another provider")
    try:
        from .bindings import BindingsDriver
        from .nvrtc import NvrtcCompiler
    except ImportError as error:
        raise ProviderUnavailableError(
            f"importing cuda-bindings: {error}. Repair it: python -m pip install --force-reinstall 'cuda-bindings==13.*'"
        ) from error
    compiler = _compiler(NvrtcCompiler)
    return Cuda(_driver(BindingsDriver, compiler.version), compiler)


def _compiler(make: Callable[[], CudaCompiler]) -> CudaCompiler:
    try:
        return make()
    except (RuntimeError, OSError, CudaError) as error:
        raise ProviderUnavailableError(
            f"loading CUDA's compiler NVRTC: {_first_line(error)}. Install it: python -m pip install 'nvidia-cuda-nvrtc==13.*'"
        ) from error


def _driver(make: Callable[[], BindingsDriver], compiler_version: str) -> CudaDriver:
    try:
        driver = make()
    except (RuntimeError, OSError) as error:
        raise _missing(
            f"loading NVIDIA's driver library (libcuda.so.1, nvcuda.dll): {_first_line(error)}. Install the driver, version "
            f"{LEAST_DRIVER} or newer; in a container, start it with --gpus all and NVIDIA's container toolkit"
        ) from error
    except CudaError as error:
        raise _driver_failure(error) from error
    check_version(driver, compiler_version)
    try:
        driver.initialise()
        count = driver.device_count()
    except CudaError as error:
        raise _driver_failure(error) from error
    if not count:
        raise _missing(_no_device())
    return driver


def check_version(driver: CudaDriver, compiler_version: str) -> None:
    """Raise if a driver does not run what the compiler makes: that of another, newer CUDA.

    Raises:
        ProviderUnavailableError: it does not; says both versions.
    """
    wanted = int(compiler_version.partition(".")[0])
    if driver.version[0] < wanted:
        has = ".".join(map(str, driver.version))
        raise ProviderUnavailableError(
            f"NVIDIA's driver ({driver.library}) supports CUDA {has}, the installed compiler NVRTC is of CUDA "
            f"{compiler_version}: update the driver to version {LEAST_DRIVER} or newer"
        )


def _driver_failure(error: CudaError) -> ProviderUnavailableError:
    if error.code == _NO_DEVICE:
        return _missing(_no_device())
    remedy = _REMEDIES.get(error.code, "`nvidia-smi` shows whether the driver works")
    return ProviderUnavailableError(f"starting NVIDIA's driver: {error}; {remedy}")


def _missing(reason: str) -> ProviderUnavailableError:
    """The error where there is no driver or no device: the provider is sound unless the hardware is there."""
    folder = Path("/dev")
    has_hardware = sys.platform != "win32" and any(any(folder.glob(pattern)) for pattern in _DEVICE_FILES)
    return ProviderUnavailableError(reason) if has_hardware else NoDeviceError(reason)


def _no_device() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r} hides those that it does not name)"
    return f"NVIDIA's driver finds no device{hidden}; `nvidia-smi` lists what is there"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
