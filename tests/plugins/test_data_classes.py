"""The contract's data classes are the standard library's, as far as anyone can see."""

import copy
import dataclasses
import inspect
import pickle
import typing
from typing import Any, ClassVar

import pytest

from ort_sdk.api import KernelInfo, NodeArg, OrtDevice
from ort_sdk.api.data_classes import NamedTuple, dataclass, field


def declared(decorator: Any) -> Any:
    @decorator(frozen=True, slots=True)
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        labels: list[str] = field(default_factory=list, hash=False)
        note: str = field(default="", compare=False, repr=False)

    return Point


def mutable(decorator: Any) -> Any:
    @decorator(slots=True)
    class Counter:
        """A counter."""

        name: str
        count: int = 0

        def __post_init__(self) -> None:
            self.count += 1

    return Counter


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values."""

    first: int
    second: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """Compared by identity."""

    name: str


@dataclass(slots=True)
class Empty:
    """Nothing."""


OURS, STANDARD = declared(dataclass), declared(dataclasses.dataclass)


@pytest.mark.parametrize("cls", [OURS, STANDARD], ids=["ours", "standard"])
class TestFrozen:
    def test_fields_are_set_by_position_and_name(self, cls: Any) -> None:
        point = cls(1, labels=["a"])
        assert (point.x, point.y, point.labels, point.note, point.kind) == (1, 2, ["a"], "", "point")

    def test_a_default_value_is_made_in_each_call(self, cls: Any) -> None:
        assert cls(1).labels is not cls(1).labels

    @pytest.mark.parametrize("arguments", [(), (1, 2, [], "", 5)])
    def test_too_few_and_too_many_arguments(self, cls: Any, arguments: tuple[Any, ...]) -> None:
        with pytest.raises(TypeError):
            cls(*arguments)

    def test_unknown_argument(self, cls: Any) -> None:
        with pytest.raises(TypeError, match="z"):
            cls(1, z=3)

    def test_neither_fields_nor_others_can_be_set_or_deleted(self, cls: Any) -> None:
        point = cls(1)
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            point.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
            del point.x
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
            point.unknown = 2
        assert not hasattr(point, "__dict__")

    def test_equality_and_hash(self, cls: Any) -> None:
        assert cls(1) == cls(1, note="other")
        assert cls(1) != cls(2)
        assert cls(1) != (1, 2, [], "")
        assert hash(cls(1, labels=["a"])) == hash(cls(1))

    def test_repr(self, cls: Any) -> None:
        assert repr(cls(1)) == "declared.<locals>.Point(x=1, y=2, labels=[])"

    def test_what_the_standard_library_makes_of_it(self, cls: Any) -> None:
        point: Any = cls(1, note="n")
        assert dataclasses.is_dataclass(type(point))
        assert [each.name for each in dataclasses.fields(point)] == ["x", "y", "labels", "note"]
        assert dataclasses.asdict(point) == {"x": 1, "y": 2, "labels": [], "note": "n"}
        assert dataclasses.replace(point, x=5) == cls(5)
        assert copy.copy(point) == copy.deepcopy(point) == point
        assert list(inspect.signature(cls).parameters) == ["x", "y", "labels", "note"]

    def test_patterns(self, cls: Any) -> None:
        match cls(1, 3):
            case cls(x, y):
                assert (x, y) == (1, 3)

    def test_a_subclass_of_the_standard_library(self, cls: Any) -> None:
        @dataclasses.dataclass(frozen=True)
        class Named(cls):  # type: ignore[misc]
            name: str = "p"

        named = Named(1, name="q")
        assert dataclasses.asdict(named) == {"x": 1, "y": 2, "labels": [], "note": "", "name": "q"}
        assert named != Named(1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            named.x = 2


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass], ids=["ours", "standard"])
def test_mutable_classes_run_what_follows_and_are_not_hashed(decorator: Any) -> None:
    cls = mutable(decorator)
    counter = cls("a")
    counter.count += 1
    assert counter == cls("a", 1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_pickle() -> None:
    assert pickle.loads(pickle.dumps(Pair(1, [2]))) == Pair(1, [2])  # noqa: S301 - what we made


def test_identity() -> None:
    one = Named("a")
    assert one != Named("a")
    assert len({one, Named("a")}) == 2


def test_without_fields() -> None:
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"


def test_what_is_not_supported_is_refused() -> None:
    with pytest.raises(TypeError, match="without slots"):
        dataclass(frozen=True, slots=False)
    with pytest.raises(TypeError, match="inherits fields"):

        @dataclass(frozen=True, slots=True)
        class _More(Pair):
            third: int = 0


@pytest.mark.parametrize("cls", [KernelInfo, NodeArg, OrtDevice])
def test_the_contract_has_signatures(cls: Any) -> None:
    assert list(inspect.signature(cls).parameters) == [each.name for each in dataclasses.fields(cls)]


class Span(NamedTuple):
    """Elements of a row."""

    start: int
    stop: int = 9
    name: str = ""

    @property
    def size(self) -> int:
        """How many there are."""
        return self.stop - self.start


class StandardSpan(typing.NamedTuple):
    """Elements of a row."""

    start: int
    stop: int = 9
    name: str = ""

    @property
    def size(self) -> int:
        """How many there are."""
        return self.stop - self.start


class TestNamedTuples:
    def test_is_as_the_standard_library_makes_it(self) -> None:
        for name in ("_fields", "_field_defaults", "__doc__", "__slots__", "__match_args__", "__module__"):
            assert getattr(Span, name) == getattr(StandardSpan, name), name
        assert inspect.get_annotations(Span).keys() == inspect.get_annotations(StandardSpan).keys()
        assert repr(Span(1)) == repr(StandardSpan(1)).replace("StandardSpan", "Span")
        assert typing.get_type_hints(Span) == typing.get_type_hints(StandardSpan)

    def test_is_a_tuple(self) -> None:
        start, stop, _ = span = Span(2, name="a")
        assert (start, stop, span.size, span) == (2, 9, 7, (2, 9, "a"))
        assert span == StandardSpan(2, name="a")
        assert hash(span) == hash((2, 9, "a"))
        assert span._replace(stop=4) == (2, 4, "a")

    def test_is_pickled_and_copied(self) -> None:
        span = Span(1, 2)
        assert pickle.loads(pickle.dumps(span)) == copy.copy(span) == span  # noqa: S301 - of our own
        assert type(copy.deepcopy(span)) is Span

    @pytest.mark.parametrize("arguments", [(), (1, 2, "", 3)])
    def test_too_few_and_too_many_arguments(self, arguments: tuple[Any, ...]) -> None:
        with pytest.raises(TypeError):
            Span(*arguments)
