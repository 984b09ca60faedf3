"""The provider's options, by ONNX Runtime's names: which device, how much memory, graphs, and whose stream."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.api import InvalidArgument
from ort_sdk.api.data_classes import dataclass

__all__ = ["OPTIONS", "ProviderOptions", "parsed_options"]

OPTIONS = {
    "device_id": "number of a device, as `ort-sdk providers --check` lists them",
    "gpu_mem_limit": "most bytes to hold on the device; 0 for no limit",
    "enable_cuda_graph": "1 to replay a program's kernels and copies as a CUDA graph, which is the default; 0 to launch each",
    "user_compute_stream": "address of a CUDA stream, a decimal number, to queue all work on; 0 for one of the provider's own",
}
"""Name → what it may be."""
_TRUTH = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """What a session asks for."""

    index: int
    """Of the device."""
    limit_bytes: int = 0
    """Of memory on the device; 0 for no limit."""
    uses_graphs: bool = True
    """Whether programs are captured."""
    stream: int = 0
    """Address of the user's stream; 0 for the provider's own."""


def parsed_options(options: Mapping[str, str], index: int) -> ProviderOptions:
    """The options as values.

    Args:
        options: as the user gave them.
        index: of the device that the host chose, by ``device_id`` if that is given.

    Raises:
        InvalidArgument: an option or its value is not known; says what is allowed.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        allowed = "; ".join(f"{name} ({text})" for name, text in OPTIONS.items())
        raise InvalidArgument(f"CUDAExecutionProvider has no option {', '.join(map(repr, unknown))}; it has: {allowed}")
    return ProviderOptions(
        index, _number(options, "gpu_mem_limit"), _truth(options, "enable_cuda_graph"), _number(options, "user_compute_stream")
    )


def _number(options: Mapping[str, str], name: str) -> int:
    text = str(options.get(name, "0"))
    if not text.isdecimal():
        raise InvalidArgument(f"CUDAExecutionProvider: {name} must be {OPTIONS[name]}, got {text!r}")
    return int(text)


def _truth(options: Mapping[str, str], name: str) -> bool:
    text = str(options.get(name, "1"))
    if text.lower() not in _TRUTH:
        raise InvalidArgument(f"CUDAExecutionProvider: {name} must be {OPTIONS[name]}, got {text!r}")
    return _TRUTH[text.lower()]
