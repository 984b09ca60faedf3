"""What a session's options say of packed weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ort_sdk.memory import PrepackedWeightsContainer, Prepacker, PrepackSink

from .save import DISABLE_PREPACKING_KEY

__all__ = ["make_prepacker"]

CACHE_FOLDER_KEY = "session.prepack_cache_dir"


def make_prepacker(
    config: Mapping[str, str], container: PrepackedWeightsContainer | None, sink: PrepackSink | None
) -> Prepacker | None:
    """The packer of one session; None if nothing is to be packed.

    Raises:
        InvalidArgument: something else is in the place of the cache folder.
    """
    if config.get(DISABLE_PREPACKING_KEY) == "1":
        return None
    folder = config.get(CACHE_FOLDER_KEY)
    if not folder:
        return Prepacker(container, sink=sink)
    from ort_sdk.memory.prepack_cache import PrepackCache

    return Prepacker(container, PrepackCache.opened(Path(folder)), sink)
