"""Providers known by name: what to say about one that is not installed, and which files show that its hardware is there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ort_sdk.api.data_classes import dataclass

__all__ = ["OFFERED_PROVIDERS", "KnownProvider", "hardware_of", "install_hint"]


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """A provider known by name."""

    entry_point_name: str
    provider_name: str
    device_files: tuple[str, ...] = ()
    """Glob patterns below ``/dev`` whose presence shows that the hardware is there."""
    is_offered: bool = True
    """Whether this project has a distribution of it. Nobody is advised to install what others may have published by that name."""

    @property
    def install_command(self) -> str:
        """Shell command that installs it."""
        return f"pip install ort-sdk-{self.entry_point_name}"


KNOWN_PROVIDERS = (
    KnownProvider("cpu", "CPUExecutionProvider"),
    KnownProvider("cuda", "CUDAExecutionProvider", ("nvidiactl", "nvidia[0-9]*", "dxg")),
    KnownProvider("opencl", "OpenCLExecutionProvider", ("dri/renderD*", "kfd", "nvidiactl")),
)

OFFERED_PROVIDERS = tuple(known for known in KNOWN_PROVIDERS if known.is_offered)
"""Those the user may be advised to install."""


def install_hint(name: str) -> str:
    """What to do to get the provider of that (provider or entry-point) name."""
    for known in OFFERED_PROVIDERS:
        if name in (known.entry_point_name, known.provider_name):
            return f"Install it: {known.install_command}"
    commands = ", ".join(f"{known.provider_name}: {known.install_command}" for known in OFFERED_PROVIDERS)
    return f"Check the spelling, or install the distribution that offers it. Providers of this project: {commands}"


def hardware_of(names: Iterable[str], device_folder: Path = Path("/dev")) -> str:
    """A device file that shows the hardware of one of the named providers; empty if none is visible."""
    wanted = set(names)
    for known in KNOWN_PROVIDERS:
        if wanted & {known.entry_point_name, known.provider_name}:
            for pattern in known.device_files:
                for path in sorted(device_folder.glob(pattern)):
                    return str(path)
    return ""
