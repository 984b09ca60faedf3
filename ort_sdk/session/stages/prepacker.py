"""The session's ``Prepacker``, as its options say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ort_sdk.config_keys import DISABLE_PREPACKING, PREPACK_CACHE_DIR
from ort_sdk.memory import PrepackedWeightsContainer, Prepacker, PrepackSink

__all__ = ["make_prepacker"]


def make_prepacker(
    config: Mapping[str, str], container: PrepackedWeightsContainer | None, sink: PrepackSink | None
) -> Prepacker | None:
    """The packer of one session; None if nothing is to be packed.

    Raises:
        InvalidArgument: the cache folder is something else than a folder.
    """
    if config.get(DISABLE_PREPACKING) == "1":
        return None
    folder = config.get(PREPACK_CACHE_DIR)
    if not folder:
        return Prepacker(container, sink=sink)
    from ort_sdk.memory.prepack_cache import PrepackCache

    return Prepacker(container, PrepackCache.opened(Path(folder)), sink)
