"""Attributes with very many elements behave as the lists that they are, whoever looks at them first."""

import copy
import json
import operator
import pickle
import threading

import numpy as np
import pytest

from ort_sdk.api.long_lists import CodedList, LongList, NumberList, array_of

INTS = [5, -7, 2**62, 0, 5]
FLOATS = [0.5, -0.0, float("inf"), 3.25]
TEXTS = ["LEAF", "", "BRANCH_LEQ", "LEAF", "é"]


def ints():
    return NumberList(np.array(INTS, np.int64)), INTS


def floats():
    return NumberList(np.array(FLOATS, np.float32)), FLOATS


def texts():
    return CodedList(["LEAF", "", "BRANCH_LEQ", "é"], np.array([0, 1, 2, 0, 3], np.uint8)), TEXTS


KINDS = [ints, floats, texts]
LOOKS = {
    "list": list,
    "tuple": tuple,
    "iteration": lambda given: [each for each in given],  # noqa: C416 - what is tested
    "unpacking": lambda given: [*given, 1],
    "length": len,
    "truth": bool,
    "first": lambda given: (given[0], type(given[0])),
    "last": lambda given: given[-1],
    "NumPy's index": lambda given: given[np.int64(1)],
    "slice": lambda given: given[1:3],
    "reversed": lambda given: list(reversed(given)),
    "in": lambda given: (given[2] in given, object() in given),
    "index": lambda given: given.index(given[2]),
    "count": lambda given: given.count(given[0]),
    "equal": lambda given: (given == list(given), operator.eq(list(given), given), operator.ne([1], given)),
    "equal at once": lambda given: ([object()] == given, given == (), given == []),
    "order": lambda given: (given <= [*given, given[0]], [given[0]] < given),
    "sum": lambda given: operator.add(given, [given[0]]),
    "sum from the right": lambda given: operator.add([None], given),
    "doubled": lambda given: (given * 2, 2 * given),
    "added to": lambda given: operator.iadd([None], given),
    "text": repr,
    "str": str,
    "JSON": json.dumps,
    "pickle": lambda given: pickle.loads(pickle.dumps(given)),  # noqa: S301 - its own
    "copy": lambda given: (copy.copy(given), given.copy()),
    "deep copy": copy.deepcopy,
    "sorted": sorted,
    "largest": max,
    "zip": lambda given: list(zip(given, given, strict=True)),
    "arguments": lambda given: max(*given, *given),
    "array": lambda given: (np.asarray(given).tolist(), np.asarray(given).dtype),
    "other array": lambda given: np.array(given, object).tolist(),
    "set": set,
    "is a list": lambda given: isinstance(given, list),
}


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_is_as_a_list(make, look):
    given, expected = make()
    found = look(given)
    assert found == look(expected)
    assert look(given) == found
    assert list(given) == expected
    assert look(given) == found


@pytest.mark.parametrize("make", KINDS)
def test_two_that_are_alike(make):
    assert make()[0] == make()[0]
    assert make()[0] + make()[0] == make()[1] * 2
    assert operator.ne(make()[0], make()[0]) is False
    assert make()[0] != texts()[0][:2]


@pytest.mark.parametrize("make", KINDS)
def test_errors_are_those_of_a_list(make):
    given, expected = make()
    for index, error in ((len(expected), IndexError), (-len(expected) - 1, IndexError), ("a", TypeError), (1.5, TypeError)):
        with pytest.raises(error):
            given[index]
    with pytest.raises(TypeError):
        given + 1
    with pytest.raises(TypeError):
        1 + given
    with pytest.raises(TypeError):
        hash(given)
    with pytest.raises(ValueError, match=r"not in list|is not in"):
        given.index(object())


@pytest.mark.parametrize("make", KINDS)
def test_changes(make):
    for change in (
        lambda given: given.append(1),
        lambda given: given.extend([1, 2]),
        lambda given: given.__setitem__(0, None),
        lambda given: given.__delitem__(slice(1, 3)),
        lambda given: given.pop(),
        lambda given: given.reverse(),
        lambda given: given.insert(1, 9),
        lambda given: given.__iadd__([3]),
        lambda given: given.clear(),
    ):
        given, expected = make()
        expected = list(expected)
        change(given)
        change(expected)
        assert given == expected
        assert np.asarray(given).tolist() == np.asarray(expected).tolist()


def test_one_element_and_the_length_make_no_others():
    for make in KINDS:
        given, expected = make()
        assert len(given) == len(expected)
        assert given[1] == expected[1]
        assert list.__len__(given) == 0
        given.read()
        assert list.__len__(given) == len(expected)


def test_arrays():
    numbers, _ = ints()
    assert array_of(numbers) is numbers.array
    assert not numbers.array.flags.writeable
    mine = np.asarray(numbers)
    mine[0] = 1
    assert numbers[0] == INTS[0]
    assert np.asarray(numbers, np.float32).dtype == np.float32
    assert np.asarray(floats()[0]).dtype == np.float64  # as of Python's floats
    assert array_of(floats()[0]).dtype == np.float32


def test_many_threads_that_look_first():
    for _ in range(50):
        given = NumberList(np.arange(20_000))
        start, found = threading.Barrier(4), []

        def look(given=given, start=start, found=found):
            start.wait()
            found.append(sum(given))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [19_999 * 10_000] * 4
        assert type(given) is NumberList
        assert isinstance(given, LongList)
