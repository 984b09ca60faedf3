"""The functions of ``simd.math`` as text of LLVM's language, for chains to take in: from an archive, or made by numba once."""

from __future__ import annotations

import functools

from ort_sdk_cpu.jit.archive.lookup import archived_content
from ort_sdk_cpu.jit.archive.sources import sources_digest
from ort_sdk_cpu.jit.cache_files import read_cached, writable_path, write_cached
from ort_sdk_cpu.jit.cache_folder import build_lock
from ort_sdk_cpu.jit.task_code import compiler_environment
from ort_sdk_cpu.platform.digests import short_digest

from .rules_float import FLOAT

__all__ = ["functions_of", "make_texts", "texts_name", "vector_functions"]

NAMES = ("erf", "exp", "expm1_nonpositive", "fast_gelu", "gelu", "sigmoid", "tanh")

_WRAPPER = """
define internal {vector} @vector_{name}({vector} %x) alwaysinline {{
  %place = alloca {vector}, align 64
  %status = call i32 @{symbol}(ptr %place, ptr null, {vector} %x)
  %result = load {vector}, ptr %place, align 64
  ret {vector} %result
}}
"""
"""Numba's functions write their result through their first argument."""


@functools.cache
def vector_functions() -> dict[str, str]:
    """Name → a module that defines ``vector_<name>``."""
    name = texts_name()
    texts = archived_content(name) or read_cached(name)
    if texts is None:
        with build_lock(writable_path(name)):
            texts = read_cached(name) or _built(name)
    return functions_of(texts)


def functions_of(texts: bytes) -> dict[str, str]:
    """Name → a module that defines ``vector_<name>``, of the content of the file of all texts."""
    return dict(zip(NAMES, texts.decode().split("\0"), strict=True))


def texts_name() -> str:
    """Name of the file of all texts."""
    return f"functions-{short_digest(sources_digest('simd.math'), compiler_environment(), _WRAPPER, *NAMES)}.ll"


def make_texts() -> bytes:
    """Content of the file of all texts, made by numba."""
    return "\0".join(_text(name) for name in NAMES).encode()


def _built(file: str) -> bytes:
    texts = make_texts()
    write_cached(file, texts)
    return texts


def _text(name: str) -> str:
    from ort_sdk_cpu.jit.numba_frontend import translate
    from ort_sdk_cpu.simd import math
    from ort_sdk_cpu.simd.vector_types import f32x16

    symbol, text = translate(getattr(math, name).py_func, f32x16(f32x16))
    return text + _WRAPPER.format(vector=FLOAT, name=name, symbol=symbol)
