"""`bridge verify` on a real 0.8.2.2 and a real 4.1.0: it finds what was planted, and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08.bridge import target_cluster
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.offset_runs import OffsetMap, OffsetRun
from aiokafka08.bridge.target import Target
from aiokafka08.bridge.verify import bounds, verify
from aiokafka08.bridge.verify_state import last_verification, state_path
from tests.bridge.clusters import bridge_text
from tests.bridge.hand_copy import HandCopy, Message, create_topics, write_config
from tests.brokers import RealCluster
from tests.cli.conftest import RunCommand

VALUES: list[tuple[bytes | None, bytes]] = [
    (None, b"0"),
    (b"", b"1"),
    (b"k", b""),
    (b"k", b"3"),
    *((b"key", b"value %d" % number) for number in range(4, 20)),
]


async def write_source(servers: str, topic: str) -> list[Message]:
    """Write `VALUES` to a partition of the source, and return them with their offsets."""
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        sent = [
            (await producer.send_and_wait(topic, value, key, partition=0)).offset
            for key, value in VALUES
        ]
    return [(offset, *pair) for offset, pair in zip(sent, VALUES, strict=True)]


PLANTS: dict[str, Callable[[list[Message]], list[Message]]] = {
    "changed": lambda some: [*some[:7], (*some[7][:2], b"valuE 7"), *some[8:]],
    "null-key": lambda some: [some[0], (some[1][0], None, some[1][2]), *some[2:]],
    "lost": lambda some: [*some[:7], *some[8:]],
    "lost-last": lambda some: some[:-1],
    "twice": lambda some: [*some[:8], some[7], *some[8:]],
    "twice-last": lambda some: [*some, some[-1]],
    "swapped": lambda some: [*some[:7], some[8], some[7], *some[9:]],
}
FIRST = {"null-key": 1, "lost-last": 19, "twice": 8, "twice-last": 20}


def open_transaction(servers: str, topic: str) -> Any:
    """Return another producer, which has a message in a transaction that hasn't ended."""
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": f"other-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", None, 0)
    assert not producer.flush(30)
    return producer


def write_target(servers: str, topic: str, messages: list[Message]) -> None:
    """Write messages as another program does: without transactions, positions or runs."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for _, key, value in messages:
        producer.produce(topic, value, key, 0)
    assert not producer.flush(30)


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_verify_finds_what_was_planted(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    topics = {kind: unique_topic(kind) for kind in ("same", *PLANTS)}
    for topic in topics.values():
        await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, dict.fromkeys(topics.values(), 1)
    )
    for kind, topic in topics.items():
        messages = await write_source(source.bootstrap_servers, topic)
        wrong = PLANTS.get(kind, list)(messages)
        await asyncio.to_thread(write_target, target.bootstrap_servers, topic, wrong)
    config = write_config(tmp_path, unique_topic("b"), source, target, list(topics.values()))
    done = await asyncio.to_thread(cli, "bridge", "verify", str(config.path), "--format", "json")
    assert (done.code, done.out != b"") == (1, True), done.err
    assert done.json["equal"] is False
    rows = {row["topic"]: row for row in done.json["partitions"]}
    assert rows.pop(topics["same"]) == {
        "topic": topics["same"],
        "partition": 0,
        "source_count": 20,
        "target_count": 20,
        "equal": True,
        "first_difference": None,
    }
    for kind in PLANTS:
        row = rows[topics[kind]]
        assert (row["equal"], row["first_difference"]) == (False, FIRST.get(kind, 7)), kind
        word = {"null-key": "changed"}.get(kind, kind.removesuffix("-last"))
        assert f"{topics[kind]}/0: {word}: offset" in done.err

    one = write_config(tmp_path, unique_topic("b"), source, target, [topics["same"]])
    done = await asyncio.to_thread(cli, "bridge", "verify", str(one.path), "--format", "json")
    assert (done.code, done.json["equal"], done.err) == (0, True, "")


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_verify_ends_at_the_position_and_resumes(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """Aborted messages don't count, those not copied yet neither; a resume reads the rest only."""
    topic, name = unique_topic("resume"), unique_topic("b")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    messages = await write_source(source.bootstrap_servers, topic)
    config = write_config(tmp_path, name, source, target, [topic])
    state = tmp_path / f"{name}.verify.json"

    async def verify(*more: str) -> tuple[int, int, str]:
        done = await asyncio.to_thread(
            cli, "bridge", "verify", str(config.path), "--format", "json", *more
        )
        [row] = done.json["partitions"]
        assert row["source_count"] == row["target_count"]
        assert (done.code == 0) == row["equal"]
        return done.code, row["source_count"], done.err

    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages[:5])
    await asyncio.to_thread(copy.copy, topic, 0, messages[5:9], abort=True)
    await asyncio.to_thread(copy.copy, topic, 0, messages[5:8])
    code, count, err = await verify()
    assert (code, count) == (0, 8)
    assert "12 offsets at the source aren't copied yet" in err
    before = json.loads(state.read_text())["partitions"][0]["progress"]
    assert before["source_next"] == 8

    await asyncio.to_thread(copy.copy, topic, 0, messages[8:])
    assert await verify("--resume") == (0, 20, "")
    after = json.loads(state.read_text())["partitions"][0]["progress"]
    assert await verify() == (0, 20, "")
    again = json.loads(state.read_text())["partitions"][0]["progress"]
    assert after == again != before

    state.write_text("{}")
    done = await asyncio.to_thread(cli, "bridge", "verify", str(config.path), "--resume")
    assert done.code == 2
    assert "Start without --resume" in done.err


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_verify_beside_a_bridge_finds_nothing_lost(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the bridge copies between the look at the target's log and at the position is read.

    Also while the stable end of the partition is still in front of the position's copies, as it is
    until the marker of their transaction is written; here another producer's transaction does that.
    """
    topic = unique_topic("beside")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    messages = await write_source(source.bootstrap_servers, topic)
    config = write_config(tmp_path, unique_topic("b"), source, target, [topic])
    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages[:8])
    other = await asyncio.to_thread(open_transaction, target.bootstrap_servers, topic)
    looked_at: list[str] = []
    committed, wait_stable = Target.committed, Target.wait_stable

    async def copy_then_committed(self: Target, *arguments: Any) -> dict[TopicPartition, int]:
        if not looked_at:
            await asyncio.to_thread(copy.copy, topic, 0, messages[8:])
        looked_at.append("position")
        return await committed(self, *arguments)

    async def end_then_wait(self: Target, ends: Mapping[TopicPartition, int]) -> None:
        if TopicPartition(topic, 0) in ends and "stable" not in looked_at:
            looked_at.append("stable")
            assert (await self.log_bounds(ends))[TopicPartition(topic, 0)][1] < 20
            waiting = asyncio.ensure_future(wait_stable(self, ends))
            await asyncio.to_thread(other.abort_transaction, 30)
            return await waiting
        return await wait_stable(self, ends)

    monkeypatch.setattr(Target, "committed", copy_then_committed)
    monkeypatch.setattr(Target, "wait_stable", end_then_wait, raising=False)
    [verdict] = await verify(config)
    assert verdict.difference is None
    assert verdict.progress.source_count == verdict.progress.target_count == 20
    assert looked_at == ["position", "stable"]


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_open_transaction_ends_the_wait_by_its_deadline(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = unique_topic("open")
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    other = await asyncio.to_thread(open_transaction, target.bootstrap_servers, topic)
    cluster = Target(parse_config(bridge_text(unique_topic("b"), source, target, topic)))
    monkeypatch.setattr(target_cluster, "_STABLE_S", 0.2)
    try:
        await cluster.wait_stable({TopicPartition(topic, 0): 0})
        with pytest.raises(TargetUnavailableError, match=f"{topic}/0 .* still open at offset 0"):
            await cluster.wait_stable({TopicPartition(topic, 0): 1})
    finally:
        await asyncio.to_thread(other.abort_transaction, 30)
        await cluster.close()


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_resume_looks_again_at_a_difference(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """What was lost at the end, and has come since, is no difference; what is still wrong is."""
    ends, middle = unique_topic("ends"), unique_topic("middle")
    for topic in (ends, middle):
        await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {ends: 1, middle: 1})
    written = {
        topic: await write_source(source.bootstrap_servers, topic) for topic in (ends, middle)
    }
    servers = target.bootstrap_servers
    await asyncio.to_thread(write_target, servers, ends, written[ends][:15])
    repeated = [*written[middle][:8], *written[middle][7:]]
    await asyncio.to_thread(write_target, servers, middle, repeated)
    config = write_config(tmp_path, unique_topic("b"), source, target, [ends, middle])

    async def verify(*more: str) -> tuple[dict[str, tuple[bool, int, int]], str]:
        done = await asyncio.to_thread(
            cli, "bridge", "verify", str(config.path), "--format", "json", *more
        )
        return {
            row["topic"]: (row["equal"], row["source_count"], row["target_count"])
            for row in done.json["partitions"]
        }, done.err

    rows, err = await verify()
    assert rows == {ends: (False, 20, 15), middle: (False, 20, 21)}
    assert f"{ends}/0: lost: offset 15 of the source" in err
    await asyncio.to_thread(write_target, servers, ends, written[ends][15:])
    rows, err = await verify("--resume")
    assert rows == {ends: (True, 20, 20), middle: (False, 20, 21)}
    assert ends not in err
    assert f"{middle}/0: twice: offset 8 of the source, 8 of" in err


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_verify_before_any_copy_says_so(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """Neither is all lost, nor are the sides equal."""
    topic = unique_topic("nothing")
    await asyncio.to_thread(source.create_topic, topic, 2)
    messages = await write_source(source.bootstrap_servers, topic)
    config = write_config(tmp_path, unique_topic("b"), source, target, [topic])

    async def verify() -> tuple[int, list[tuple[bool, int | None]], str]:
        done = await asyncio.to_thread(
            cli, "bridge", "verify", str(config.path), "--format", "json"
        )
        rows = [(one["equal"], one["first_difference"]) for one in done.json["partitions"]]
        return done.code, rows, done.err

    code, rows, err = await verify()
    assert (code, rows) == (1, [(False, None), (True, None)])
    assert "nothing is copied yet: start 'bridge run'" in err
    assert "lost" not in err
    last = last_verification(state_path(config.path))
    assert last is not None
    assert not last.is_equal

    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        await producer.send_and_wait(topic, b"one", partition=1)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 2})
    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages)
    code, rows, err = await verify()
    assert (code, rows) == (1, [(True, None), (False, None)])
    assert f"{topic}/1: nothing is copied yet" in err


def test_bounds_leave_out_what_was_never_or_is_not_yet_copied() -> None:
    known = OffsetMap([OffsetRun(10, 0, 5), OffsetRun(15, 6, 5)])
    assert bounds((10, 30), (0, 12), 20, known) == (10, 20, 0, 12, 10, 0)
    # The source has expired up to 17: the copies of earlier messages aren't compared.
    assert bounds((17, 30), (0, 12), 20, known) == (17, 20, 8, 12, 10, 0)
    assert bounds((25, 30), (0, 12), 20, known) == (25, 25, 12, 12, 5, 0)
    # The copy began at 10.
    assert bounds((0, 30), (0, 12), 20, known) == (10, 20, 0, 12, 10, 10)
    # The bridge has copied more since the target's end was read.
    assert bounds((10, 30), (0, 6), 18, known) == (10, 18, 0, 9, 12, 0)
    # Without a bridge all is compared.
    assert bounds((3, 30), (1, 12), None, OffsetMap()) == (3, 30, 1, 12, 0, 0)
