"""Direct convolutions: compiled tasks on channels-last data, whose weight is packed once and whose sizes are arguments.

A task is planned for the shape of X (``TaskPlan``) and then called in one of three ways: on arrays that stay, in a program
(``_call``, behind a ``LayoutCall``); straight on a run's arrays where shapes vary (``write_varying``); or as one of several
convolutions in one call (``fitted``, see ``fusion.conv.sequence``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from ort_sdk.api import NOT_PACKED, HostArray, InvalidArgument, KernelInfo, NotPacked, PrePackedWeights, Tensor
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.jit.arguments import TaskArguments
from ort_sdk_cpu.kernel.activation import Activation
from ort_sdk_cpu.kernel.layouts.call import LayoutCall
from ort_sdk_cpu.kernel.layouts.memory import Layout, channels_last, contiguous, is_nhwc, layout_of
from ort_sdk_cpu.kernel.layouts.task_execution import TaskExecution
from ort_sdk_cpu.platform import libraries

from .base import WEIGHT, ConvKernel, Variant
from .epilogue import ConvEpilogue
from .packing import panel_width

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall
    from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["DirectConvKernel", "Positions", "TaskPlan", "as_nhwc", "bias_of", "cached"]

Made = TypeVar("Made")
CACHED_SHAPES = 64
"""For which a convolution keeps the plan of its task."""
_FLOAT = np.dtype(np.float32)


def as_nhwc(array: HostArray) -> HostArray:
    """(N, C, *spatial) that is (N, *spatial, C) in memory: the array or a copy."""
    if is_nhwc(array):
        return array
    rank = array.ndim
    return np.array(array.transpose(0, *range(2, rank), 1), _FLOAT, order="C").transpose(0, rank - 1, *range(1, rank - 1))


def cached(table: dict[Any, Made], key: Any, make: Callable[[], Made], most: int = CACHED_SHAPES) -> Made:
    """What was made for a shape; made now, and entered in place of the oldest where there are ``most``, if it is not there."""
    try:
        return table[key]
    except KeyError:
        while len(table) >= most:
            table.pop(next(iter(table)), None)
        made = table[key] = make()
        return made


def bias_of(bias: HostArray | None, channels: int) -> HostArray | None:
    """A bias as tasks read it.

    Raises:
        InvalidArgument: it has not one number for each channel of the result.
    """
    if bias is None:
        return None
    if bias.shape != (channels,):
        raise InvalidArgument(f"bias of a convolution into {channels} channels has shape {bias.shape}; it must be ({channels},)")
    return np.ascontiguousarray(bias)


class Positions(NamedTuple):
    """Where a task takes addresses: positions among its arguments."""

    x: int
    weight: int
    bias: int
    added: int
    """Of what is added to the sums."""
    last: int
    """Of what is added at last."""
    out: int
    work: int

    @classmethod
    def of(cls, arguments: Any, weight: int | None = None, bias: int | None = None) -> Positions:
        """Those of a class of arguments.

        Args:
            arguments: the class.
            weight: its field for the packed weight; None for ``weights``.
            bias: its field for the bias; None for ``bias``.
        """
        constants = (arguments.weights if weight is None else weight, arguments.bias if bias is None else bias)
        fields = (arguments.x, *constants, arguments.added, arguments.epilogue.last, arguments.out, arguments.work)
        return cls(*map(int, fields))


class TaskPlan(NamedTuple):
    """A task with its sizes, but for the arrays of a call."""

    module: str
    name: str
    arguments: TaskArguments
    positions: Positions
    threads: int
    work_bytes: int
    """Workspace of all threads."""

    def call(self) -> TaskCall:
        """The task on arrays that stay."""
        from ort_sdk_cpu.jit.task import TaskCall

        return TaskCall(self.module, self.name, self.arguments, self.threads)

    def run(self, arrays: Sequence[tuple[int, HostArray | None]], workspace: Workspace) -> None:
        """Run once.

        Args:
            arrays: position of an argument, and the array there, in the layout that the task wants; None for address 0.
                Positions that are not named have address 0, too.
            workspace: the workspace.
        """
        words: list[Any] = list(self.arguments.words)
        for position, array in arrays:
            words[position] = array
        if self.work_bytes:
            words[self.positions.work] = workspace.buffer("task", self.work_bytes)
        from ort_sdk_cpu.jit.task import task_function

        task_function(self.module, self.name)(self.threads, *words)


class DirectConvKernel(ConvKernel):
    """A convolution by a compiled task, for constant weights. Arguments as for ``ConvKernel``.

    Subclasses pack the weight and plan the task.
    """

    identity: ClassVar[str]
    """Names the packed form of the weight."""
    positions: ClassVar[Positions]
    """Where the task takes addresses."""
    reads_nchw: ClassVar[bool] = False
    """Whether it reads X row-major."""

    def __init__(self, info: KernelInfo, fallback: Any, activate: InPlace | None) -> None:
        super().__init__(info, fallback, activate)
        self._packed: HostArray | None = None
        self._packed_later: HostArray | None = None
        """A weight that the host did not have packed, since the convolution is small."""
        self._epilogue: tuple[tuple[Activation, ...], ConvEpilogue] | None = None
        """What is done to the sums, and the activations that say so."""
        self._plans: dict[Any, TaskPlan | None] = {}
        """By shape of X and threads."""

    # What a subclass says

    @abstractmethod
    def pack_weight(self, weight: HostArray) -> HostArray:
        """The weight as the task reads it: uint8.

        Args:
            weight: float32 (M, C / groups, *kernel), given as any contiguous array.
        """

    @abstractmethod
    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse, but for rounding."""

    @abstractmethod
    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task for inputs of some shapes; None if it does not compute them."""

    def source_layout(self, shape: tuple[int, ...]) -> Layout:
        """How the task reads X."""
        return (contiguous if self.reads_nchw else channels_last)(shape, _FLOAT)

    def arranged(self, x: HostArray) -> HostArray:
        """X as the task reads it."""
        return np.ascontiguousarray(x) if self.reads_nchw else as_nhwc(x)

    # Packing

    @property
    def is_packed(self) -> bool:  # type: ignore[override]
        """Whether the weight was packed."""
        return self._packed is not None

    @property
    def constant_shape(self) -> tuple[int, ...]:
        """Of the weight."""
        assert self._weight_shape is not None  # noqa: S101 - the weight is constant
        return self._weight_shape

    def packing_identity(self, input_index: int) -> str | None:
        """The packed form, and how many output channels a panel has."""
        return f"{self.identity}-{panel_width()}" if input_index == WEIGHT and self._expected is not None else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Pack the weight."""
        if input_index != WEIGHT or self._expected is None:
            return NOT_PACKED
        packed = self.pack_weight(tensor.packed())
        packed.flags.writeable = False
        return PrePackedWeights((packed,))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        self._packed = weights.buffers[0]

    def plain_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with the weight as it was before it was packed, but for rounding."""
        if self._packed is None:
            return inputs
        return [inputs[0], self.unpack_weight(self._packed), *inputs[2:]]

    def weight_of(self, weight: Any) -> HostArray:
        """The weight as the task reads it.

        Args:
            weight: as the node has it; any if it was packed.
        """
        if self._packed is not None:
            return self._packed
        if self._packed_later is None:
            self._packed_later = self.pack_weight(np.ascontiguousarray(weight))
        return self._packed_later

    # Fusing

    def followed_by(self, activations: tuple[Activation, ...], x_shape: tuple[int, ...], *, adds_last: bool) -> Self | None:
        """As for all convolutions."""
        made = super().followed_by(activations, x_shape, adds_last=adds_last)
        if made is not None:
            made._plans = {}
        return made

    def _can_follow(self, variant: Variant) -> bool:
        return ConvEpilogue.of_activations(self._activations) is not None

    def epilogue(self) -> ConvEpilogue:
        """What is done to the sums."""
        if self._epilogue is None or self._epilogue[0] is not self._activations:
            self._epilogue = (self._activations, ConvEpilogue.of_activations(self._activations) or ConvEpilogue())
        return self._epilogue[1]

    # On arrays that stay

    def _call(self, variant: Variant, inputs: Sequence[Any], arrays: Sequence[HostArray]) -> LayoutCall | None:
        made = self.plan(variant, arrays[-1].shape)
        if made is None:
            return None
        execution = TaskExecution(made.call(), None, self.workspace, (self.positions.work, made.work_bytes))
        execution.set(self.positions.weight, self.weight_of(inputs[WEIGHT]))
        wanted = self._wanted(variant, arrays[-1].shape)
        arguments = [
            (position, layout_of(array) or contiguous(array.shape, _FLOAT), layout)
            for (position, layout), array in zip(wanted.items(), arrays, strict=True)
        ]
        return LayoutCall(execution, arguments, self.workspace)

    def _wanted(self, variant: Variant, out_shape: tuple[int, ...]) -> Mapping[int, Layout]:
        """Position of an argument → the layout that the task wants, in the order of a call's operands, the output last."""
        at, result = self.positions, channels_last(out_shape, _FLOAT)
        found = {at.x: self.source_layout(variant.x_shape)}
        if variant.has_bias:
            found[at.bias] = contiguous((out_shape[1],), _FLOAT)
        if variant.has_added:
            found[at.added] = result
        if self._adds_last:
            found[at.last] = result
        found[at.out] = result
        return found

    # On a run's arrays, of any shape

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """The task, whatever the shapes: only the list of its sizes is made for them."""
        x, weight, bias, added, last = (*inputs, None, None, None)[:5]
        shape = out.shape
        if x.dtype != _FLOAT or not is_nhwc(out) or any(z is not None and z.shape != shape for z in (added, last)):
            return False
        made = self._plan_for(x.shape, shape)
        if made is None:
            return super().write_varying(inputs, out)
        at = self.positions
        arrays = [
            (at.x, self.arranged(x)),
            (at.weight, self.weight_of(weight)),
            (at.bias, bias_of(bias, self.constant_shape[0])),
            (at.out, out),
        ]
        sums = ((at.added, added), (at.last, last))
        arrays += [(position, as_nhwc(array)) for position, array in sums if array is not None]
        made.run(arrays, self.workspace)
        self._used = self.own_algorithm
        return True

    def _plan_for(self, x_shape: tuple[int, ...], out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task for a shape, kept for when it comes again."""
        variant = Variant(x_shape, self.constant_shape, self._has_bias, self._has_added)
        return cached(self._plans, (x_shape, libraries.thread_count()), lambda: self.plan(variant, out_shape))

    # In a sequence

    @property
    def constant_positions(self) -> tuple[int, ...]:
        """Where the task takes weight and bias."""
        return self.positions.weight, self.positions.bias

    @property
    def added_positions(self) -> tuple[int, int]:
        """Where it takes what is added to the sums, and at last."""
        return self.positions.added, self.positions.last

    def constant_arrays(self, given: Sequence[Any]) -> list[tuple[int, HostArray | None]]:
        """Weight and bias as the task reads them, with their positions."""
        weight, bias = given
        arrays = (self.weight_of(weight), bias_of(bias, self.constant_shape[0]))
        return list(zip(self.constant_positions, arrays, strict=True))

    def fitted(self, x_shape: tuple[int, ...]) -> tuple[tuple[int, ...], TaskPlan] | None:
        """Shape of the output for one of X, and the task; None if it cannot."""
        shape = self.fitted_shape(x_shape)
        plan = None if shape is None else self.plan(Variant(x_shape, self.constant_shape, False, False), shape)
        return None if shape is None or plan is None else (shape, plan)

    def fitted_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Shape of the output for one of X; None if the task does not make it."""
        weight_shape, geometry = self.constant_shape, self.geometry
        if len(x_shape) != len(weight_shape) or x_shape[1] != geometry.input_channels(weight_shape) or 0 in x_shape:
            return None
        try:
            windows = geometry.windows.windows(x_shape[2:], weight_shape[2:])
        except InvalidArgument:
            return None  # The step by itself says so.
        is_fit = 0 not in windows.output_shape and min(*windows.pads_begin, *windows.pads_end) >= 0
        return (x_shape[0], weight_shape[0], *windows.output_shape) if is_fit else None
