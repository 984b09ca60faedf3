"""Arguments of RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk_cpu.jit.extents.declaration import Extents, reads
from ort_sdk_cpu.jit.extents.sizes import INT64

from .operands import CACHE_POSITIONS, HeadRows, Tokens

__all__ = ["MODULE", "RotaryEmbedding"]

MODULE = "attention.rotary"


class RotaryEmbedding(Tokens, module=MODULE, tasks=("rotary_embedding",)):
    """Rotation of the rows of all heads by their tokens' positions."""

    x: HeadRows
    """float32 (batch, heads, tokens, size)."""
    out: HeadRows
    heads: int
    size: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield from self.rotary.extents(self.batch * self.tokens)
        if self.rotary.pairs and self.cache_positions.is_given:
            yield reads(self.cache_positions, self.batch * CACHE_POSITIONS * INT64)
        yield self.x.extent(self.batch, self.heads, self.tokens, self.size)
        yield self.out.extent(self.batch, self.heads, self.tokens, self.size, is_written=True)

    @classmethod
    def of(
        cls,
        x: Sequence[Any],
        out: Sequence[Any],
        rotary: Sequence[Any],
        sizes: tuple[Any, Any, Any, Any],
        cache_positions: Any = None,
    ) -> RotaryEmbedding:
        """The arguments of any launch.

        Args:
            x: words of ``x``.
            out: words of ``out``.
            rotary: words of ``rotary``.
            sizes: batch, tokens, heads and size.
            cache_positions: needed where the tables' rows are positions.
        """
        batch, tokens, heads, size = sizes
        made: RotaryEmbedding = cls.of_words((*rotary, cache_positions, batch, tokens, *x, *out, heads, size))
        return made
