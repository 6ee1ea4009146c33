"""The dataclasses of `fields`, beside what `dataclass` makes of the same fields."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from aiokafka08 import AIOKafkaConsumer, ConsumerRecord
from aiokafka08.fields import ByFields, FrozenFields, Slotted

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class Decorated:
    kind: ClassVar[str] = "kind"
    a: int
    b: str = "x"
    c: list[int] = dataclasses.field(default_factory=list)
    d: int = dataclasses.field(default=7, compare=False)


@dataclasses.dataclass(slots=True)
class DecoratedChild(Decorated):
    b: str = "y"
    e: int = 0


class Shared(ByFields):
    kind: ClassVar[str] = "kind"
    a: int
    b: str = "x"
    c: list[int] = dataclasses.field(default_factory=list)
    d: int = dataclasses.field(default=7, compare=False)


class SharedChild(Shared):
    b: str = "y"
    e: int = 0


class Frozen(FrozenFields):
    a: int
    total: int = dataclasses.field(init=False)
    note: str = dataclasses.field(default="", kw_only=True, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.a + 1)


class Identical(Slotted):
    a: int


class Own(ByFields):
    a: int

    def __init__(self, text: str) -> None:
        self.a = int(text)


class Box(ByFields, Generic[T]):
    """A documented class."""

    item: T


PAIRS = [(Shared, Decorated), (SharedChild, DecoratedChild)]
ARGUMENTS: list[tuple[Any, ...]] = [
    *[(1,), (1, "x"), (1, "y"), (2,), (1, "x", [3]), (1, "x", [], 7), (1, "x", [], 8)],
]


@pytest.mark.parametrize(("shared", "decorated"), PAIRS)
def test_fields_are_compared_and_printed_as_by_dataclass(shared: Any, decorated: Any) -> None:
    for one in ARGUMENTS:
        for other in ARGUMENTS:
            assert (shared(*one) == shared(*other)) == (decorated(*one) == decorated(*other))
        assert repr(shared(*one)).replace("Shared", "Decorated") == repr(decorated(*one))
        assert dataclasses.asdict(shared(*one)) == dataclasses.asdict(decorated(*one))
    assert shared(1) != decorated(1)


@pytest.mark.parametrize(("shared", "decorated"), PAIRS)
def test_classes_are_described_as_by_dataclass(shared: Any, decorated: Any) -> None:
    assert inspect.signature(shared) == inspect.signature(decorated)
    assert shared.__slots__ == decorated.__slots__
    assert shared.__match_args__ == decorated.__match_args__
    ours, theirs = dataclasses.fields(shared), dataclasses.fields(decorated)
    assert [(one.name, one.type, one.default) for one in ours] == [
        (one.name, one.type, one.default) for one in theirs
    ]
    assert (shared.kind, shared(1).kind) == ("kind", "kind")
    assert not hasattr(shared(1), "__dict__")
    assert dataclasses.is_dataclass(shared)


@pytest.mark.parametrize(("shared", "decorated"), PAIRS)
def test_wrong_arguments_raise_what_dataclass_raises(shared: Any, decorated: Any) -> None:
    for arguments, named in [((), {}), ((1,), {"f": 1}), ((1, 2, 3, 4, 5, 6), {})]:
        with pytest.raises(TypeError) as ours:
            shared(*arguments, **named)
        with pytest.raises(TypeError) as theirs:
            decorated(*arguments, **named)
        assert str(ours.value).replace("Shared", "Decorated") == str(theirs.value)


def test_a_child_generates_its_constructor_after_its_parent() -> None:
    class Parent(ByFields):
        a: int

    class Child(Parent):
        b: int

    assert Parent(1).a == 1
    assert Child(1, 2) == Child(b=2, a=1)
    assert [field.name for field in dataclasses.fields(Parent)] == ["a"]


@pytest.mark.parametrize("value", [Shared(1, "z", [2]), Frozen(1, note="n"), Own("5"), Box("i")])
def test_copies_are_equal(value: Any) -> None:
    for same in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert same == value
        assert [getattr(same, one) for one in value.__slots__] == [
            getattr(value, one) for one in value.__slots__
        ]


def test_frozen_fields_are_set_once() -> None:
    value: Any = Frozen(1, note="n")
    assert (value.total, value.note) == (2, "n")
    for name in ("a", "total", "note"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(value, name, 5)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(value, name)
    changed = dataclasses.replace(value, a=5)
    assert (changed.a, changed.total, changed.note) == (5, 6, "n")
    assert value == Frozen(1)
    assert hash(value) == hash(Frozen(1))
    assert repr(value) == "Frozen(a=1)"


def test_slotted_values_equal_only_themselves() -> None:
    one = Identical(1)
    assert one == one
    assert one != Identical(1)
    assert len({one, Identical(1)}) == 2


def test_a_constructor_of_the_class_stays() -> None:
    assert Own("5").a == 5
    assert [field.name for field in dataclasses.fields(Own)] == ["a"]
    assert Own("5").a == 5


def test_a_class_without_docstring_is_documented_by_its_name() -> None:
    assert (Own.__doc__, Box.__doc__) == ("Own", "A documented class.")


def test_a_programs_subclass_is_no_dataclass_of_its_own() -> None:
    """As FastStream's `KafkaRawMessage`: annotations that aren't text, attributes set later."""

    metaclass: Any = type(ConsumerRecord)
    namespace = {"__module__": "program", "__annotations__": {"consumer": AIOKafkaConsumer}}
    message_type = metaclass("Message", (ConsumerRecord,), namespace)
    values: dict[str, Any] = dict.fromkeys(ConsumerRecord.__match_args__)
    message = message_type(**values)
    message.consumer = "c"
    assert (message.consumer, message.topic) == ("c", None)
    assert "consumer" not in repr(message)

    @dataclasses.dataclass
    class WithConsumer(ConsumerRecord[Any, Any]):
        consumer: Any = None

    assert WithConsumer(**values, consumer="c").consumer == "c"

    bare: Any = metaclass("Bare", (ConsumerRecord,), {})
    assert bare(**values).__replace__(topic="t").topic == "t"
