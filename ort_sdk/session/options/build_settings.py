"""What the stages need of a session's options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ort_sdk.api import Tensor
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.memory import PrepackedWeightsContainer, PrepackSink

__all__ = ["BuildSettings", "ModelOverrides"]


@dataclass(frozen=True, slots=True)
class ModelOverrides:
    """Changes to a loaded model."""

    initializers: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → value to use instead of the initializer; names the model does not have are ignored."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    """Symbolic dimension → size."""
    denotations: Mapping[str, int] = field(default_factory=dict)
    """Denotation of a free dimension of an input → size."""


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the stages need of the session's options."""

    config: Mapping[str, str]
    """Config entries, ``session.…`` and ``optimization.…``."""
    optimization_level: int
    """0 to 3: the highest optimizer level applied."""
    disabled_optimizers: frozenset[str] = frozenset()
    external_data_folder: Path | None = None
    external_files: Mapping[str, Any] = field(default_factory=dict)
    """External data location → buffer to use instead of the file."""
    external_initializers: Mapping[str, Tensor] = field(default_factory=dict)
    """Name → value to use instead of an external initializer."""
    overrides: ModelOverrides = field(default_factory=ModelOverrides)
    prepacked_weights: PrepackedWeightsContainer | None = None
    """Keeps packed weights beyond the session."""
    keeps_packed_weights: bool = True
    """Whether packed weights go into that container, or into the folder that the config names."""
    prepack_sink: PrepackSink | None = None
    """Saves packed weights with the optimized model."""
    fixes_defaults: bool = False
    """Whether initializers that are inputs, too, are constants, which no run may feed."""
    shows_loaded_model: bool = True
    """Whether the observer is to see the nodes of the model as it was loaded. Without, what is sure to be fused is fused before
    types and shapes are inferred, of which the observer sees those of inputs and outputs."""
