"""A prepared model of ONNX's backend API."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.session.inference_session import InferenceSession
from ort_sdk.session.options.session_options import RunOptions

__all__ = ["OrtSdkBackendRep"]

RUN_OPTIONS = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")


class OrtSdkBackendRep:
    """A session that takes its inputs by position.

    Args:
        session: the session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """Run once.

        Args:
            inputs: a list or tuple with one value per input (trailing ones with defaults may be left out), or the value
                of the only input.
            **kwargs: properties of ``RunOptions`` that concern its log; unknown names are ignored.

        Raises:
            InvalidArgument: too many inputs, or a property that is not allowed here.
        """
        names = [argument.name for argument in self._session.get_inputs()]
        values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(values) > len(names):
            raise InvalidArgument(f"Model expect {len(names)} inputs ({names}), got {len(values)}")
        options = set_allowed(RunOptions(), kwargs, RUN_OPTIONS) if kwargs else None
        return self._session.run(None, dict(zip(names, values, strict=False)), options)


def set_allowed(options: Any, values: dict[str, Any], allowed: tuple[str, ...]) -> Any:
    """Set properties of an options object; unknown names are ignored, known ones that are not allowed refused.

    Raises:
        InvalidArgument: a property that is not allowed.
    """
    for name, value in values.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise InvalidArgument(
                f"{type(options).__name__} attribute '{name}' is not permitted via the backend API. "
                f"Allowed attributes: {', '.join(sorted(allowed))}"
            )
    return options
