"""Fusing steps of a program: providers are asked, and their answers are checked and replace the steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import EPFail, ExecutionProvider, FusedSteps, FusibleProgram, FusibleStep, OrtDevice, ProgramValue, StepFusion
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.plan import ABSENT, Step
from ort_sdk.run.executor import require_outputs, store_outputs
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

from .binding import can_bind
from .fusion_checks import check_answer, unread_steps

__all__ = ["Fused", "fuse_steps"]


@dataclass(frozen=True, slots=True)
class Fused:
    """A specialisation with fused steps."""

    specialisation: Specialisation
    groups: tuple[tuple[str, ...], ...]
    """Operators of each fused step that does the work of several."""
    is_complete: bool
    """Whether no provider would fuse more if it might compile."""


def fuse_steps(
    specialisation: Specialisation,
    providers: Mapping[str, BindingProvider],
    *,
    may_compile: bool,
    shapes_vary: bool = False,
    is_program: bool = False,
) -> Fused:
    """Let providers fuse the steps that will be bound.

    Args:
        specialisation: steps with recorded values.
        providers: provider name → what binding needs.
        may_compile: see ``FusibleProgram.may_compile``.
        shapes_vary: see ``FusibleProgram.shapes_vary``; the fused steps can be computed then.
        is_program: with ``shapes_vary``, whether steps are a program's: those are fused whose shapes it does not know.

    Raises:
        EPFail: a provider's answer is none, or does not keep the order of the program.
    """
    answers: list[tuple[str, FusedSteps]] = []
    is_complete = True
    for name, provider in providers.items():
        if type(provider.execution_provider).fuse_steps is ExecutionProvider.fuse_steps:
            continue
        shown = _shown_steps(specialisation, name, providers, shapes_vary=shapes_vary, is_program=is_program)
        at_once = may_compile or provider.execution_provider.compiles_at_once
        program = _shown_program(specialisation, shown, provider, may_compile=at_once, shapes_vary=shapes_vary)
        fusion = _asked_provider(provider.execution_provider, program)
        is_complete = is_complete and fusion.is_complete
        check_answer(name, program, fusion.fused)
        answers.extend((name, fused) for fused in fusion.fused if not shapes_vary or hasattr(fused.kernel, "compute"))
    if not answers:
        return Fused(specialisation, (), is_complete)
    steps = specialisation.steps
    several = [fused.positions for _, fused in answers if len(fused.positions) > 1]
    groups = tuple(tuple(steps[position].step.op_type for position in positions) for positions in several)
    return Fused(replace(specialisation, steps=_replaced(specialisation, answers, providers, shapes_vary)), groups, is_complete)


def _asked_provider(execution_provider: ExecutionProvider, program: FusibleProgram) -> StepFusion:
    try:
        fusion = execution_provider.fuse_steps(program)
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"raised in fuse_steps of {execution_provider.name}")
    if not isinstance(fusion, StepFusion):
        raise EPFail(f"{execution_provider.name}: fuse_steps must give a StepFusion, gave {fusion!r:.200}")
    return fusion


def _shown_steps(
    specialisation: Specialisation, name: str, providers: Mapping[str, BindingProvider], *, shapes_vary: bool, is_program: bool
) -> dict[int, FusibleStep]:
    """Position → step that a provider may fuse."""

    def is_shown(launched: ProgramStep) -> bool:
        if shapes_vary:
            return not (is_program and launched.outputs_known)
        return can_bind(launched, specialisation, providers)

    own = ((position, launched) for position, launched in enumerate(specialisation.steps) if launched.step.provider == name)
    return {position: _fusible(launched) for position, launched in own if is_shown(launched)}


def _shown_program(
    specialisation: Specialisation,
    steps: Mapping[int, FusibleStep],
    provider: BindingProvider,
    *,
    may_compile: bool,
    shapes_vary: bool,
) -> FusibleProgram:
    shown = {index for step in steps.values() for index in (*step.inputs, *step.outputs)} - {ABSENT}
    describe = functools.partial(described_value, provider.execution_provider)
    values = {
        index: ProgramValue(*describe(specialisation.values[index]), specialisation.constants.get(index))
        for index in shown
        if hasattr(specialisation.values[index], "shape")
    }
    return FusibleProgram(steps, values, _readers(specialisation), may_compile, shapes_vary)


def _fusible(launched: ProgramStep) -> FusibleStep:
    step = launched.step
    return FusibleStep(step.kernel, step.op_type, launched.inputs, _wanted_outputs(launched), step.domain, step.attributes)


def _wanted_outputs(launched: ProgramStep) -> tuple[int, ...]:
    return tuple(ABSENT if own == ABSENT else index for index, own in zip(launched.outputs, launched.step.outputs, strict=True))


def _readers(specialisation: Specialisation) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {}
    for position, launched in enumerate(specialisation.steps):
        for index in launched.inputs:
            readers.setdefault(index, []).append(position)
    for index in specialisation.fetches:
        readers.setdefault(index, []).append(len(specialisation.steps))
    return readers


def _replaced(
    specialisation: Specialisation,
    answers: Sequence[tuple[str, FusedSteps]],
    providers: Mapping[str, BindingProvider],
    shapes_vary: bool,
) -> list[ProgramStep]:
    steps = specialisation.steps
    left: list[ProgramStep | None] = list(steps)
    for name, fused in answers:
        members = [steps[position] for position in fused.positions]
        for position in fused.positions:
            left[position] = None
        compute = _fused_or_steps(fused, specialisation) if shapes_vary else None
        left[fused.positions[-1]] = _fused_step(name, fused, members, providers[name].device, compute)
    for position in unread_steps([fused for _, fused in answers], steps, specialisation.fetches):
        left[position] = None
    return [launched for launched in left if launched is not None]


def _fused_or_steps(fused: FusedSteps, specialisation: Specialisation) -> _FusedOrSteps:
    members = [specialisation.steps[position] for position in sorted((*fused.repeated, *fused.positions))]
    read = {index for launched in members for index in launched.inputs}.difference(fused.inputs)
    return _FusedOrSteps(fused, members, {index: array for index, array in specialisation.constants.items() if index in read})


class _FusedOrSteps:
    """Computes steps by their fused kernel or, where that returns ``NotImplemented`` for its inputs, one by one.

    Args:
        fused: what the provider answered.
        members: the steps.
        constants: what they read that the kernel is not given.
    """

    def __init__(self, fused: FusedSteps, members: Sequence[ProgramStep], constants: Mapping[int, Any]) -> None:
        self._compute = fused.kernel.compute
        given = (*fused.inputs, *constants)
        slots = {index: slot for slot, index in enumerate(given, 1)} | {ABSENT: ABSENT}
        own = dict.fromkeys(index for launched in members for index in _wanted_outputs(launched) if index not in slots)
        slots |= {index: slot for slot, index in enumerate(own, 1 + len(given))}
        self._steps = [
            (
                launched.step,
                tuple([slots[index] for index in launched.inputs]),
                tuple([slots[index] for index in _wanted_outputs(launched)]),
            )
            for launched in members
        ]
        self._outputs = [slots[index] for index in fused.outputs]
        self._rest = [*constants.values(), *[None] * len(own)]

    def __call__(self, *inputs: Any) -> Any:
        result = self._compute(*inputs)
        return self._one_by_one(inputs) if result is NotImplemented else result

    def _one_by_one(self, inputs: Sequence[Any]) -> Any:
        values = [None, *inputs, *self._rest]
        for step, read, written in self._steps:
            result = step.compute(*[values[slot] for slot in read])
            require_outputs(result, step.outputs)
            store_outputs(values, written, result)
        results = tuple([values[slot] for slot in self._outputs])
        return results if len(results) > 1 else results[0]


def _fused_step(
    name: str, fused: FusedSteps, members: Sequence[ProgramStep], device: OrtDevice, compute: Callable[..., Any] | None
) -> ProgramStep:
    step = Step(
        compute=compute,
        inputs=fused.inputs,
        outputs=fused.outputs,
        frees=(),
        kernel=fused.kernel,
        op_type=_shortened([launched.step.op_type for launched in members], "+"),
        domain="",
        node=_shortened([launched.step.node for launched in members], ", "),
        provider=name,
        device=device,
    )
    return ProgramStep(
        step,
        fused.inputs,
        fused.outputs,
        returns_tuple=len(fused.outputs) > 1,
        may_return_scalar=False,
        outputs_known=all(launched.outputs_known for launched in members),
        members=tuple([launched.step for launched in members]),
    )


MAX_NAMES = 8


def _shortened(names: Sequence[Any], separator: str) -> str:
    """The names, those beyond the first few counted."""
    more = len(names) - MAX_NAMES
    return separator.join(names[:MAX_NAMES]) + (f"{separator}{more} more" if more > 0 else "")
