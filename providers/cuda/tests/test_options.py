"""The provider's options, by ONNX Runtime's names."""

import pytest
from cuda_models import model, session_of
from onnx import helper
from ort_sdk_cuda.options import OPTIONS, ProviderOptions, parsed_options

from ort_sdk.api import InvalidArgument


def test_defaults():
    assert parsed_options({}, 1) == ProviderOptions(1, 0, True, 0)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("True", True), ("0", False), ("False", False)])
def test_truth(text, value):
    assert parsed_options({"enable_cuda_graph": text}, 0).uses_graphs is value


def test_numbers():
    options = parsed_options({"device_id": "0", "gpu_mem_limit": "1024", "user_compute_stream": "94004"}, 0)
    assert options == ProviderOptions(0, 1024, True, 94004)


@pytest.mark.parametrize(
    ("name", "text"), [("gpu_mem_limit", "2G"), ("user_compute_stream", "-1"), ("enable_cuda_graph", "maybe")]
)
def test_values_that_are_none(name, text):
    with pytest.raises(InvalidArgument, match=rf"{name} must be .*, got '{text}'"):
        parsed_options({name: text}, 0)


def test_an_unknown_option_is_an_error_that_lists_all(cuda):
    with pytest.raises(InvalidArgument, match="has no option 'arena'") as raised:
        session_of(model([helper.make_node("Neg", ["x"], ["y"])]), {"arena": "1"})
    assert all(name in str(raised.value) for name in OPTIONS)
