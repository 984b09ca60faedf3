"""Text of functions that numba translates: complete by itself, and nothing of it is left in numba."""

import ctypes
import gc

import pytest
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba()))


@pytest.fixture
def squared():
    from ort_sdk_cpu.jit.numba_frontend import inline

    @inline
    def squared(x):
        return x * x

    return squared


def doubled_square(squared):
    def function(x):
        return 2 * squared(x)

    return function


def test_text_is_complete(squared, tmp_path, monkeypatch):
    from ort_sdk_cpu.jit import cache_folder, code_store, llvm, numba_frontend

    monkeypatch.setattr(cache_folder, "kernel_folders", lambda: cache_folder.KernelFolders((tmp_path,), tmp_path))
    symbol, text = numba_frontend.translate(doubled_square(squared), "int64(int64)")
    address = code_store._Store().address(symbol, lambda: (symbol, llvm.emit_object(text)))
    result, place = ctypes.c_int64(), ctypes.create_string_buffer(8)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    assert call(ctypes.addressof(result), ctypes.addressof(place), 21) == 0
    assert result.value == 882


def test_numba_makes_machine_code_of_functions_that_call_the_same(squared):
    import numba
    from ort_sdk_cpu.jit.numba_frontend import translate

    translate(doubled_square(squared), "int64(int64)")
    assert numba.njit("int64(int64)")(doubled_square(squared))(21) == 882
    assert numba.njit(doubled_square(squared))(1.5) == 4.5


def test_a_function_that_cannot_be_translated_leaves_numba_as_it_was(squared):
    import numba
    from numba.core.errors import TypingError
    from ort_sdk_cpu.jit.numba_frontend import translate

    with pytest.raises(TypingError):
        translate(lambda x: x.nothing, "int64(int64)")
    assert gc.isenabled()
    assert numba.njit("int64(int64)")(doubled_square(squared))(3) == 18


def test_the_collector_waits(squared, monkeypatch):
    import numba
    from ort_sdk_cpu.jit.numba_frontend import translate

    njit, enabled = numba.njit, []
    monkeypatch.setattr(
        numba, "njit", lambda *arguments, **options: enabled.append(gc.isenabled()) or njit(*arguments, **options)
    )
    translate(doubled_square(squared), "int64(int64)")
    assert enabled
    assert not any(enabled)  # numba itself compiles what it loads when it is first used
    assert gc.isenabled()
