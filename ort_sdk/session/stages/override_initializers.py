"""Initializers overridden by name, and free dimensions by size, in a model that was loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ort_sdk.api import InvalidArgument, NodeArg, Shape, Tensor
from ort_sdk.graph import Graph, Model
from ort_sdk.session.options.build_settings import ModelOverrides

__all__ = ["apply_overrides", "fix_defaults"]


def apply_overrides(model: Model, overrides: ModelOverrides) -> None:
    """Change a model in place.

    Raises:
        InvalidArgument: an initializer of another type or shape, or one symbol given two sizes.
    """
    if overrides.initializers:
        for graph in model.graph.walk():
            _replace_initializers(graph, overrides.initializers)
    sizes = dict(overrides.dimensions)
    if overrides.denotations:
        _sizes_by_denotation(model, overrides.denotations, sizes)
    if sizes:
        for graph in model.graph.walk():
            _fix_dimensions(graph, sizes)


def fix_defaults(graph: Graph) -> None:
    """Let inputs that have defaults be constants."""
    graph.inputs = [argument for argument in graph.inputs if argument.name not in graph.initializers]


def _replace_initializers(graph: Graph, given: Mapping[str, Tensor]) -> None:
    for name in graph.initializers.keys() & given.keys():
        old, new = graph.initializers[name], given[name]
        if old.element_type != new.element_type or tuple(old.shape) != tuple(new.shape):
            raise InvalidArgument(
                f"add_initializer('{name}'): the model's initializer is {old.element_type.onnx_name}{list(old.shape)}, "
                f"the value given is {new.element_type.onnx_name}{list(new.shape)}; they must be alike"
            )
        graph.initializers[name] = new


def _sizes_by_denotation(model: Model, denotations: Mapping[str, int], sizes: dict[str, int]) -> None:
    """Fix anonymous dimensions at once, and note the sizes of symbols, which other values may share."""
    graph = model.graph
    for position, argument in enumerate(graph.inputs):
        words = model.input_denotations.get(argument.name, ())
        shape = list(argument.shape or ())
        for axis, word in enumerate(words):
            size = denotations.get(word)
            symbol = shape[axis]
            if size is None or isinstance(symbol, int):
                continue
            if isinstance(symbol, str) and sizes.setdefault(symbol, size) != size:
                raise InvalidArgument(f"free dimension '{symbol}' of input '{argument.name}' is given {sizes[symbol]} and {size}")
            shape[axis] = size
        if words:
            graph.inputs[position] = replace(argument, shape=tuple(shape))
            graph.set_value(graph.inputs[position])


def _fix_dimensions(graph: Graph, sizes: Mapping[str, int]) -> None:
    graph.inputs = [_fixed(argument, sizes) for argument in graph.inputs]
    graph.outputs = [_fixed(argument, sizes) for argument in graph.outputs]
    graph.values = {name: _fixed(argument, sizes) for name, argument in graph.values.items()}


def _fixed(argument: NodeArg, sizes: Mapping[str, int]) -> NodeArg:
    if argument.shape is None or not any(isinstance(size, str) and size in sizes for size in argument.shape):
        return argument
    shape: Shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in argument.shape)
    return replace(argument, shape=shape)
