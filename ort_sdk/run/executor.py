"""The loop over the steps of a plan. Nothing in it is looked up by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from ort_sdk.api import Array, Fail, OrtSdkError, RuntimeException, Stacking
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.foreign_errors import foreign_class
from ort_sdk.api.stopping import STOPPED
from ort_sdk.plan import ExecutionPlan, Step

__all__ = [
    "BodyRunner",
    "RunControl",
    "StepObserver",
    "StepTimer",
    "execute",
    "halt",
    "raise_step_error",
    "require_outputs",
    "run_steps",
    "store_outputs",
]


class StepObserver(Protocol):
    """Called after every step of a run that is profiled."""

    def __call__(self, step: Step, start_ns: int, duration_ns: int) -> None: ...


class StepTimer(StepObserver, Protocol):
    """An observer that is also called before every step."""

    def begin(self, step: Step) -> None: ...


@dataclass(slots=True)
class RunControl:
    """What may interrupt or observe one run, its bodies included."""

    terminate: Any = None
    """Object whose ``terminate`` becomes true when the run shall stop; None if it cannot."""
    observer: StepObserver | None = None
    """Called after every step; such a run goes step by step."""
    timer: StepTimer | None = None
    """The observer, if it is to be called before every step, too."""
    program_observer: StepObserver | None = None
    """Called for the steps of the program that replays the run, if one does."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Config entries of the run, for providers."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing has to be done between steps."""
        return self.terminate is None and self.observer is None


class _Current(threading.local):
    control = RunControl()


current = _Current()
"""What may interrupt or observe the run of this thread, for the bodies its kernels run."""


class RunScope:
    """Makes a run's control current on this thread."""

    __slots__ = ("_control", "_previous")

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._previous = current.control

    def __enter__(self) -> None:
        current.control = self._control

    def __exit__(self, *_: object) -> None:
        current.control = self._previous


def execute(plan: ExecutionPlan, feeds: Sequence[Array], control: RunControl) -> list[Array]:
    """Run a plan once.

    Args:
        plan: plan of a main graph.
        feeds: one value per feed, on the device the plan wants it; None for one left at its default.
        control: what may interrupt or watch the run.

    Returns:
        One value per fetch, on the device the plan leaves it; it may alias feeds and constants where ``Fetch.is_owned``
        is False.
    """
    frame = plan.new_frame()
    for feed, value in zip(plan.feeds, feeds, strict=True):
        if value is not None:
            frame[feed.index] = value
    with RunScope(control):
        run_steps(plan, frame, control)
    return [frame[fetch.index] for fetch in plan.fetches]


def run_steps(plan: ExecutionPlan, frame: list[Any], control: RunControl) -> None:
    """Run all steps on a frame."""
    if not control.is_plain:
        _run_watched(plan, frame, control)
        return
    generic = np.generic
    step = None
    try:
        for step in plan.steps:
            result = step.compute(*[frame[index] for index in step.inputs])
            outputs = step.outputs
            if type(result) is tuple:
                if len(result) < len(outputs):
                    require_outputs(result, outputs)
                for index, value in zip(outputs, result, strict=False):
                    frame[index] = np.asarray(value) if isinstance(value, generic) else value
                frame[0] = None
            elif outputs:
                if len(outputs) > 1:
                    require_outputs(result, outputs)
                frame[outputs[0]] = np.asarray(result) if isinstance(result, generic) else result
            for index in step.frees:
                frame[index] = None
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
        raise_step_error(error, step, [] if step is None else [frame[index] for index in step.inputs])


def _run_watched(plan: ExecutionPlan, frame: list[Any], control: RunControl) -> None:
    step = None
    observer, timer = control.observer, control.timer
    try:
        for step in plan.steps:
            if control.terminate is not None and control.terminate.terminate:
                halt()
            if timer is not None:
                timer.begin(step)
            start = time.perf_counter_ns()
            result = step.compute(*[frame[index] for index in step.inputs])
            if observer is not None:
                observer(step, start, time.perf_counter_ns() - start)
            require_outputs(result, step.outputs)
            store_outputs(frame, step.outputs, result)
            for index in step.frees:
                frame[index] = None
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
        raise_step_error(error, step, [] if step is None else [frame[index] for index in step.inputs])


def halt() -> NoReturn:
    """End the run, as its caller asked."""
    raise Fail(STOPPED)


def require_outputs(result: Any, outputs: tuple[int, ...]) -> None:
    """Check that a kernel's result has something for each output that is wanted.

    Raises:
        Fail: it has not.
    """
    count = len(result) if type(result) is tuple else 1
    if any(outputs[count:]):
        raise Fail(f"its kernel gave {count} of {len(outputs)} outputs")


def store_outputs(frame: list[Any] | dict[int, Any], outputs: tuple[int, ...], result: Any) -> None:
    """Store a kernel's result in its frame positions; NumPy scalars become arrays without dimensions."""
    results = result if type(result) is tuple else (result,)
    for index, value in zip(outputs, results, strict=False):
        frame[index] = np.asarray(value) if isinstance(value, np.generic) else value
    frame[0] = None


def raise_step_error(error: Exception, step: Step | None, inputs: Sequence[Any]) -> NoReturn:
    """Raise a kernel's error again, with node, provider and input shapes in its text."""
    if (
        step is None
        or (isinstance(error, OrtSdkError) and error.is_located)
        or (isinstance(error, Fail) and STOPPED in error.text)
    ):
        # This frame is in the error's traceback: with its variables, the error would hold itself, and the feeds.
        try:
            raise error
        finally:
            del error, inputs
    text = error.text if isinstance(error, OrtSdkError) else f"{type(error).__name__}: {error}"
    shapes = ", ".join(_describe(value) for value in inputs)
    located = (type(error) if isinstance(error, OrtSdkError) else foreign_class(error, RuntimeException))(
        f"Non-zero status code returned while running {step.op_type} node. Name:'{step.node}' Status Message: {text} "
        f"(provider: {step.provider or 'copy'}, inputs: {shapes or 'none'})"
    )
    located.is_located = True
    try:
        raise located from error
    finally:
        del error, inputs, located  # as above


def _describe(value: Any) -> str:
    if value is None:
        return "absent"
    try:
        shape = getattr(value, "shape", None)
    except Exception:  # noqa: BLE001 - an array of a queue that failed may raise that failure here, which is being reported
        return type(value).__name__
    if shape is None:
        return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(shape)}"


class BodyRunner:
    """A body of control flow as its kernel sees it (the contract's ``Subgraph``).

    Args:
        plan: of the body.
        run_programs: runs the plan by programs: takes inputs and captured values, in order, and what may interrupt the run;
            None to run every call step by step.
        stackings: see ``Subgraph.stackings``.
    """

    __slots__ = (
        *("_run_programs", "input_names", "input_shapes", "output_is_owned", "output_names", "output_shapes"),
        *("output_types", "plan", "stackings"),
    )

    def __init__(
        self,
        plan: ExecutionPlan,
        run_programs: Callable[[Sequence[Array], RunControl], list[Array]] | None = None,
        stackings: Mapping[int, Stacking] | None = None,
    ) -> None:
        self.plan = plan
        self.stackings = stackings or {}
        self._run_programs = run_programs
        self.input_names = tuple(feed.name for feed in plan.feeds)
        self.input_shapes = tuple(feed.shape for feed in plan.feeds)
        self.output_names = tuple(fetch.name for fetch in plan.fetches)
        self.output_is_owned = tuple(fetch.is_owned for fetch in plan.fetches)
        self.output_types = tuple(fetch.type for fetch in plan.fetches)
        self.output_shapes = tuple(fetch.shape for fetch in plan.fetches)

    def __call__(self, inputs: Sequence[Array], implicit_inputs: Sequence[Array]) -> list[Array]:
        plan = self.plan
        if len(inputs) != len(plan.feeds):
            raise Fail(f"body '{plan.name}' takes {len(plan.feeds)} inputs ({', '.join(self.input_names)}), got {len(inputs)}")
        control = current.control
        if self._run_programs is not None and control.observer is None:
            if control.program_observer is not None:
                # It observes the step that runs the body, whose time must not include observing.
                control = RunControl(control.terminate, config=control.config)
            return self._run_programs([*inputs, *(implicit_inputs[position] for position, _ in plan.captures)], control)
        frame = plan.new_frame()
        for feed, value in zip(plan.feeds, inputs, strict=True):
            frame[feed.index] = value
        for position, index in plan.captures:
            frame[index] = implicit_inputs[position]
        run_steps(plan, frame, control)
        return [frame[fetch.index] for fetch in plan.fetches]
