"""Kernels: what a kernel is given when it is made, and what the host may ask of one.

A kernel is made once per node by a *factory*: a callable that takes a ``KernelInfo`` and returns either a plain function
of the provider's arrays, or an object with a ``compute`` method and any of the optional abilities of ``OpKernel``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .data_classes import dataclass, field
from .element_type import TensorElementType, tensor_type_element
from .errors import InvalidArgument, InvalidGraph
from .graph_viewer import AttributeValue, NodeArg, Tensor

__all__ = [
    "NOT_PACKED",
    "REQUIRED",
    "TENSOR_BYTES",
    "Array",
    "Compute",
    "KernelFactory",
    "KernelInfo",
    "NotPacked",
    "OpKernel",
    "PrePackedWeights",
    "Slot",
    "Stacking",
    "Subgraph",
]

Array = Any
"""A provider's own array (NumPy's, CuPy's, a device buffer with a shape); a list for a sequence, a dict for a map."""

Compute = Callable[..., Any]
"""Takes a node's inputs (None where an optional one is absent), returns its output, or a tuple of its outputs."""


class NotPacked:
    """Type of ``NOT_PACKED``."""

    def __repr__(self) -> str:
        return "NOT_PACKED"


NOT_PACKED = NotPacked()
"""Answer of ``prepack``: this input is used as it is."""


TENSOR_BYTES = "the tensor's bytes"
"""Answer of ``packing_identity``: the packed form is one buffer with what ``tensor.packed()`` gives. Files hold it once."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
"""Default of ``KernelInfo.attribute`` that makes a missing attribute an error."""


@dataclass(frozen=True, slots=True)
class PrePackedWeights:
    """A constant input in the layout its kernel wants.

    Buffers belong to a container that outlives the kernels using them; they are read-only once made.
    """

    buffers: tuple[Any, ...]
    """Host buffers (contiguous ``uint8`` arrays) for host kernels; device arrays otherwise."""


class Stacking(Protocol):
    """How tensors that a body leaves on a device, one in each iteration, are stacked there: by kernels of its provider."""

    provider: Any
    """The ``ExecutionProvider`` of the session whose arrays they are."""

    def unsqueezing(self, axis: int) -> Any:
        """Kernel that gives a tensor a new axis of size 1, counted from the front of the result."""

    def joining(self, count: int, axis: int) -> Any:
        """Kernel that joins so many tensors along an axis, counted from the front."""

    def placed(self, array: Array) -> Array:
        """An array of the host on the device."""


class Subgraph(Protocol):
    """A runnable body of a control-flow node."""

    @property
    def input_names(self) -> Sequence[str]:
        """Formal inputs of the body, in order."""

    @property
    def input_shapes(self) -> Sequence[tuple[int | str | None, ...] | None]:
        """Declared shapes of the formal inputs."""

    @property
    def output_is_owned(self) -> Sequence[bool]:
        """Whether the body makes an output itself; if not, it may share memory with inputs, captured values or constants."""

    @property
    def output_names(self) -> Sequence[str]: ...
    @property
    def output_types(self) -> Sequence[str | None]:
        """ONNX type strings of the outputs."""

    @property
    def output_shapes(self) -> Sequence[tuple[int | str | None, ...] | None]: ...
    @property
    def stackings(self) -> Mapping[int, Stacking]:
        """Outputs that are gathered over iterations and left on a device: position → how they are stacked there.

        Only those of a kernel that hands on values (``KernelDef.hands_on_values``); a body without the attribute has none.
        """

    def __call__(self, inputs: Sequence[Array], implicit_inputs: Sequence[Array]) -> list[Array]:
        """Run the body once.

        Args:
            inputs: one value per formal input.
            implicit_inputs: the values the node captures from enclosing graphs, as its ``compute`` got them after its
                own inputs.

        Returns:
            One value per output.
        """


@functools.lru_cache(maxsize=1024)  # asked several times for every node, and of few combinations
def _element_types(types: tuple[str | None, ...]) -> frozenset[TensorElementType | None]:
    return frozenset(None if each is None else tensor_type_element(each) for each in types)


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """All a kernel may know when it is made. Reading it reads no weight but through ``constant_input``."""

    op_type: str
    since_version: int
    domain: str = ""
    name: str = ""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    """Name → int, float, str, tensor, type string or body, or a list of one kind of these.

    A list of thousands of numbers makes its elements when they are read; ``numpy.asarray`` of it makes none.
    """
    inputs: tuple[NodeArg | None, ...] = ()
    """Type and static shape of each input; None where an optional one is absent."""
    outputs: tuple[NodeArg | None, ...] = ()
    """The same for each output; None where the node does not ask for it."""
    constants: Mapping[int, Tensor] = field(default_factory=dict)
    """Input index → constant tensor, for inputs that never change."""
    subgraphs: Mapping[str, Subgraph] = field(default_factory=dict)
    """Attribute name → runnable body."""
    implicit_input_count: int = 0
    """How many captured values ``compute`` gets after the node's own inputs."""
    execution_provider: Any = None
    session_config: Mapping[str, str] = field(default_factory=dict)
    opset_version: int = 0
    """Version of the operator's domain that the model imports."""

    def with_attributes(self, attributes: Mapping[str, AttributeValue]) -> KernelInfo:
        """The same of a node with other attributes. ``dataclasses.replace`` takes three times as long."""
        return KernelInfo(
            self.op_type,
            self.since_version,
            self.domain,
            self.name,
            attributes,
            self.inputs,
            self.outputs,
            self.constants,
            self.subgraphs,
            self.implicit_input_count,
            self.execution_provider,
            self.session_config,
            self.opset_version,
        )

    def attribute(self, name: str, default: Any = REQUIRED) -> Any:
        """Value of an attribute, or ``default``.

        Raises:
            InvalidGraph: the attribute is missing and no default was given.
        """
        value = self.attributes.get(name, default)
        if value is REQUIRED:
            raise InvalidGraph(f"{self.describe()}: required attribute '{name}' is missing; it has {sorted(self.attributes)}")
        return value

    def constant_input(self, index: int) -> np.ndarray[Any, Any] | None:
        """Contents of a constant input as a read-only host array; None if the input is absent or not constant."""
        tensor = self.constants.get(index)
        return None if tensor is None else tensor.numpy()

    def has_input(self, index: int) -> bool:
        """Whether the node gives this input."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def wants_output(self, index: int) -> bool:
        """Whether the node asks for this output."""
        return index < len(self.outputs) and self.outputs[index] is not None

    def input_type(self, index: int) -> str | None:
        """ONNX type string of an input; None if absent or unknown."""
        argument = self.inputs[index] if index < len(self.inputs) else None
        return None if argument is None else argument.type

    def output_type(self, index: int) -> str | None:
        """ONNX type string of an output; None if not asked for or unknown."""
        argument = self.outputs[index] if index < len(self.outputs) else None
        return None if argument is None else argument.type

    def input_element_type(self, index: int) -> TensorElementType | None:
        """Element type of a tensor input."""
        argument = self.inputs[index] if index < len(self.inputs) else None
        return None if argument is None else argument.element_type

    def output_element_type(self, index: int) -> TensorElementType | None:
        """Element type of a tensor output."""
        argument = self.outputs[index] if index < len(self.outputs) else None
        return None if argument is None else argument.element_type

    def element_types(self) -> frozenset[TensorElementType | None]:
        """Element types of all inputs and outputs that the node has; None stands for those that are not known or no tensors'."""
        return _element_types(tuple([each.type for each in self.inputs + self.outputs if each is not None]))

    def input_rank(self, index: int) -> int | None:
        """Static rank of an input, if known."""
        argument = self.inputs[index] if index < len(self.inputs) else None
        return None if argument is None else argument.rank

    def subgraph(self, name: str) -> Subgraph:
        """Runnable body held by an attribute.

        Raises:
            InvalidArgument: the node has no such body.
        """
        try:
            return self.subgraphs[name]
        except KeyError:
            raise InvalidArgument(f"{self.describe()} has no subgraph '{name}'; it has {sorted(self.subgraphs)}") from None

    def describe(self) -> str:
        """Operator, version and node name, for messages."""
        return f"{self.domain or 'ai.onnx'}::{self.op_type}({self.since_version}), node '{self.name}'"


class Slot(Protocol):
    """What a bound kernel reads an input from, or leaves an output in, at call time.

    ``array`` is the value now. For values inside a program it never changes; for feeds it changes from call to call, so
    a bound kernel reads it each time unless ``is_fixed``.
    """

    array: Array
    is_fixed: bool
    is_constant: bool
    """Whether its contents never change, either."""
    element_type: TensorElementType | None
    """Of the value, the same in all calls; None if it is not known, or the slot is for no tensor."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the value, which is the same in all calls; None if it is not known."""


class OpKernel:
    """Base for kernels that want more than a function. Every ability is optional and looked up once.

    Class attributes a subclass may set:

    ``deterministic``
        equal inputs give equal outputs and nothing else happens. False unless declared.
    ``shape_inputs``
        which inputs' contents decide output shapes, as a tuple (Reshape: ``(1,)``); None means the outputs' shapes may
        depend on any contents (NonZero).
    ``contents_from_shapes``
        the outputs' contents depend on the inputs' shapes alone (Shape, Size).
    ``binds_any_layout``
        ``bind`` takes output arrays with strides of any order of axes. It is given the order that ``compute`` chose, so that
        neighbours that prefer another layout than row-major (channels last) keep it between them. False unless declared: outputs
        are row-major then.
    ``binds_moving_slots``
        what ``bind`` makes reads and writes arrays that are others in each call as fast as those that stay: the host does not
        copy large values of the user for its sake. False unless declared.
    ``returns_views``
        ``compute`` returns a view of its first input where it can, as Reshape does, and ``bind`` copies: it is asked only for
        arrays of which no view could be made. A view of a fixed buffer takes no call.
    ``in_place``
        pairs of an input and an output that may be in its memory: a caller of a run may give one memory for both. Then
        ``may_overwrite`` says to ``compute`` that it may write into that input, and return it as the output. What ``bind`` makes
        finds the input's array in the output's slot then, if the kernel ``binds_moving_slots``.
    ``bounded_input``
        position of an input on the host, a single number, that decides the outputs' shapes only outside of some range, as the
        length of sequences does whose caches have room for more. ``bounds`` gives the range. A program checks that the number
        is in it before the step, which may be bound then: in each call the slot has another number.
    ``packs_in_first_run``
        constant inputs of the host's may be packed as late as in the first run of the node's graph, so that a session that is
        made and not run costs nothing; they are packed before the first kernel of that run starts. The host still packs at
        session creation whatever goes to files or is taken from them. False unless declared: for large weights, which are
        better read once in a row, and for errors that shall show at creation.
    """

    deterministic: bool = False
    shape_inputs: tuple[int, ...] | None = None
    contents_from_shapes: bool = False
    binds_any_layout: bool = False
    returns_views: bool = False
    binds_moving_slots: bool = False
    packs_in_first_run: bool = False
    in_place: tuple[tuple[int, int], ...] = ()
    bounded_input: int | None = None

    def bounds(self, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, int] | None:
        """The least and the most that ``bounded_input`` may be for the outputs to have the same shapes.

        Args:
            shapes: of the inputs; None for absent ones.

        Returns:
            None if every number gives others.
        """
        return None

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm that it computes with, as ``"winograd"``, for reports; None while it is not known.

        A kernel that chooses by shape knows it when it has run, or is bound. Read by ``ort-sdk explain``, ``ort-sdk profile`` and
        profiled sessions only. Fused steps may have it, too.
        """
        return None

    def compute(self, *inputs: Any) -> Any:
        """Run the node: any shapes, returns new arrays, never aliases of inputs unless the kernel def says so."""
        raise NotImplementedError

    def packing_identity(self, input_index: int) -> str | None:
        """Text naming library version, instruction set, layout, attributes and sibling constants.

        Answered without reading a weight byte. Weights packed under the same text, operator and contents are shared between
        sessions and taken from files, and ``prepack`` is not asked again. None: what ``prepack`` makes is this kernel's alone.
        """
        return None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Rearrange a constant input; must not keep ``tensor``.

        Called at session creation; for kernels that declare ``packs_in_first_run``, at the beginning of the first run.
        ``allocator`` gives memory for buffers, which may be written until this returns. One with a true attribute
        ``goes_to_file`` is of a session that keeps packed weights in files: what is made in its memory is in the file, and
        costs no private memory.
        """
        return NOT_PACKED

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Take packed weights: this session's own, another session's, or a file's. The buffers must not be written."""

    # Three abilities are looked up by name and have no default, since their absence is an answer:
    # ``bind(inputs, outputs)``: fixes input and output slots and returns a call without arguments that does the work. Its
    # attribute ``copy_count``, if it has one, says how many arguments it copies into another layout, for ``ort-sdk explain``.
    # ``workspace_bytes(inputs, outputs)``: memory that a bound call needs while it runs, for slots that have shapes, and arrays
    # only where these are constants. ``bind(inputs, outputs, workspace)`` is given it as an aligned vector of as many ``uint8``,
    # or more; None for 0 bytes. Other steps use the same memory before and after each call.
    # ``select_body(condition)``: the subgraph a control-flow kernel runs for a condition, so that the host can run it instead
    # when the condition is known; its only own input is the condition.


KernelFactory = Callable[[KernelInfo], Any]
"""Makes a node's kernel: a function (only ``compute``), or an object with ``compute`` and optional abilities."""
