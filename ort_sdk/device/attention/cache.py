"""Key-value caches: past entries copied where they are elsewhere, new ones put behind each sequence's own."""

from __future__ import annotations

from string import Template

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.nodes import Constant, Strided, element_count
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import KernelSource, Launch
from ort_sdk.device.status import SEQUENCE_LENGTH

from .extras import CacheLengths, Defines, Rotation
from .texts import APPEND, COPY, ROTATION

__all__ = ["append_to_caches", "copy_cache"]

CHUNK = 64
"""Elements that a lane copies where lanes are threads of a processor."""


def copy_cache(context: DeviceContext, past: Strided | None, present: Strided) -> None:
    """Copy past entries to the front of a cache, whose other rows become zeros.

    A kernel sees whether both are the same memory, as in runs where the caller gave one for both, and does nothing then.

    Args:
        context: of the device.
        past: (batch, heads, rows, size), dense; None for no entries.
        present: (batch, heads, at least as many rows, size), dense.
    """
    if past is None or not past.shape[2]:
        context.write(Constant(0.0, present.shape, present.element_type), present)
        return
    parameters = Parameters(wide=is_wide([past, present]))
    parameters.share({id(past.held), id(present.held)})
    total, device = element_count(present.shape), context.device
    chunk = CHUNK if device.is_cpu else 1
    names = {
        "T": STORAGE[present.element_type],
        "past": parameters.memory(past.held, past.element_type),
        "y": parameters.memory(present.held, present.element_type, written=True),
        "total": parameters.index(total),
        "capacity": parameters.index(present.shape[2]),
        "past_rows": parameters.index(past.shape[2]),
    }
    defines: Defines = {"LANES": device.lanes, "CHUNK": chunk, "D": present.shape[3]}
    groups = -(-total // (chunk * device.lanes))
    context.submit(_launch("cache_copy", COPY, names, defines, parameters, groups, device.lanes, reports=False))


def append_to_caches(
    context: DeviceContext,
    new: tuple[Strided, Strided],
    caches: tuple[Strided, Strided],
    lengths: CacheLengths,
    rows: int,
    rotation: Rotation | None,
) -> None:
    """Put new keys and values behind the past ones of each sequence; positions outside are reported when the run ends.

    Args:
        context: of the device.
        new: keys and values, (batch, heads, tokens, size) with a last axis of stride 1.
        caches: of keys and values, (batch, heads, capacity, size), dense.
        lengths: where each sequence's tokens go.
        rows: that may be used.
        rotation: of the keys.
    """
    (k, v), (keys, values), lanes = new, caches, context.device.lanes
    parameters = Parameters(wide=is_wide([k, v, keys, values]))
    defines: Defines = {"LANES": lanes, "D": k.shape[3], "FAULT": f"{SEQUENCE_LENGTH}u", **lengths.defines(parameters)}
    names = {
        "k": parameters.memory(k.held, k.element_type),
        "v": parameters.memory(v.held, v.element_type),
        "keys": parameters.memory(keys.held, keys.element_type, written=True),
        "values": parameters.memory(values.held, values.element_type, written=True),
        "T": STORAGE[keys.element_type],
        "KT": STORAGE[k.element_type],
        "VT": STORAGE[v.element_type],
        **dict.fromkeys(("cosines", "sines", "CT"), ""),
    }
    if rotation is not None:
        more, rotated = rotation.defines(parameters)
        defines, names = defines | more, names | rotated
    total = element_count(k.shape)
    numbers = {"total": total, "length": k.shape[2], "key_heads": k.shape[1], "capacity": keys.shape[2], "rows": rows}
    for name, array in (("k", k), ("v", v)):
        own = zip("obhs", (array.offset, *array.strides[:3]), strict=True)
        numbers |= {f"{name}{letter}": number for letter, number in own}
    names |= {name: parameters.index(number) for name, number in numbers.items()}
    groups = -(-total // lanes)
    context.submit(_launch("cache_append", ROTATION + APPEND, names, defines, parameters, groups, lanes, reports=True))


def _launch(
    name: str,
    text: str,
    names: dict[str, str],
    defines: Defines,
    parameters: Parameters,
    groups: int,
    lanes: int,
    *,
    reports: bool,
) -> Launch:
    if parameters.is_wide:
        defines["INDEX64"] = 1
    source = KernelSource(name, Template(text).substitute(names, parameters=parameters.text), tuple(defines.items()))
    return Launch(source, (groups,), (lanes,), tuple(parameters.arguments), tuple(parameters.writes), reports=reports)
