"""Models in ORT format: FlatBuffers whose operators' versions and type constraints need no schemas to be read.

``writer`` writes them; it is imported where a model is saved.
"""

from __future__ import annotations

from .detection import is_ort_file_name, is_ort_format, named_format
from .reader import read_ort_model, read_ort_type_strings

__all__ = [
    "is_ort_file_name",
    "is_ort_format",
    "named_format",
    "read_ort_model",
    "read_ort_type_strings",
]
