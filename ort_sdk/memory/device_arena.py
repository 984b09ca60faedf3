"""Arenas of devices: one block that a session's programs share, one at a time, and the views of it that are their buffers."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Block, EPFail, MemoryAccount, MemoryUse, SupportsBlocks, TensorElementType
from ort_sdk.api.foreign_errors import raise_foreign

__all__ = ["ArenaBlock", "DeviceArena"]

GROWTH_PERCENT = 150
"""Size of a block that replaces a smaller one, at least, if there is room: programs of growing shapes lose theirs rarely then."""


class ArenaBlock:
    """A block of an arena, kept by the arena and by the programs bound to it; with the last of them it goes back.

    Args:
        block: the provider's.
        nbytes: of it.
        account: where its bytes are counted already.
    """

    __slots__ = ("_account", "block", "is_replaced", "nbytes")

    def __init__(self, block: Block, nbytes: int, account: MemoryAccount) -> None:
        self.block = block
        self.nbytes = nbytes
        self.is_replaced = False
        """Whether the arena has a larger one by now: what is bound to this one should go."""
        self._account = account

    def __del__(self) -> None:
        """Count its bytes no more."""
        self._account.give_back(MemoryUse.ARENA, self.nbytes)


class DeviceArena:
    """Memory of a device that programs share, one at a time. Grows to the largest that asked.

    Args:
        allocator: of the device.
        account: counts the arena's bytes.
        owner: name of the provider, for errors.

    Raises:
        EPFail: the allocator's blocks have no alignment.
    """

    def __init__(self, allocator: SupportsBlocks, account: MemoryAccount, owner: str) -> None:
        self._allocator = allocator
        self._account = account
        self._owner = owner
        self._block: ArenaBlock | None = None
        self.alignment_bytes: Any = allocator.block_alignment_bytes
        if type(self.alignment_bytes) is not int or self.alignment_bytes < 1:
            raise EPFail(f"{owner}: block_alignment_bytes of its allocator must be an int above 0, is {self.alignment_bytes!r}")

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return 0 if self._block is None else self._block.nbytes

    def reserve(self, nbytes: int) -> ArenaBlock:
        """A block of at least so many bytes; the one there is, if it is large enough or can grow.

        Raises:
            OutOfMemory: there is not enough; the block there was stays.
            EPFail: the allocator raised something else.
        """
        nbytes = max(nbytes, self.alignment_bytes)
        block = self._block
        if block is not None and (block.nbytes >= nbytes or self._grows(block, nbytes)):
            return block
        made = self._new_block(nbytes) if block is None else self._larger_block(nbytes, block)
        if block is not None:
            block.is_replaced = True
        self._block = made
        return made

    def drop_block(self) -> None:
        """Let go of the block, which lasts as long as programs that are bound to it."""
        if self._block is not None:
            self._block.is_replaced = True
        self._block = None

    def view(self, block: ArenaBlock, offset_bytes: int, shape: tuple[int, ...], element_type: TensorElementType) -> Array:
        """A part of a block as one of the provider's arrays."""
        try:
            return self._allocator.view(block.block, offset_bytes, shape, element_type)
        except Exception as error:  # noqa: BLE001 - an allocator may raise anything
            raise_foreign(error, f"while the allocator of {self._owner} made a view of {element_type.name}{list(shape)}")

    def _larger_block(self, nbytes: int, block: ArenaBlock) -> ArenaBlock:
        """A block with room for larger programs, if there is memory for that."""
        ample_bytes = block.nbytes * GROWTH_PERCENT // 100
        if ample_bytes > nbytes:
            try:
                return self._new_block(ample_bytes)
            except MemoryError:
                pass  # what is needed may still fit
        return self._new_block(nbytes)

    def _new_block(self, nbytes: int) -> ArenaBlock:
        self._account.take(MemoryUse.ARENA, nbytes, f"an arena of {self._owner}")
        try:
            return ArenaBlock(self._allocator.allocate_block(nbytes), nbytes, self._account)
        except Exception as error:  # noqa: BLE001 - an allocator may raise anything
            self._account.give_back(MemoryUse.ARENA, nbytes)
            raise_foreign(error, f"while the allocator of {self._owner} allocated a block of {nbytes} bytes")

    def _grows(self, block: ArenaBlock, nbytes: int) -> bool:
        """Grow a block where it is, if its allocator can."""
        more_bytes = nbytes - block.nbytes
        self._account.take(MemoryUse.ARENA, more_bytes, f"the arena of {self._owner}, which grows to {nbytes} bytes,")
        has_grown = False
        try:
            has_grown = bool(self._allocator.grow_block(block.block, nbytes))
        except Exception as error:  # noqa: BLE001 - an allocator may raise anything
            raise_foreign(error, f"while the allocator of {self._owner} grew a block to {nbytes} bytes")
        finally:
            if has_grown:
                block.nbytes = nbytes
            else:
                self._account.give_back(MemoryUse.ARENA, more_bytes)
        return has_grown
