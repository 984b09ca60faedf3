"""Arguments of attention of few queries over a key-value cache of float16."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, reads_if_given, require_whole_vectors
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .decode import KEY_BLOCK, CachedTokens
from .decode import thread_workspace_bytes as float_workspace_bytes

__all__ = ["MODULE", "DecodeAttentionFloat16", "thread_workspace_bytes"]

MODULE = "attention.decode_f16"
_HALF = 2


def widened_bytes(head_size: int, value_size: int) -> int:
    """Bytes of a block of keys and values as float32."""
    return KEY_BLOCK * (head_size + value_size) * FLOAT


def thread_workspace_bytes(rows: int, head_size: int, value_size: int) -> int:
    """Bytes of workspace of a thread: that of a cache of float32, and at its end a block of keys and values as float32."""
    return float_workspace_bytes(rows, head_size, value_size) + widened_bytes(head_size, value_size)


class DecodeAttentionFloat16(CachedTokens, module=MODULE, tasks=("decode_attention_f16",)):
    """The same where past, keys and values are float16; there are no biases of keys and values."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._read_tokens()
        yield from self._read_queries()
        if self.appends:
            yield from self._append(_HALF)
        else:
            yield reads_if_given(self.v_bias, self._heads() * self.value_size * FLOAT)
        require_whole_vectors(self.head_size, self.value_size)
        least = thread_workspace_bytes(self.group * self.tokens, self.head_size, self.value_size)
        yield from self._attend(_HALF, least, threads)
