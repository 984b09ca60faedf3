"""The compiler process: ``python -P -m ort_sdk_cpu.jit.compiler.worker REQUESTS REPLIES``, with the numbers of two pipes.

It compiles what it is asked for, one function after the other, links it and writes it to the cache folder. It ends when the
process that started it does, and after some time without a request, so that its memory is not held for long.
"""

from __future__ import annotations

import select
import sys
import time
import traceback

from ort_sdk_cpu.jit.cache_files import writable_path
from ort_sdk_cpu.jit.cache_folder import build_lock

from .code_files import has_sound_file, write_code
from .messages import CompileReply, CompileRequest, read_message, write_message

__all__ = ["IDLE_SECONDS", "compiled", "main"]

IDLE_SECONDS = 20.0
"""Time without a request after which the process ends: a model's first runs ask every few seconds."""


def main() -> None:
    """Answer requests until there are no more."""
    requests, replies = map(int, sys.argv[1:3])
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            request = read_message(requests)
        except EOFError:
            return
        write_message(replies, _reply(request))


def _reply(request: CompileRequest) -> CompileReply:
    try:
        return compiled(request)
    except Exception:  # noqa: BLE001 - it is raised again where the code was asked for
        return CompileReply(error=traceback.format_exc())


def compiled(request: CompileRequest) -> CompileReply:
    """Compile a function, unless another process did since it was asked for: only one at a time compiles it."""
    with build_lock(writable_path(request.name)):
        if has_sound_file(request.name) and not request.wants_content:
            return CompileReply()
        start = time.perf_counter()
        file, content, is_written = write_code(request.name, *request.build())
        is_needed = request.wants_content or not is_written
        return CompileReply(file, content if is_needed else b"", time.perf_counter() - start)


if __name__ == "__main__":
    main()
