"""Models in ORT format: FlatBuffers whose operators' versions and type constraints need no schemas to be read.

``reader`` reads them and ``writer`` writes them; each is imported where it is needed.
"""

from __future__ import annotations

from .detection import is_ort_file_name, is_ort_format, named_format

__all__ = [
    "is_ort_file_name",
    "is_ort_format",
    "named_format",
]
