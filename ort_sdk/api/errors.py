"""The errors of ort_sdk.

::

    OrtSdkError
    ├── Fail (RuntimeError)                    1
    │   ├── InvalidOrtModel                    a damaged file in ORT format
    │   └── ProviderError
    │       ├── ProviderNotFoundError          no such provider is installed
    │       ├── ProviderUnavailableError       installed, and cannot start here
    │       │   └── NoDeviceError              nor could it: there is no device of its kind
    │       └── ProviderRefusedError           installed, and breaks the contract
    ├── InvalidArgument (ValueError)           2
    │   └── KernelRegistrationError            a kernel definition that can never match, or matches twice
    ├── NoSuchFile (FileNotFoundError)         3
    ├── NoModel (ValueError)                   4
    ├── EngineError (RuntimeError)             5
    │   └── ExtentError                        compiled code or a view was about to reach outside of an array
    ├── RuntimeException (RuntimeError)        6
    │   └── OutOfMemory (MemoryError)          memory of the host or of a device is used up
    ├── InvalidProtobuf (ValueError)           7
    ├── ModelLoaded (RuntimeError)             8
    ├── NotImplemented (NotImplementedError)   9
    │   └── NoKernelError                      no provider has a kernel for a node
    ├── InvalidGraph (ValueError)              10
    ├── EPFail (RuntimeError)                  11
    ├── ModelLoadCanceled (RuntimeError)       12
    ├── ModelRequiresCompilation (RuntimeError) 13
    ├── NotFound (LookupError)                 14
    └── DeviceReset (RuntimeError)             15

Names, numbers and the shape of the text are ONNX Runtime's; each class is also the matching builtin, so that callers
need not import ours. What others raise (a plugin, a kernel, the system) becomes one of these classes and keeps its own builtin:
``ort_sdk.api.foreign_errors``.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExtentError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidOrtModel",
    "InvalidProtobuf",
    "KernelRegistrationError",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoDeviceError",
    "NoKernelError",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OrtSdkError",
    "OutOfMemory",
    "ProviderError",
    "ProviderNotFoundError",
    "ProviderRefusedError",
    "ProviderUnavailableError",
    "RuntimeException",
]


class OrtSdkError(Exception):
    """Base of every error this package raises on purpose."""

    code: ClassVar[int] = 1
    code_name: ClassVar[str] = "FAIL"
    is_located: bool = False
    """Whether the text names the node that failed already."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"[ONNXRuntimeError] : {self.code} : {self.code_name} : {self.text}"

    def __reduce__(self) -> tuple[type[OrtSdkError], tuple[str]]:
        return (type(self), (self.text,))


class Fail(OrtSdkError, RuntimeError):
    """Something failed that no other class describes."""


class InvalidOrtModel(Fail):
    """A file in ORT format is damaged, incomplete, or of a version that cannot be read."""


class ProviderError(Fail):
    """A provider cannot be used."""


class ProviderNotFoundError(ProviderError):
    """No installed distribution offers the named provider."""


class ProviderUnavailableError(ProviderError):
    """The provider is installed and cannot start here: its library or its device is missing."""


class NoDeviceError(ProviderUnavailableError):
    """The provider is sound, and this machine has no device of its kind; raised in ``get_supported_devices`` to say why."""


class ProviderRefusedError(ProviderError):
    """The provider breaks the plugin contract: newer API, wrong hook signature, or a name claimed twice."""


class InvalidArgument(OrtSdkError, ValueError):
    """A value given by the caller, or found in the model, is not allowed."""

    code = 2
    code_name = "INVALID_ARGUMENT"


class KernelRegistrationError(InvalidArgument):
    """A kernel definition that can never match a node, or conflicts with another one."""


class NoSuchFile(OrtSdkError, FileNotFoundError):
    """A named file does not exist."""

    code = 3
    code_name = "NO_SUCHFILE"


class NoModel(OrtSdkError, ValueError):
    """There is no model to work on."""

    code = 4
    code_name = "NO_MODEL"


class EngineError(OrtSdkError, RuntimeError):
    """The runtime itself is in a state it cannot go on from."""

    code = 5
    code_name = "ENGINE_ERROR"


class ExtentError(EngineError):
    """What compiled code or a strided view would touch is not all inside the array it was given; nothing was touched."""


class RuntimeException(OrtSdkError, RuntimeError):
    """A kernel or a provider raised while running."""

    code = 6
    code_name = "RUNTIME_EXCEPTION"


class OutOfMemory(RuntimeException, MemoryError):
    """Memory of the host or of a device is used up, wherever it was asked for: in a kernel, a copy, or a session being made."""


class InvalidProtobuf(OrtSdkError, ValueError):
    """The bytes are no ONNX model."""

    code = 7
    code_name = "INVALID_PROTOBUF"


class ModelLoaded(OrtSdkError, RuntimeError):
    """The session has a model already."""

    code = 8
    code_name = "MODEL_LOADED"


class NotImplemented(OrtSdkError, NotImplementedError):
    """No implementation exists for what was asked."""

    code = 9
    code_name = "NOT_IMPLEMENTED"


class NoKernelError(NotImplemented):
    """No provider of the session has a kernel for a node; the text lists every candidate and why it was rejected."""


class InvalidGraph(OrtSdkError, ValueError):
    """The model's graph breaks a rule of ONNX."""

    code = 10
    code_name = "INVALID_GRAPH"


class EPFail(OrtSdkError, RuntimeError):
    """An execution provider failed outside a kernel."""

    code = 11
    code_name = "EP_FAIL"


class ModelLoadCanceled(OrtSdkError, RuntimeError):
    """Loading was cancelled by the caller."""

    code = 12
    code_name = "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtSdkError, RuntimeError):
    """A provider wants to compile nodes and the session forbids it."""

    code = 13
    code_name = "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtSdkError, LookupError):
    """Something looked up by name does not exist."""

    code = 14
    code_name = "NOT_FOUND"


class DeviceReset(OrtSdkError, RuntimeError):
    """The device was reset while in use."""

    code = 15
    code_name = "DEVICE_RESET"
