"""Fusing bound steps: how a provider makes one kernel of several steps of a program.

A *program* is a plan specialised for one input signature (shape and type of every feed); its steps run one after the other on
values that are numbered. When the host makes a program it shows each provider the steps that will be bound to buffers, and the
provider may answer with kernels that do the work of several steps at once. Values that only such steps read get no buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .data_classes import dataclass, field
from .element_type import TensorElementType
from .kernel import Array

__all__ = ["FusedSteps", "FusibleProgram", "FusibleStep", "ProgramValue", "StepFusion"]


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """A tensor of a program."""

    element_type: TensorElementType
    shape: tuple[int, ...]
    constant: Array = None
    """Its contents, where they are the same in every run; must not be written."""


@dataclass(frozen=True, slots=True)
class FusibleStep:
    """A step that will be bound to buffers, or any step where shapes vary."""

    kernel: Any
    """The provider's kernel of the node."""
    op_type: str
    inputs: tuple[int, ...]
    """Value numbers; 0 for an absent input."""
    outputs: tuple[int, ...]
    """Value numbers; 0 for one that nobody asked for."""
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Of the node."""


@dataclass(frozen=True, slots=True)
class FusibleProgram:
    """What a provider sees of a program."""

    steps: Mapping[int, FusibleStep]
    """Position in the program → step, in order: the provider's steps that will be bound, or all where shapes vary."""
    values: Mapping[int, ProgramValue]
    """Value number → what is known of it, for the values of these steps."""
    readers: Mapping[int, Sequence[int]]
    """Value number → positions of the steps that read it, of any provider; one past the last step for the caller."""
    may_compile: bool
    """Whether the program has run for long enough that compiling for some tens of milliseconds pays."""
    shapes_vary: bool = False
    """Whether the steps will run on values of other shapes than these, each time. Only kernels with ``compute(*inputs)`` are used
    then. It gives new outputs, or ``NotImplemented`` for inputs whose shapes do not suit, for which the steps run one by one."""


@dataclass(frozen=True, slots=True)
class FusedSteps:
    """Steps that become one, which runs instead of the last of them.

    Whatever else reads an output must come after the last of the steps, and whatever they read must be made before it or by
    one of them.
    """

    positions: tuple[int, ...]
    """Positions of the steps in the program, ascending."""
    kernel: Any
    """Has ``bind(inputs, outputs)``, and perhaps ``binds_any_layout``, as ``OpKernel`` describes them; or, where shapes vary,
    ``compute``. Its ``algorithm``, if it has one, is that of all its steps in reports. If its ``computes_step_by_step`` is true,
    ``compute`` takes about as long as the steps do, and only what is bound takes less: the host then prefers programs."""
    inputs: tuple[int, ...]
    """Numbers of the values it reads."""
    outputs: tuple[int, ...]
    """Numbers of the values it writes: those of the steps' outputs that anything else reads."""
    repeated: tuple[int, ...] = ()
    """Positions of further steps before the last whose work the kernel does again, as of those that work out a shape, ascending.
    Others may read what they make; they are left out where nothing does any more. Only where shapes vary."""


@dataclass(frozen=True, slots=True)
class StepFusion:
    """A provider's answer."""

    fused: Sequence[FusedSteps] = ()
    is_complete: bool = True
    """Whether asking again with ``may_compile`` would give the same. If code is compiled in the background: not until it is."""
