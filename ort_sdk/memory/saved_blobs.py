"""Packed weights that were saved with a model (``prepacked_N`` entries), taken back if they are what they should be."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from ort_sdk.api import HostArray, PrePackedWeights
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.checksum import CHECKSUM_NAME, checksum
from ort_sdk.formats.files.mapped_tensor import ExternalTensor
from ort_sdk.formats.onnx.writer.weights_file import PACKED_ALIGNMENT_BYTES, buffers_digest

__all__ = ["saved_weights"]

logger = logging.getLogger("ort_sdk.memory")

_KEY = re.compile(
    rf"[^|;+]*\+(?P<identity>[0-9a-f]{{32}})\+{CHECKSUM_NAME}:(?P<weight>[0-9a-f]{{8}})\+(?P<buffers>[0-9a-f]{{8}})"
)
_BLOB = re.compile(rf"(?P<offset>[0-9]{{1,19}});(?P<length>[0-9]{{1,19}});{CHECKSUM_NAME}:(?P<checksum>[0-9a-f]{{8}})")


def saved_weights(tensor: ExternalTensor, identity: str) -> PrePackedWeights | None:
    """Packed form of a weight that its file holds.

    Weight and blobs are read once for their checksums, unless that was done before in this process.

    Args:
        tensor: the weight.
        identity: what its packed form must be (``PrepackKey.identity``).

    Returns:
        Views of the file's map; None if there is none of that identity, or it is out of date or damaged, which is logged.
    """
    for value in tensor.prepacked:
        text, *blobs = value.split("|")
        key = _KEY.fullmatch(text)
        if key is None or key["identity"] != identity:
            continue
        if _weight_checksum(tensor) != int(key["weight"], 16):
            logger.warning("packed form of '%s' was made of other contents; it is packed anew", tensor.info.name)
            return None
        buffers = _buffers(tensor.source, blobs, int(key["buffers"], 16))
        if buffers is not None:
            return PrePackedWeights(buffers)
        logger.warning("packed form of '%s' in '%s' is damaged; it is packed anew", tensor.info.name, tensor.info.location)
        return None
    return None


def _weight_checksum(tensor: ExternalTensor) -> int:
    if tensor.is_plain:
        return tensor.source.checksum(tensor.offset, tensor.nbytes)
    return checksum(tensor.packed())


def _buffers(source: ByteSource, blobs: Sequence[str], digest: int) -> tuple[HostArray, ...] | None:
    """The buffers as views of the file, verified; None if anything is not as it was written."""
    ranges = []
    for text in blobs:
        fields = _BLOB.fullmatch(text)
        if fields is None:
            return None
        ranges.append((int(fields["offset"]), int(fields["length"]), int(fields["checksum"], 16)))
    if buffers_digest([(length, value) for _, length, value in ranges]) != digest:
        return None
    if any(offset + length > len(source) or source.checksum(offset, length) != value for offset, length, value in ranges):
        return None
    return tuple(source.aligned(offset, length, PACKED_ALIGNMENT_BYTES) for offset, length, _ in ranges)
