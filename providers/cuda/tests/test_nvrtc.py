"""CUDA's compiler, which needs no GPU."""

import pytest
from ort_sdk_cuda.driver.compiler import CompileError

from ort_sdk.device import CUDA

TEXT = "KERNEL WORKGROUP(32, 1, 1) void twice(GLOBAL(f32) x) { x[LANE(0)] = 2.0f * x[LANE(0)]; }"


@pytest.fixture(scope="module")
def compiler():
    nvrtc = pytest.importorskip("ort_sdk_cuda.driver.nvrtc", reason="cuda-bindings is not installed", exc_type=ImportError)
    try:
        return nvrtc.NvrtcCompiler()
    except RuntimeError as error:
        pytest.skip(f"CUDA's compiler is not installed: {error}")


def test_code_for_each_architecture(compiler):
    images = {compiler.compile(CUDA.source(TEXT, {"HAS_F64": 1}), "twice", f"sm_{each}") for each in compiler.architectures}
    assert len(images) == len(compiler.architectures)
    assert all(image.startswith(b"\x7fELF") for image in images)
    assert {75, 80, 86, 89, 90, 100, 120} <= set(compiler.architectures)


def test_what_does_not_compile(compiler):
    with pytest.raises(CompileError, match=r'twice.cu\(\d+\): error: identifier "undeclared_name" is undefined'):
        compiler.compile(CUDA.source(TEXT.replace("2.0f", "undeclared_name"), {}), "twice", "sm_90")


def test_an_architecture_that_there_is_not(compiler):
    from ort_sdk_cuda.driver import CudaError

    with pytest.raises(CudaError, match="nvrtcCompileProgram answered NVRTC_ERROR_INVALID_OPTION"):
        compiler.compile("", "k", "sm_1")


def test_where_it_is(compiler):
    assert compiler.version.startswith("13.")
    assert "nvrtc" in compiler.library
