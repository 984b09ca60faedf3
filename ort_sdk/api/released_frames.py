"""What an error that leaves the public interface keeps alive: no feed, no value and nothing of a session.

A traceback holds the frames it went through, and a frame its local variables until it is cleared. So whoever keeps a caught
error would keep feeds, intermediate values and kernels: after an error for lack of memory, a second try would lack it, too.
"""

from __future__ import annotations

import sys
from traceback import clear_frames
from types import FrameType

__all__ = ["release_frames"]


def release_frames(error: BaseException) -> None:
    """Let go of the local variables of all calls below the caller's, in which an error and those it came from were raised.

    The caller handles the error; its own variables it has to delete itself. Errors that its callers handle meanwhile, which are
    the context of this one, are theirs.
    """
    caller = sys._getframe(1)
    waiting: list[BaseException | None] = [error]
    known: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in known:
            continue
        known.add(id(each))
        traceback = each.__traceback__
        if traceback is not None and _is_within(traceback.tb_frame, caller):
            clear_frames(traceback)
            waiting += (each.__cause__, each.__context__)


def _is_within(frame: FrameType | None, caller: FrameType) -> bool:
    while frame is not None and frame is not caller:
        frame = frame.f_back
    return frame is caller
