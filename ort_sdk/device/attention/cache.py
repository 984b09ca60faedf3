"""Key-value caches: new entries put behind each sequence's own, and past ones copied where they are elsewhere."""

from __future__ import annotations

from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import STORAGE
from ort_sdk.device.expressions.elementwise import is_wide
from ort_sdk.device.expressions.nodes import Strided, element_count
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.launches import Launch, filled_source
from ort_sdk.device.status import SEQUENCE_LENGTH

from .extras import CacheLengths, Defines, Rotation
from .texts import APPEND, GROW

__all__ = ["Caches", "append_to_caches", "grow_caches"]

Caches = tuple[Strided, Strided]
"""Keys and values, (batch, heads, rows, size), dense."""


def append_to_caches(
    context: DeviceContext,
    new: tuple[Strided, Strided],
    caches: Caches,
    lengths: CacheLengths,
    rows: int,
    rotation: Rotation | None,
) -> None:
    """Put new keys and values behind the past ones of each sequence; positions outside are reported when the run ends.

    Args:
        context: of the device.
        new: keys and values, (batch, heads, tokens, size) with a last axis of stride 1.
        caches: that get them.
        lengths: where each sequence's tokens go.
        rows: that may be used.
        rotation: of the keys.
    """
    kernel = _CacheKernel(context, new, caches, (), lengths, rows, rotation)
    context.submit(kernel.launch("cache_append", APPEND, element_count(new[0].shape)))


def grow_caches(
    context: DeviceContext,
    new: tuple[Strided, Strided],
    pasts: Caches | None,
    presents: Caches,
    lengths: CacheLengths,
    rows: int,
    rotation: Rotation | None,
) -> None:
    """The same to other caches than the past ones, whose rows are copied to the front; rows that nothing is in become zeros.

    The kernel sees whether past and present are the same memory, as in runs whose caller gave one for both: nothing is copied.

    Args:
        context: of the device.
        new: as for ``append_to_caches``.
        pasts: of as many rows at most; None for none.
        presents: that get all.
        lengths: where each sequence's tokens go.
        rows: that may be used.
        rotation: of the keys.
    """
    past = pasts if pasts is not None and pasts[0].shape[2] else ()
    kernel = _CacheKernel(context, new, presents, past, lengths, rows, rotation)
    context.submit(kernel.launch("cache_grow", GROW, element_count(presents[0].shape)))


class _CacheKernel:
    """What both kernels take. Arguments as for ``grow_caches``."""

    def __init__(
        self,
        context: DeviceContext,
        new: tuple[Strided, Strided],
        caches: Caches,
        pasts: Caches | tuple[()],
        lengths: CacheLengths,
        rows: int,
        rotation: Rotation | None,
    ) -> None:
        (k, v), (keys, values) = new, caches
        parameters = self._parameters = Parameters(wide=is_wide([k, v, keys, values]))
        parameters.share({id(each.held) for each in (*pasts, *caches)} if pasts else set())
        size = k.shape[3]
        self._lanes, self._span = context.device.lanes, size if context.device.is_cpu else 1
        self._defines: Defines = {"LANES": self._lanes, "D": size, "SPAN": self._span, "FAULT": f"{SEQUENCE_LENGTH}u"}
        self._defines |= lengths.defines(parameters)
        names = self._names = {
            "k": parameters.memory(k.held, k.element_type),
            "v": parameters.memory(v.held, v.element_type),
            "keys": parameters.memory(keys.held, keys.element_type, written=True),
            "values": parameters.memory(values.held, values.element_type, written=True),
            "T": STORAGE[keys.element_type],
            "KT": STORAGE[k.element_type],
            "VT": STORAGE[v.element_type],
            **dict.fromkeys(("cosines", "sines", "CT", "past_keys", "past_values", "past_rows"), ""),
        }
        if rotation is not None:
            more, rotated = rotation.defines(parameters)
            self._defines |= more
            names |= rotated
        if pasts:
            self._defines["PAST"] = 1
            names |= {"past_keys": parameters.memory(pasts[0].held, pasts[0].element_type)}
            names |= {"past_values": parameters.memory(pasts[1].held, pasts[1].element_type)}
            names |= {"past_rows": parameters.index(pasts[0].shape[2], folds=False)}
        numbers = {"length": k.shape[2], "key_heads": k.shape[1], "capacity": keys.shape[2], "rows": rows}
        for name, array in (("k", k), ("v", v)):
            own = zip("obhs", (array.offset, *array.strides[:3]), strict=True)
            numbers |= {f"{name}{letter}": number for letter, number in own}
        # a sequence's length is a number like another: those of 0 and 1 would make kernels of their own
        names |= {name: parameters.index(number, folds=name not in {"capacity", "rows"}) for name, number in numbers.items()}

    def launch(self, name: str, text: str, elements: int) -> Launch:
        """The launch of a kernel whose lanes do ``SPAN`` of so many elements each."""
        parameters, pieces = self._parameters, elements // self._span
        self._names["total"] = parameters.index(pieces, folds=False)
        if parameters.is_wide:
            self._defines["INDEX64"] = 1
        source = filled_source(name, text, {**self._names, "parameters": parameters.text}, self._defines)
        groups = (-(-pieces // self._lanes),)
        return Launch(source, groups, (self._lanes,), tuple(parameters.arguments), tuple(parameters.writes), reports=True)
