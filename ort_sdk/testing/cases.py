"""ONNX's own backend cases: models with inputs and the outputs they must give."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_sdk.api.data_classes import dataclass

from .generated_cases import generated_cases

__all__ = ["KINDS", "ModelCase", "load_cases"]

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")


@dataclass(frozen=True, slots=True, eq=False)
class ModelCase:
    """One model of ONNX's backend test suite."""

    name: str
    kind: str
    rtol: float
    atol: float
    source: Any
    """The suite's own record of the case, or that of one which was generated."""

    def model_bytes(self) -> bytes:
        """The serialized model."""
        if self.source.model is not None:
            return bytes(self.source.model)
        return self.model_path().read_bytes()

    def model_path(self) -> Path:
        """File of a case that is stored as one."""
        if self.source.model_dir is not None:
            return Path(self.source.model_dir) / "model.onnx"
        return _onnx_folder() / Path(self.source.url).relative_to("onnx")

    def feed_names(self) -> list[str]:
        """Names of the graph's inputs that have no initializer, in order."""
        return [value.name for value in _fed(_graph_of(self))]

    def op_types(self) -> list[str]:
        """Op types of the main graph's nodes, in order."""
        return [node.op_type for node in _graph_of(self).node]

    def data_sets(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """(inputs, expected outputs) of each run, in the order of the graph's inputs that have no initializer."""
        if self.source.data_sets:
            yield from ((_arrays(inputs), _arrays(outputs)) for inputs, outputs in self.source.data_sets)
        elif self.source.model_dir is not None:
            folders = sorted(Path(self.source.model_dir).glob("test_data_set*"))
            if not folders:
                raise FileNotFoundError(f"case {self.name} has no test_data_set folder in {self.source.model_dir}")
            yield from (self._stored(folder) for folder in folders)
        else:
            yield self._light()

    def _stored(self, folder: Path) -> tuple[list[Any], list[Any]]:
        import onnx

        graph = onnx.ModelProto.FromString(self.model_bytes()).graph
        return (
            [
                _read(folder / f"input_{index}.pb", value.type)
                for index, value in enumerate(_fed(graph))
                if _exists(folder, index)
            ],
            [_read(folder / f"output_{index}.pb", value.type) for index, value in enumerate(graph.output)],
        )

    def _light(self) -> tuple[list[Any], list[Any]]:
        """Light models: weights are made by ConstantOfShape, the input counts up from 0 to 1, the output is stored."""
        import onnx

        path = self.model_path()
        graph = onnx.ModelProto.FromString(path.read_bytes()).graph
        inputs: list[Any] = []
        for value in _fed(graph):
            shape = [dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim]
            elements = int(np.prod(shape))
            inputs.append((np.arange(elements).reshape(shape) / elements).astype(np.float32))
        outputs = [
            _read(path.with_name(f"{path.stem}_output_{index}.pb"), value.type) for index, value in enumerate(graph.output)
        ]
        return inputs, outputs


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Values of a data set: element types NumPy lacks come as TensorProto there."""
    from onnx import TensorProto, numpy_helper

    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in values]


def _graph_of(case: ModelCase) -> Any:
    import onnx

    return onnx.ModelProto.FromString(case.model_bytes()).graph


def _fed(graph: Any) -> list[Any]:
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def _exists(folder: Path, index: int) -> bool:
    return (folder / f"input_{index}.pb").exists()


def _onnx_folder() -> Path:
    specification = importlib.util.find_spec("onnx")
    if specification is None or specification.origin is None:
        raise ModuleNotFoundError("the onnx package, which carries the cases, is not installed: pip install onnx")
    return Path(specification.origin).parent


def _read(path: Path, value_type: Any) -> Any:
    import onnx
    from onnx import numpy_helper

    data = path.read_bytes()
    kind = value_type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


@functools.cache
def load_cases(kind: str) -> tuple[ModelCase, ...]:
    """Cases of one kind, sorted by name.

    Raises:
        FileNotFoundError: the installed onnx package carries no such cases; an empty corpus never passes.
    """
    from onnx.backend.test import loader

    found = generated_cases() if kind == "node" else loader.load_model_tests(kind=kind)
    cases = tuple(sorted((ModelCase(row.name, kind, row.rtol, row.atol, row) for row in found), key=lambda case: case.name))
    if not cases:
        raise FileNotFoundError(f"the installed onnx package carries no backend cases of kind '{kind}'")
    return cases
