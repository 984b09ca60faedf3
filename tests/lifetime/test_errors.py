"""An error that is kept holds no feed, and nothing of the session but the functions in which it was raised."""

import gc
import traceback
import weakref

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import OrtSdkError
from ort_sdk.run.program.program import Program
from tests.lifetime.sessions import RUNS, opened, perceptron, picked_rows

OUT_OF_RANGE = np.array([99])


@pytest.fixture(autouse=True)
def _no_collector():
    gc.disable()
    yield
    gc.enable()


class Fed(np.ndarray):
    """An array whose end can be seen."""


def fed(rows=8):
    return np.ones((rows, 64), np.float32).view(Fed)


def rows(x, index=OUT_OF_RANGE):
    return {"x": np.asarray(x), "index": index}


def gone(*values):
    """Whether values are free, as soon as the caller lets go of them."""
    references = [weakref.ref(value) for value in values]
    return lambda: all(reference() is None for reference in references)


# Each catches its error itself: the variables of a function that did it would be in the traceback, too.


@pytest.mark.parametrize("runs", [0, 1, RUNS], ids=["first run", "recording", "program"])
def test_feeds_and_session_are_free(runs):
    session, x, kept = opened(picked_rows()), fed(), None
    for _ in range(runs):
        session.run(None, rows(x, np.array([3])))
    are_gone = gone(x, session, session._runs)
    try:
        session.run(None, {"x": x, "index": OUT_OF_RANGE})
    except OrtSdkError as error:
        kept = error
    del x, session
    assert are_gone()
    assert "Gather" in str(kept)


def test_where_it_was_raised_is_still_in_the_traceback():
    with pytest.raises(OrtSdkError) as raised:
        opened(picked_rows()).run(None, rows(fed()))
    text = "".join(traceback.format_exception(raised.value))
    assert "Gather" in text
    assert "in run" in text
    assert "IndexError" in text or "InvalidArgument" in text


def test_an_error_that_the_caller_handles_keeps_its_variables():
    session, kept = opened(picked_rows()), None

    def handling():
        mine = "the caller's"
        try:
            raise ZeroDivisionError(mine)
        except ZeroDivisionError:
            session.run(None, rows(fed()))

    try:
        handling()
    except OrtSdkError as error:
        kept = error
    while not isinstance(kept, ZeroDivisionError):
        kept = kept.__cause__ or kept.__context__
    assert kept.__traceback__.tb_frame.f_locals["mine"] == "the caller's"


def test_an_error_of_a_bound_run():
    session, kept = opened(perceptron(width=64)), None
    binding, x = session.io_binding(), ort_sdk.OrtValue.ortvalue_from_numpy(np.ones((8, 63), np.float32))
    binding.bind_ortvalue_input("x0", x)
    binding.bind_output("x2")
    are_gone = gone(x, session, binding)
    try:
        session.run_with_iobinding(binding)
    except OrtSdkError as error:
        kept = error
    del x, session, binding
    assert are_gone()
    assert "Error in execution" in str(kept)


def test_an_error_of_ort_values():
    session, kept = opened(picked_rows()), None
    x = ort_sdk.OrtValue.ortvalue_from_numpy(np.ones((8, 64), np.float32))
    index = ort_sdk.OrtValue.ortvalue_from_numpy(OUT_OF_RANGE)
    are_gone = gone(x, session)
    try:
        session.run_with_ort_values(None, {"x": x, "index": index})
    except OrtSdkError as error:
        kept = error
    del x, session
    assert are_gone()
    assert "Gather" in str(kept)


def test_an_error_of_a_session_that_was_not_made():
    content, kept = np.ones(100, np.uint8).view(Fed), None
    are_gone = gone(content)
    try:
        ort_sdk.InferenceSession(perceptron()[:-100], external_files={"weights": content})
    except OrtSdkError as error:
        kept = error
    del content
    assert are_gone()
    assert str(kept)


def _programs():
    return [each for each in gc.get_objects() if isinstance(each, Program)]


def test_an_error_keeps_no_weights_of_a_session_that_is_gone():
    others = {id(program): program for program in _programs()}  # of tests before, held so that none has an id anew
    session, kept = opened(picked_rows()), None
    for _ in range(RUNS):
        session.run(None, rows(fed(), np.array([3])))
    try:
        session.run(None, rows(fed()))
    except OrtSdkError as error:
        kept = error
    functions = [program._code.function for program in _programs() if id(program) not in others]
    assert any(function.__defaults__ for function in functions)
    del session
    assert not any(function.__defaults__ for function in functions)
    assert str(kept)
