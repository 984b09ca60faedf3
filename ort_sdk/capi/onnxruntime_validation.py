"""Facts about the build that clients of onnxruntime ask for."""

from __future__ import annotations

from ort_sdk.version import __version__

__all__ = ["check_distro_info", "cuda_version", "package_name", "version"]

package_name = "ort_sdk"
version = __version__
cuda_version = ""
"""Empty: providers bring their own libraries."""


def check_distro_info() -> None:
    """Nothing to check: any system that runs Python will do."""
