"""The session's ``Prepacker``, as its options say."""

from __future__ import annotations

from pathlib import Path

from ort_sdk.api import cache_subfolder
from ort_sdk.config_keys import DISABLE_PREPACKING, PREPACK_CACHE_DIR
from ort_sdk.memory import Prepacker
from ort_sdk.session.options.build_settings import BuildSettings

__all__ = ["make_prepacker"]


def make_prepacker(settings: BuildSettings) -> Prepacker | None:
    """The packer of one session; None if nothing is to be packed.

    Raises:
        InvalidArgument: the cache folder is something else than a folder.
    """
    config, container, sink = settings.config, settings.prepacked_weights, settings.prepack_sink
    if config.get(DISABLE_PREPACKING) == "1":
        return None
    if not settings.keeps_packed_weights:
        return Prepacker(sink=sink)
    configured = config.get(PREPACK_CACHE_DIR)
    folder = Path(configured) if configured else cache_subfolder("weights")
    if folder is None:
        return Prepacker(container, sink=sink)
    from ort_sdk.memory.prepack_cache import PrepackCache

    return Prepacker(container, PrepackCache.opened(folder), sink)
