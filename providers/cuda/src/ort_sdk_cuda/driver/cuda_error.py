"""What CUDA's functions answer if they fail."""

from __future__ import annotations

__all__ = ["CudaError"]


class CudaError(Exception):
    """A function of CUDA failed.

    Args:
        function: its name.
        code: ``CUresult``.
        name: of the code, ``CUDA_ERROR_OUT_OF_MEMORY``.
        description: CUDA's own.
    """

    def __init__(self, function: str, code: int, name: str, description: str = "") -> None:
        super().__init__(f"{function} answered {name} ({code})" + (f": {description}" if description else ""))
        self.function, self.code, self.name = function, code, name
