"""A program's use of assignors: the same code with aiokafka's modules and with this package's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from aiokafka08.coordinator.assignors.sticky.partition_movements import PartitionMovements
from aiokafka08.structs import TopicPartition
from tests.coordinator.groups import cluster, counts, groups

Modules = Callable[[str], Any]

CLASSES = [
    ("range", "RangePartitionAssignor"),
    ("roundrobin", "RoundRobinPartitionAssignor"),
    ("sticky.sticky_assignor", "StickyPartitionAssignor"),
]


@pytest.fixture(params=["aiokafka", "aiokafka08"])
def modules(request: pytest.FixtureRequest) -> Modules:
    return lambda name: importlib.import_module(f"{request.param}.coordinator.{name}")


@pytest.fixture
def sticky(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The sticky assignor's class; what is set on it is undone."""
    found = modules("assignors.sticky.sticky_assignor").StickyPartitionAssignor
    monkeypatch.setattr(found, "member_assignment", None)
    monkeypatch.setattr(found, "generation", -1)
    return found


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_class_has_name_and_version_of_aiokafka(module: str, name: str) -> None:
    def constants(package: str) -> tuple[str, int]:
        found = importlib.import_module(f"{package}.coordinator.assignors.{module}")
        return getattr(found, name).name, getattr(found, name).version

    assert constants("aiokafka08") == constants("aiokafka")


@pytest.mark.parametrize(("module", "name"), CLASSES[:2])
@given(partitions=counts, group=groups)
def test_call_by_class_returns_what_aiokafka_returns(
    module: str, name: str, partitions: dict[str, int], group: dict[str, set[str]]
) -> None:
    def assigned(package: str) -> dict[str, tuple[bytes, set[Any]]]:
        found = importlib.import_module(f"{package}.coordinator.assignors.{module}")
        assignor = getattr(found, name)
        members = {member: assignor.metadata(sorted(topics)) for member, topics in group.items()}
        assignments = assignor.assign(cluster(partitions), members)
        for assignment in assignments.values():
            assignor.on_assignment(assignment)
        return {one: (members[one].encode(), set(assignments[one].partitions())) for one in members}

    assert assigned("aiokafka08") == assigned("aiokafka")


def test_super_in_class_method_calls_the_assignor(modules: Modules) -> None:
    base: Any = modules("assignors.roundrobin").RoundRobinPartitionAssignor

    class FirstOnly(base):
        """Gives everything to the first member, and remembers that on the class."""

        name = "first-only"
        calls = 0

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> Any:
            cls.calls += 1
            first = min(members)
            rest = dict.fromkeys(members, modules("protocol").ConsumerProtocolMemberAssignment)
            return {
                **{member: kind(cls.version, [], b"") for member, kind in rest.items()},
                **super().assign(cluster, {first: members[first]}),
            }

    members = {name: FirstOnly.metadata(["a"]) for name in ("m1", "m2")}
    by_class = FirstOnly.assign(cluster({"a": 2}), members)
    by_instance = FirstOnly().assign(cluster({"a": 2}), members)
    assert by_class == by_instance
    assert by_class["m1"].partitions() == [("a", 0), ("a", 1)]
    assert by_class["m2"].partitions() == []
    assert FirstOnly.calls == 2


def test_sticky_class_keeps_state_on_the_class(modules: Modules, sticky: Any) -> None:
    assert sticky.metadata(["a"]).user_data == b""
    assignment = modules("protocol").ConsumerProtocolMemberAssignment(0, [("a", [0, 2])], b"")
    sticky.on_assignment(assignment)
    sticky.on_generation_assignment(7)
    assert (sticky.member_assignment, sticky.generation) == ([("a", 0), ("a", 2)], 7)
    user_data = bytes.fromhex("00000001 0001 61 00000002 00000000 00000002 00000007")
    assert sticky.metadata(["a"]).user_data == user_data


def test_super_of_sticky_in_class_method_is_the_class(modules: Modules, sticky: Any) -> None:
    class Counting(sticky):
        joins = 0

        @classmethod
        def metadata(cls, topics: Any) -> Any:
            cls.joins += 1
            return super().metadata(topics)

        @classmethod
        def on_assignment(cls, assignment: Any) -> None:
            super().on_assignment(assignment)

    Counting().on_assignment(
        modules("protocol").ConsumerProtocolMemberAssignment(0, [("a", [1])], b"")
    )
    assert Counting.member_assignment == [("a", 1)]
    assert Counting().metadata(["a"]).user_data == Counting.metadata(["a"]).user_data != b""
    assert Counting.joins == 2


def test_sticky_with_overriding_class_method_stays_sticky(modules: Modules, sticky: Any) -> None:
    class Logging(sticky):
        @classmethod
        def on_assignment(cls, assignment: Any) -> None:
            super().on_assignment(assignment)

    assignor = Logging()
    assignor.on_assignment(
        modules("protocol").ConsumerProtocolMemberAssignment(0, [("a", [1])], b"")
    )
    assignor.on_generation_assignment(7)
    user_data = bytes.fromhex("00000001 0001 61 00000001 00000001 00000007")
    assert assignor.metadata(["a"]).user_data == user_data


def test_sticky_returns_partitions_of_older_generation(modules: Modules, sticky: Any) -> None:
    """A member that was alone for a generation returns what the others had before."""
    there = cluster({"a": 6})

    def members(owned: dict[str, tuple[Any, int]]) -> dict[str, Any]:
        return {
            name: sticky._metadata(["a"], one and one.partitions(), generation)
            for name, (one, generation) in owned.items()
        }

    before = sticky.assign(there, members(dict.fromkeys(("m1", "m2", "m3"), (None, -1))))
    alone = sticky.assign(there, members({"m2": (before["m2"], 1)}))
    assert len(alone["m2"].partitions()) == 6
    after = sticky.assign(
        there, members({"m1": (before["m1"], 1), "m2": (alone["m2"], 2), "m3": (before["m3"], 1)})
    )
    assert after == before


def exchanged(before: dict[str, Any], after: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return (topic, member, member) where two members gave each other a partition of a topic."""
    owner = {tp: name for name, one in before.items() for tp in one.partitions()}
    moves = {
        (tp.topic, owner.get(tp, name), name)
        for name, one in after.items()
        for tp in one.partitions()
    }
    return {
        (topic, old, new) for topic, old, new in moves if old != new and (topic, new, old) in moves
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(partitions=counts, before=groups, after=groups)
def test_sticky_is_balanced_and_exchanges_nothing(
    modules: Modules,
    sticky: Any,
    partitions: dict[str, int],
    before: dict[str, set[str]],
    after: dict[str, set[str]],
) -> None:
    """With any subscriptions, which may change between two rebalances."""
    first = sticky.assign(
        cluster(partitions),
        {name: sticky.metadata(sorted(topics)) for name, topics in before.items()},
    )
    nothing = modules("protocol").ConsumerProtocolMemberAssignment(0, [], b"")
    second = sticky.assign(
        cluster(partitions),
        {
            name: sticky._metadata(sorted(topics), first.get(name, nothing).partitions(), 1)
            for name, topics in after.items()
        },
    )
    assert not exchanged(first, second)
    for name, assignment in second.items():
        for topic in {one.topic for one in assignment.partitions()}:
            assert topic in after[name]
            for other, topics in after.items():
                if topic in topics:
                    more = len(assignment.partitions()) - len(second[other].partitions())
                    assert more < 2, (topic, name, other)


@pytest.mark.parametrize(
    ("moves", "sticky"),
    [
        ([], True),
        ([(1, "C1", "C2"), (1, "C2", "C3"), (1, "C3", "C1")], True),
        ([(1, "C1", "C2"), (2, "C2", "C1")], False),
        ([(1, "C1", "C2"), (2, "C2", "C3"), (2, "C3", "C2")], True),
    ],
)
def test_movements_are_sticky_without_exchanges(
    moves: list[tuple[int, str, str]], sticky: bool
) -> None:
    movements = PartitionMovements()
    for number, old, new in moves:
        movements.move_partition(TopicPartition("t", number), old, new)
    assert (movements.exchanges() == []) == sticky
