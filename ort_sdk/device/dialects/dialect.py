"""A dialect: the text in front of every kernel that gives the device language's words their meaning."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources

from ort_sdk.api.data_classes import dataclass

__all__ = ["CUDA", "OPENCL", "OPENCL_SUBGROUPS", "Dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A C-like kernel language.

    Kernels are written in C with the words that ``dialects/opencl.dk`` defines for OpenCL C: address spaces, lanes and groups,
    barriers, storage types and their conversions. Another language defines the same words.
    """

    name: str
    prelude: str
    """Definitions of the words, and of ``GROUP_REDUCTION``."""
    has_vector_math: bool = False
    """Whether arithmetic and functions take vectors of ``VW`` elements, and the prelude defines the words for them."""

    def source(self, text: str, defines: Mapping[str, str | int]) -> str:
        """The whole text of a kernel, to be given to the language's compiler.

        Args:
            text: kernel in the device language.
            defines: macros that it, or the prelude, looks at.
        """
        head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
        narrow = _text("narrow") if _NARROW.search(head + text) else ""
        return f"{head}{self.prelude}{_text('common')}{narrow}{_text('reductions')}{text}"


_NARROW = re.compile(r"\b(?:get|put)_[a-z0-9]+_t\b|\b(?:[iu][24]|e\dm\d(?:fn)?(?:uz)?)_t\b|\bround_e8m0\b")
"""What only the narrow types' text defines."""


@functools.cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.dk").read_text(encoding="utf-8")


OPENCL = Dialect("opencl", _text("opencl") + _text("opencl_reductions"), has_vector_math=True)
OPENCL_SUBGROUPS = Dialect("opencl+subgroups", _text("opencl") + _text("opencl_subgroup_reductions"), has_vector_math=True)
CUDA = Dialect("cuda", _text("cuda") + _text("cuda_reductions"))
