"""The backend of ONNX's backend API. Duck-typed: it works wherever ``onnx.backend.base.Backend`` is expected."""

from __future__ import annotations

import os
from typing import Any

from ort_sdk.api import Fail
from ort_sdk.capi.module_functions import get_available_providers, get_device
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.options.session_options import SessionOptions

from .backend_rep import OrtSdkBackendRep, set_allowed

__all__ = ["OrtSdkBackend", "is_compatible", "prepare", "run", "run_model", "supports_device"]

EXCLUDED_VARIABLE = "ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS"
CPU_PROVIDER = "CPUExecutionProvider"
SESSION_OPTIONS = (
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "execution_mode",
    "execution_order",
    "graph_optimization_level",
    "inter_op_num_threads",
    "intra_op_num_threads",
    "log_severity_level",
    "log_verbosity_level",
    "logid",
    "use_deterministic_compute",
    "use_per_session_threads",
)


class OrtSdkBackend:
    """Prepares and runs models."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether models can run on a device (``CPU``, ``GPU``, ``CUDA``; None for any)."""
        del model, kwargs
        return device is None or cls.supports_device(device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a usable provider has a device of that kind; ``CPU:0`` names the first of them."""
        kind = device.partition(":")[0].upper()
        return kind == "CPU" or (kind in ("GPU", "CUDA") and get_device() == "GPU")

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OrtSdkBackendRep:
        """Make a session of a model.

        Args:
            model: path, bytes, ``onnx.ModelProto``, session, or a prepared model, which is handed back.
            device: ``CPU`` runs on the host; None and ``GPU`` on all there is.
            **kwargs: properties of ``SessionOptions`` that are allowed here; unknown names are ignored.

        Raises:
            Fail: no such device here.
            InvalidArgument: a property that is not allowed.
            OrtSdkError: the model is refused.
        """
        if isinstance(model, OrtSdkBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OrtSdkBackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise Fail(f"Incompatible device expected '{device}', got '{get_device()}'")
        source = model if isinstance(model, (str, bytes, os.PathLike)) else _serialized(model)
        options = set_allowed(SessionOptions(), kwargs, SESSION_OPTIONS)
        return OrtSdkBackendRep(InferenceSession(source, options, _providers(device)))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
        """Prepare and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str | None = None, outputs_info: Any = None, **kwargs: Any) -> list[Any]:
        """Not offered: a node alone has no opset version.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("run_node: put the node into a model, which says its opset version, and use run_model")


def _providers(device: str | None) -> list[str]:
    excluded = os.environ.get(EXCLUDED_VARIABLE, "").split(",")
    names = [CPU_PROVIDER] if device is not None and device.upper().startswith("CPU") else get_available_providers()
    return [name for name in names if name not in excluded]


def _serialized(model: Any) -> bytes:
    if not hasattr(model, "SerializeToString"):
        raise TypeError(f"cannot prepare a {type(model).__name__}; give a path, bytes, an onnx.ModelProto or a session")
    content: bytes = model.SerializeToString()
    return content


is_compatible = OrtSdkBackend.is_compatible
prepare = OrtSdkBackend.prepare
run = OrtSdkBackend.run_model
run_model = OrtSdkBackend.run_model
supports_device = OrtSdkBackend.supports_device
