"""Leaders, followers, acks and failures of three brokers, embedded and real (brokers.md 5, 9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.api import Topic
from tests.testing.frames import (
    bad_crc,
    commit,
    committed,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    plain,
    produce,
)
from tests.testing.peer import Peer
from tests.testing.targets import RealTarget, Target, has_config, new_name, only


def eventually(check: Callable[[], bool], seconds: float = 30) -> bool:
    """The embedded cluster is there at once, real brokers take their time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def others(trio: Target, node: int) -> list[int]:
    return [one for one in trio.nodes() if one != node]


def serves_debuggers(peer: Peer, topic: str) -> bool:
    return fetch(peer, topic, 0, replica_id=-2).values() == [(0, b"x")]


def test_followers_answer_6(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, replication_factor=3)
    leader = trio.leader(topic, 0)
    with Peer(trio.address(leader)) as peer:
        assert produce(peer, topic, plain(b"x"), acks=-1).error_code == 0
    for node in others(trio, leader):
        with Peer(trio.address(node)) as peer:
            assert produce(peer, topic, plain(b"x")) == (6, -1)
            assert fetch(peer, topic, 0) == (6, -1, b"")
            assert list_offsets(peer, topic, -1) == (6, [])
            # Consumers for debugging may read there, once it has heard of the high watermark.
            assert eventually(partial(serves_debuggers, peer, topic))


def test_brokers_without_a_replica_answer_3(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, replication_factor=1)
    for node in others(trio, trio.leader(topic, 0)):
        with Peer(trio.address(node)) as peer:
            assert produce(peer, topic, plain(b"x")) == (3, -1)
            assert fetch(peer, topic, 0) == (3, -1, b"")
            assert list_offsets(peer, topic, -1) == (3, [])


@pytest.mark.parametrize("acks", [-2, -1, 1, 2, 3])
def test_acks_that_come(trio: Target, acks: int) -> None:
    topic = new_name()
    trio.create_topic(topic, 2, replication_factor=3)
    with Peer(trio.address(trio.leader(topic, 0))) as peer:
        produce(peer, topic, plain(b"before"))
        answer = produce(peer, topic, plain(b"x", b"y", b"z"), acks=acks)
        if acks in (-1, 1) or trio.line.acks_above_one:
            assert answer == (0, 4 if acks != 1 and trio.line.waited_offset_is_next else 1)
        else:
            assert answer == (21, -1)


def test_answers_that_waited_and_those_beside_them(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, 2, replication_factor=3)
    sets = [api.ProducePartition(0, plain(b"x", b"y")), api.ProducePartition(9, plain(b"z"))]
    with Peer(trio.address(trio.leader(topic, 0))) as peer:
        [one] = peer.ask(api.ProduceRequest(-1, 3000, [Topic(topic, sets)])).topics
        answers = {done.partition: (done.error_code, done.offset) for done in one.partitions}
        if trio.line.waited_offset_is_next:
            assert answers == {0: (0, 2), 9: (3, 0)}
            assert produce(peer, topic, b"", acks=-1) == (0, 0)
        else:
            assert answers == {0: (0, 0), 9: (3, -1)}
            assert produce(peer, topic, b"", acks=-1) == (0, -1)
        assert produce(peer, topic, bad_crc(plain(b"x")), acks=-1) == (2, -1)


@only(lambda line: line.acks_above_one)
def test_more_acks_than_replicas_time_out_but_are_stored(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, replication_factor=3)
    with Peer(trio.address(trio.leader(topic, 0))) as peer:
        produce(peer, topic, plain(b"x"), acks=-1)
        started = time.monotonic()
        assert produce(peer, topic, plain(b"y"), acks=5, timeout_ms=200).error_code == 7
        assert time.monotonic() - started >= 0.18
        # Readable once the followers have it.
        assert eventually(lambda: [at for at, _ in fetch(peer, topic, 0).values()] == [0, 1])


@only(has_config("min.insync.replicas"))
def test_min_insync_replicas_before_the_append(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, 3, replication_factor=2, config={"min.insync.replicas": "3"})
    with Peer(trio.address(trio.leader(topic, 0))) as peer:
        assert produce(peer, topic, plain(b"x"), acks=-1) == (19, -1)
        assert produce(peer, topic, plain(b"x"), acks=1) == (0, 0)


def test_all_brokers_tell_the_same(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, 3, replication_factor=3)
    wanted = ([0, 1, 2], {number: trio.leader(topic, number) for number in range(3)})

    def view(node: int) -> tuple[list[int], dict[int, int]]:
        with Peer(trio.address(node)) as peer:
            answer = metadata(peer, [topic])
        leaders = {one.partition: one.leader for one in answer.topics[0].partitions}
        return sorted(broker.node_id for broker in answer.brokers), leaders

    assert eventually(lambda: [view(node) for node in trio.nodes()] == [wanted] * 3)


def test_which_brokers_an_answer_names(trio: Target) -> None:
    """Before 0.8.2 only those that have something of the topics in it (brokers.md 4.11)."""
    # Partition p is on broker p.
    one, two, three = names = [new_name(word) for word in ("one", "two", "three")]
    for number, name in enumerate(names):
        trio.create_topic(name, number + 1)
    few = trio.line.only_hosts_named
    every = [0, 1, 2]
    for node in trio.nodes():
        with Peer(trio.address(node)) as peer:

            def brokers(*topics: str, peer: Peer = peer) -> list[int]:
                return sorted(broker.node_id for broker in metadata(peer, topics).brokers)

            assert brokers() == every
            assert brokers(one) == ([0] if few else every)
            assert brokers(two) == ([0, 1] if few else every)
            assert brokers(one, three) == every
            assert brokers(new_name("new")) == ([] if few else every)
            assert brokers(new_name("new"), one) == ([0] if few else every)


@only(lambda line: api.ApiKey.GROUP_COORDINATOR in line.apis)
def test_only_the_coordinator_takes_commits_of_version_1(trio: Target) -> None:
    topic, group = new_name(), new_name("g")
    trio.create_topic(topic)
    with Peer(trio.address(0)) as peer:
        found = find_coordinator(peer, group)
    assert (found.host, found.port) == trio.address(found.node_id)
    with Peer(trio.address(found.node_id)) as peer:
        assert eventually(lambda: commit(peer, group, topic, 5, version=1) == 0)
        assert committed(peer, group, topic, version=1) == (5, "", 0)
    for node in others(trio, found.node_id):
        with Peer(trio.address(node)) as peer:
            assert commit(peer, group, topic, 6, version=1) == 16
            assert committed(peer, group, topic, version=1) == (-1, "", 16)
            assert commit(peer, group, topic, 7, version=0) == 0


@only(lambda line: not line.heartbeat_is_a_stub and api.ApiKey.HEARTBEAT in line.apis)
def test_heartbeats_without_a_group_at_the_coordinator_and_elsewhere(trio: Target) -> None:
    topic, group = new_name(), new_name("g")
    trio.create_topic(topic)

    def code(node: int) -> int:
        with Peer(trio.address(node)) as peer:
            answer: api.GroupError = peer.ask(api.HeartbeatRequest(group, -1, ""))
            return answer.error_code

    with Peer(trio.address(0)) as peer:
        coordinator = find_coordinator(peer, group).node_id
    assert eventually(lambda: code(coordinator) == 25)
    assert [code(node) for node in others(trio, coordinator)] == [16, 16]


# --- deaths ---------------------------------------------------------------------------------------


def kill(trio: Target, node: int) -> None:
    """Kill a broker so that the others have noticed it soon."""
    if isinstance(trio, RealTarget):
        trio.cluster.kill(node)
        trio.cluster.expire(node)
    else:
        trio.cluster.kill(node)  # type: ignore[attr-defined]


def restart(trio: Target, node: int) -> None:
    trio.cluster.restart(node)  # type: ignore[attr-defined]


def test_a_dead_leader_is_replaced(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, replication_factor=3)
    old = trio.leader(topic, 0)
    with Peer(trio.address(old)) as peer:
        assert produce(peer, topic, plain(b"kept"), acks=-1).error_code == 0
        kill(trio, old)
        assert peer.is_closed()
    try:
        with Peer(trio.address(others(trio, old)[0])) as peer:

            def state() -> api.PartitionState:
                return metadata(peer, [topic]).topics[0].partitions[0]

            assert eventually(lambda: state().leader not in (-1, old))
            assert eventually(lambda: old not in state().isr)
            stay = trio.line.dead_brokers_stay
            assert eventually(lambda: len(metadata(peer, [topic]).brokers) == (3 if stay else 2))
            new = state()
            assert new.error_code == (0 if stay else 9)  # a replica is down, and left out
            assert (old in new.replicas) == stay
            if trio.line.name == "0.10":  # not so in version 1
                asked = api.MetadataRequest([topic])
                [told] = peer.ask(asked, 1).topics[0].partitions
                assert (told.error_code, sorted(told.replicas)) == (0, [0, 1, 2])
        with Peer(trio.address(new.leader)) as peer:
            # A new leader learns only by and by how far the others are.
            assert eventually(lambda: fetch(peer, topic, 0).values() == [(0, b"kept")])
            assert produce(peer, topic, plain(b"more")) == (0, 1)
    finally:
        restart(trio, old)
    with Peer(trio.address(old)) as peer:
        assert eventually(lambda: metadata(peer, [topic]).topics[0].partitions[0].error_code == 0)


def test_a_partition_whose_only_replica_is_dead(trio: Target) -> None:
    topic = new_name()
    trio.create_topic(topic, replication_factor=1)
    alone = trio.leader(topic, 0)
    kill(trio, alone)
    try:
        with Peer(trio.address(others(trio, alone)[0])) as peer:

            def state() -> api.PartitionState:
                return metadata(peer, [topic]).topics[0].partitions[0]

            assert eventually(lambda: state().leader == -1)
            replicas = [alone] if trio.line.dead_brokers_stay else []
            assert eventually(lambda: state() == api.PartitionState(5, 0, -1, replicas, []))
            assert metadata(peer, [topic]).topics[0].error_code == 0
    finally:
        restart(trio, alone)
    with Peer(trio.address(alone)) as peer:
        assert eventually(lambda: produce(peer, topic, plain(b"back")).error_code == 0)


def test_auto_creation_with_too_few_brokers(trio: Target) -> None:
    good = new_name()
    trio.create_topic(good, replication_factor=1)
    dead = others(trio, trio.leader(good, 0))[0]
    kill(trio, dead)
    try:
        with Peer(trio.address(trio.leader(good, 0))) as peer:
            stay = trio.line.dead_brokers_stay
            assert stay or eventually(lambda: len(metadata(peer, [good]).brokers) == 2)
            for _ in range(2):
                cannot = new_name("cannot")
                answer = metadata(peer, [good, cannot])
                codes = {one.topic: one.error_code for one in answer.topics}
                if trio.line.failed_creation_spoils_all:
                    assert answer.brokers == []
                    assert codes == {good: -1, cannot: -1}
                else:
                    assert len(answer.brokers) == 2
                    assert codes == {good: 0, cannot: trio.line.failed_creation_code}
    finally:
        restart(trio, dead)
