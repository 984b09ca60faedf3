"""Parameters of a generated kernel, with the arguments that go with them."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.device.element_types import COMPUTE, STORAGE
from ort_sdk.device.launches import Argument, Memory, Scalar

__all__ = ["Parameters"]


class Parameters:
    """A kernel's parameters, made as its text is written.

    Args:
        wide: whether offsets and sizes have 64 bits.
    """

    def __init__(self, *, wide: bool = False) -> None:
        self.is_wide = wide
        self._texts: list[str] = []
        self._memories: dict[tuple[int, str, bool], str] = {}
        self.arguments: list[Argument] = []
        self.writes: list[int] = []
        self._shared: set[int] = set()

    def share(self, memories: set[int]) -> None:
        """Say which memory, by its ``id``, is both read and written, so that no parameter promises that it is not."""
        self._shared = memories

    def memory(self, memory: Memory, element_type: TensorElementType, *, written: bool = False) -> str:
        """Name of the parameter that points to memory."""
        key = (id(memory), STORAGE[element_type], written)
        name = self._memories.get(key)
        if name is None:
            name = self._memories[key] = f"{'y' if written else 'x'}{len(self.arguments)}"
            storage = STORAGE[element_type] if written else f"const {STORAGE[element_type]}"
            pointer = "GLOBAL_PTR" if id(memory) in self._shared else "GLOBAL"
            self._texts.append(f"{pointer}({storage}) {name}")
            if written:
                self.writes.append(len(self.arguments))
            self.arguments.append(memory)
        return name

    def index(self, value: int, *, folds: bool = True) -> str:
        """Name of a parameter that is a size, a stride or an offset; where it folds, the number itself if it is 0 or 1."""
        if folds and value in (0, 1):
            return str(value)
        return self._scalar(Scalar("i64" if self.is_wide else "i32", value), "index_t")

    def number(self, value: float, element_type: TensorElementType) -> str:
        """Name of a parameter that is a number of an element type."""
        storage = COMPUTE[element_type]
        passed = {"i8": "i32", "i16": "i32", "u8": "u32", "u16": "u32"}.get(storage, storage)
        name = self._scalar(Scalar(passed, value), passed)
        return name if passed == storage else f"(({storage}){name})"

    def _scalar(self, scalar: Scalar, c_type: str) -> str:
        name = f"c{len(self.arguments)}"
        self._texts.append(f"{c_type} {name}")
        self.arguments.append(scalar)
        return name

    @property
    def text(self) -> str:
        """The parameter list."""
        return ", ".join(self._texts)
