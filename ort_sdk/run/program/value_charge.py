"""What each run of a program holds on a device beside the program's arena."""

from __future__ import annotations

from ort_sdk.api import MemoryAccount, MemoryUse
from ort_sdk.api.data_classes import dataclass

__all__ = ["ValueCharge"]


@dataclass(frozen=True, slots=True)
class ValueCharge:
    """Bytes of one device that each run of a program takes for feeds and results."""

    account: MemoryAccount
    nbytes: int
    purpose: str

    @property
    def is_limited(self) -> bool:
        """Whether they have to be counted: else it is enough to note them for the peak."""
        return self.account.limit_bytes is not None

    def note(self) -> None:
        """Note them for the peak."""
        self.account.note(self.nbytes)

    def take(self) -> None:
        """Count them.

        Raises:
            OutOfMemory: the session would hold more than its limit.
        """
        self.account.take(MemoryUse.VALUES, self.nbytes, self.purpose)

    def give_back(self) -> None:
        """Count them no more."""
        self.account.give_back(MemoryUse.VALUES, self.nbytes)
