"""What tracing and partial evaluation leave of a plan: steps of a program, constants, and values of the traced run."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass
from ort_sdk.plan import ExecutionPlan, Step

from .guards import Guard

__all__ = ["ProgramStep", "Specialisation", "is_declared"]


def is_declared(step: Step) -> bool:
    """Whether a step is free of side effects: a kernel that declares nothing runs even if its outputs are not read."""
    kernel = step.kernel
    return kernel is None or bool(getattr(kernel, "deterministic", False) or getattr(kernel, "contents_from_shapes", False))


@dataclass(slots=True)
class ProgramStep:
    """A step of a program, over the program's own value numbers."""

    step: Step
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    returns_tuple: bool
    may_return_scalar: bool
    """Whether the kernel may hand back a NumPy scalar instead of an array."""
    outputs_known: bool
    """Whether the outputs' shapes follow from the signature."""
    guard: Guard | None = None
    """What the step is there for, if it is no step of a plan's."""
    members: tuple[Step, ...] = ()
    """The plan's steps that it does the work of, if it is fused."""


@dataclass(slots=True)
class Specialisation:
    """A plan specialised for one signature."""

    plan: ExecutionPlan
    steps: list[ProgramStep]
    constants: dict[int, Array]
    """Values the steps or fetches read that are the same in every run."""
    values: list[Any]
    """Those of the traced run, for their shapes, or their outlines; contents are dropped once the program is built."""
    fetches: tuple[int, ...]
    kept_bytes: int
    """Bytes of folded values the program keeps alive."""
    expanded_steps: int = 0
    """Steps that were unrolled and inlined from control flow."""
    dynamic_feeds: frozenset[int] = frozenset()
    """Feeds with dynamic shapes."""
    is_repeated: bool = False
    """Whether one run may replay the program several times, as that of a loop's body: a device may still read the host's memory
    of the time before."""

    @property
    def unknown_steps(self) -> int:
        """How many steps' results have shapes that are not known: a call each, at least, if none of them is fused."""
        return sum(not launched.outputs_known and launched.guard is None for launched in self.steps)

    @property
    def guards(self) -> list[Guard]:
        """In order."""
        return [launched.guard for launched in self.steps if launched.guard is not None]

    @property
    def checked(self) -> set[int]:
        """Values whose shapes guards check: they are known only after those."""
        return {index for guard in self.guards for index in guard.checked}

    def origin_of(self, index: int) -> str:
        """Where a value comes from, in words, for errors: a feed, or the node that makes it."""
        for feed in self.plan.feeds:
            if feed.index == index:
                return f"the feed '{feed.name}'"
        step = next(launched.step for launched in self.steps if index in launched.outputs)
        return f"{step.op_type} node '{step.node}'"
