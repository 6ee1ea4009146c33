"""Leaders, followers, acks and dead brokers: on three brokers (docs/brokers.md 5, 9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.groups import GroupError, HeartbeatRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest, PartitionState
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import (
    bad_crc,
    commit,
    committed,
    fetch,
    fetch_request,
    find_coordinator,
    list_offsets,
    metadata,
    plain,
    produce,
    produce_request,
)
from tests.conformance.contract.wire.target import RealTarget, Target, has_config
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name

three = on_lines(brokers=3)


def eventually(check: Callable[[], bool], seconds: float = 30) -> bool:
    """Return whether `check()` becomes true: at once if embedded, real brokers need some time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def others(target: Target, node: int) -> list[int]:
    return [one for one in target.nodes() if one != node]


def serves_debuggers(wire: WireClient, topic: str) -> bool:
    return fetch(wire, topic, 0, replica_id=-2).values() == [(0, b"x")]


@three
def test_follower_responds_not_leader(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, replication_factor=3)
    leader = target.leader(topic, 0)
    with WireClient(target.address(leader)) as wire:
        assert produce(wire, topic, plain(b"x"), acks=-1).error_code == 0
    for node in others(target, leader):
        with WireClient(target.address(node)) as wire:
            assert produce(wire, topic, plain(b"x")) == (6, -1)
            assert fetch(wire, topic, 0) == (6, -1, b"")
            assert list_offsets(wire, topic, -1) == (6, [])
            # A debugging consumer may read there once the follower knows the high watermark.
            assert eventually(partial(serves_debuggers, wire, topic))


@on_lines(lambda line: line.data_needs_client_id, brokers=3)
def test_null_client_id_gets_no_response_after_a_wait(target: Target) -> None:
    """The messages are stored (brokers.md 3.10)."""
    topic = unique_name()
    target.create_topic(topic, replication_factor=3)
    request = produce_request(topic, plain(b"x"), acks=-1)
    named = b"".join(api.encode_request(request, 0, 7, "c"))[4:]
    nameless = named[:8] + b"\xff\xff" + named[11:]
    with WireClient(target.address(target.leader(topic, 0))) as wire:
        assert produce(wire, topic, plain(b"x")).error_code == 0
        wire.socket.sendall(len(nameless).to_bytes(4, "big") + nameless)
        assert wire.is_silent(0.5)
    with WireClient(target.address(target.leader(topic, 0))) as wire:
        assert eventually(lambda: len(fetch(wire, topic, 0).values()) == 2)


@on_lines(lambda line: line.waits_for_any_produce, brokers=3)
def test_only_produces_to_its_broker_wake_a_fetch(target: Target) -> None:
    """On 0.8.0 and 0.8.1 also one that fails wakes it (brokers.md 7.16)."""
    topic = unique_name()
    target.create_topic(topic, replication_factor=3)
    leader = target.leader(topic, 0)
    follower = target.address(others(target, leader)[0])
    with (
        WireClient(target.address(leader)) as to_leader,
        WireClient(follower) as waiting,
        WireClient(follower) as to_follower,
    ):
        waiting.send(fetch_request(topic, 0, max_wait_ms=20_000))
        assert waiting.is_silent(0.1)
        assert produce(to_leader, topic, plain(b"x"), acks=1).error_code == 0
        assert waiting.is_silent(0.1)
        assert produce(to_follower, topic, plain(b"x")) == (6, -1)
        assert len(waiting.read_frame()) > 4


@three
def test_broker_without_replica_responds_unknown_partition(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, replication_factor=1)
    for node in others(target, target.leader(topic, 0)):
        with WireClient(target.address(node)) as wire:
            assert produce(wire, topic, plain(b"x")) == (3, -1)
            assert fetch(wire, topic, 0) == (3, -1, b"")
            assert list_offsets(wire, topic, -1) == (3, [])


@three
@pytest.mark.parametrize("acks", [-2, -1, 1, 2, 3])
def test_acks_within_replicas(target: Target, acks: int) -> None:
    topic = unique_name()
    target.create_topic(topic, 2, replication_factor=3)
    with WireClient(target.address(target.leader(topic, 0))) as wire:
        produce(wire, topic, plain(b"before"))
        response = produce(wire, topic, plain(b"x", b"y", b"z"), acks=acks)
        if acks in (-1, 1) or target.line.acks_above_one:
            assert response == (0, 4 if acks != 1 and target.line.waited_offset_is_next else 1)
        else:
            assert response == (21, -1)


@three
def test_offsets_in_response_that_waited_for_replicas(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, 2, replication_factor=3)
    sets = [ProducePartition(0, plain(b"x", b"y")), ProducePartition(9, plain(b"z"))]
    with WireClient(target.address(target.leader(topic, 0))) as wire:
        [one] = wire.request(ProduceRequest(-1, 3000, [Topic(topic, sets)])).topics
        responses = {done.partition: (done.error_code, done.offset) for done in one.partitions}
        if target.line.waited_offset_is_next:
            assert responses == {0: (0, 2), 9: (3, 0)}
            assert produce(wire, topic, b"", acks=-1) == (0, 0)
        else:
            assert responses == {0: (0, 0), 9: (3, -1)}
            assert produce(wire, topic, b"", acks=-1) == (0, -1)
        assert produce(wire, topic, bad_crc(plain(b"x")), acks=-1) == (2, -1)


@on_lines(lambda line: line.acks_above_one, brokers=3)
def test_acks_above_replicas_time_out_but_store(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, replication_factor=3)
    with WireClient(target.address(target.leader(topic, 0))) as wire:
        produce(wire, topic, plain(b"x"), acks=-1)
        started = time.monotonic()
        assert produce(wire, topic, plain(b"y"), acks=5, timeout_ms=200).error_code == 7
        assert time.monotonic() - started >= 0.18
        # The message is readable once the followers have it.
        assert eventually(lambda: [at for at, _ in fetch(wire, topic, 0).values()] == [0, 1])


@on_lines(has_config("min.insync.replicas"), brokers=3)
def test_min_insync_replicas_before_the_append(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, 3, replication_factor=2, config={"min.insync.replicas": "3"})
    with WireClient(target.address(target.leader(topic, 0))) as wire:
        assert produce(wire, topic, plain(b"x"), acks=-1) == (19, -1)
        assert produce(wire, topic, plain(b"x"), acks=1) == (0, 0)
        if target.line.acks_above_one:  # else -2 is refused
            produced = produce(wire, topic, plain(b"y"), acks=-2, timeout_ms=5000)
            assert produced == (20, 1), "checked after the append only"
            assert [at for at, _ in fetch(wire, topic, 0).values()] == [0, 1]


@three
def test_all_brokers_return_same_metadata(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, 3, replication_factor=3)
    wanted = ([0, 1, 2], {number: target.leader(topic, number) for number in range(3)})

    def view(node: int) -> tuple[list[int], dict[int, int]]:
        with WireClient(target.address(node)) as wire:
            response = metadata(wire, [topic])
        leaders = {one.partition: one.leader for one in response.topics[0].partitions}
        return sorted(broker.node_id for broker in response.brokers), leaders

    assert eventually(lambda: [view(node) for node in target.nodes()] == [wanted] * 3)


@three
def test_brokers_listed_in_metadata(target: Target) -> None:
    """Before 0.8.2 only brokers with replicas of the topics in the response (brokers.md 4.11)."""
    # Partition p is on broker p.
    one, two, three = names = [unique_name(word) for word in ("one", "two", "three")]
    for number, name in enumerate(names):
        target.create_topic(name, number + 1)
    few = target.line.lists_only_replica_hosts
    every = [0, 1, 2]
    for node in target.nodes():
        with WireClient(target.address(node)) as wire:

            def brokers(*topics: str, wire: WireClient = wire) -> list[int]:
                return sorted(broker.node_id for broker in metadata(wire, topics).brokers)

            assert brokers() == every
            assert brokers(one) == ([0] if few else every)
            assert brokers(two) == ([0, 1] if few else every)
            assert brokers(one, three) == every
            assert brokers(unique_name("new")) == ([] if few else every)
            assert brokers(unique_name("new"), one) == ([0] if few else every)


@on_lines(lambda line: api.ApiKey.GROUP_COORDINATOR in line.apis, brokers=3)
def test_only_coordinator_accepts_commit_v1(target: Target) -> None:
    topic, group = unique_name(), unique_name("g")
    target.create_topic(topic)
    with WireClient(target.address(0)) as wire:
        found = find_coordinator(wire, group)
    assert (found.host, found.port) == target.address(found.node_id)
    with WireClient(target.address(found.node_id)) as wire:
        assert eventually(lambda: commit(wire, group, topic, 5, version=1) == 0)
        assert committed(wire, group, topic, version=1) == (5, "", 0)
    for node in others(target, found.node_id):
        with WireClient(target.address(node)) as wire:
            assert commit(wire, group, topic, 6, version=1) == 16
            assert committed(wire, group, topic, version=1) == (-1, "", 16)
            assert commit(wire, group, topic, 7, version=0) == 0


@on_lines(
    lambda line: not line.heartbeat_is_a_stub and api.ApiKey.HEARTBEAT in line.apis, brokers=3
)
def test_heartbeat_without_group_at_each_broker(target: Target) -> None:
    topic, group = unique_name(), unique_name("g")
    target.create_topic(topic)

    def code(node: int) -> int:
        with WireClient(target.address(node)) as wire:
            response: GroupError = wire.request(HeartbeatRequest(group, -1, ""))
            return response.error_code

    with WireClient(target.address(0)) as wire:
        coordinator = find_coordinator(wire, group).node_id
    assert eventually(lambda: code(coordinator) == 25)
    assert [code(node) for node in others(target, coordinator)] == [16, 16]


# --- dead brokers ---------------------------------------------------------------------------------


def kill(target: Target, node: int) -> None:
    """Kill a broker, and let the others notice it soon."""
    if isinstance(target, RealTarget):
        target.cluster.kill(node)
        target.cluster.expire(node)
    else:
        target.cluster.kill(node)  # type: ignore[attr-defined]


def restart(target: Target, node: int) -> None:
    target.cluster.restart(node)  # type: ignore[attr-defined]


@three
def test_dead_leader_is_replaced(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, replication_factor=3)
    old = target.leader(topic, 0)
    with WireClient(target.address(old)) as wire:
        assert produce(wire, topic, plain(b"kept"), acks=-1).error_code == 0
        kill(target, old)
        assert wire.is_closed()
    try:
        with WireClient(target.address(others(target, old)[0])) as wire:

            def state() -> PartitionState:
                return metadata(wire, [topic]).topics[0].partitions[0]

            assert eventually(lambda: state().leader not in (-1, old))
            assert eventually(lambda: old not in state().isr)
            stay = target.line.lists_dead_brokers
            assert eventually(lambda: len(metadata(wire, [topic]).brokers) == (3 if stay else 2))
            new = state()
            assert new.error_code == (
                0 if stay else 9
            )  # a replica is down, and left out of the list
            assert (old in new.replicas) == stay
            if target.line.name == "0.10":  # version 1 still lists it
                request = MetadataRequest([topic])
                [reported] = wire.request(request, 1).topics[0].partitions
                assert (reported.error_code, sorted(reported.replicas)) == (0, [0, 1, 2])
        with WireClient(target.address(new.leader)) as wire:
            # A new leader learns the other replicas' offsets with a delay.
            assert eventually(lambda: fetch(wire, topic, 0).values() == [(0, b"kept")])
            assert produce(wire, topic, plain(b"more")) == (0, 1)
    finally:
        restart(target, old)
    with WireClient(target.address(old)) as wire:
        assert eventually(  # after its start a broker knows of no partition at first
            lambda: [one.error_code for one in metadata(wire, [topic]).topics[0].partitions] == [0]
        )


@three
def test_partition_with_only_replica_dead(target: Target) -> None:
    topic = unique_name()
    target.create_topic(topic, replication_factor=1)
    alone = target.leader(topic, 0)
    kill(target, alone)
    try:
        with WireClient(target.address(others(target, alone)[0])) as wire:

            def state() -> PartitionState:
                return metadata(wire, [topic]).topics[0].partitions[0]

            assert eventually(lambda: state().leader == -1)
            replicas = [alone] if target.line.lists_dead_brokers else []
            assert eventually(lambda: state() == PartitionState(5, 0, -1, replicas, []))
            assert metadata(wire, [topic]).topics[0].error_code == 0
    finally:
        restart(target, alone)
    with WireClient(target.address(alone)) as wire:
        assert eventually(lambda: produce(wire, topic, plain(b"back")).error_code == 0)


@three
def test_auto_creation_with_too_few_brokers(target: Target) -> None:
    good = unique_name()
    target.create_topic(good, replication_factor=1)
    dead = others(target, target.leader(good, 0))[0]
    kill(target, dead)
    try:
        with WireClient(target.address(target.leader(good, 0))) as wire:
            stay = target.line.lists_dead_brokers
            assert stay or eventually(lambda: len(metadata(wire, [good]).brokers) == 2)
            for _ in range(2):
                cannot = unique_name("cannot")
                response = metadata(wire, [good, cannot])
                codes = {one.topic: one.error_code for one in response.topics}
                if target.line.failed_creation_fails_all:
                    assert response.brokers == []
                    assert codes == {good: -1, cannot: -1}
                else:
                    assert len(response.brokers) == 2
                    assert codes == {good: 0, cannot: target.line.failed_creation_code}
    finally:
        restart(target, dead)
