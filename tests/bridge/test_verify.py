"""`bridge verify` on a real 0.8.2.2 and a real 4.1.0: it finds what was planted, and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.offset_runs import OffsetMap, OffsetRun
from aiokafka08.bridge.copy.run_formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.target import target_cluster as target_module
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.verify.sequence_check import CheckProgress, Difference
from aiokafka08.bridge.verify.verification import (
    OffsetPair,
    PartitionVerdict,
    bounds,
    check_maps,
    verify,
)
from aiokafka08.bridge.verify.verify_state import VerifyState, last_verification, state_path
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import bridge_text, config_without_zookeeper
from tests.bridge.hand_copy import HandCopy, Message, create_topics, write_config
from tests.brokers import RealCluster

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


def write_target(servers: str, topic: str, messages: list[Message], timestamp: int = 0) -> None:
    """Write messages as another program does: without transactions, positions or runs.

    A timestamp of 0 is the present time.
    """
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for _, key, value in messages:
        producer.produce(topic, value, key, 0, timestamp=timestamp)
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
@pytest.mark.full
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
@pytest.mark.full
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
    monkeypatch.setattr(target_module, "_STABLE_S", 0.2)
    try:
        await cluster.wait_stable({TopicPartition(topic, 0): 0})
        with pytest.raises(TargetUnavailableError, match=f"{topic}/0 .* still open at offset 0"):
            await cluster.wait_stable({TopicPartition(topic, 0): 1})
    finally:
        await asyncio.to_thread(other.abort_transaction, 30)
        await cluster.close()


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
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
    assert f"nothing is copied yet of 1 partition: {topic}/1" in err


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


def plant_runs(config: BridgeConfig, topic: str, source: int, runs: Sequence[OffsetRun]) -> None:
    """Replace the stored runs that begin at a source offset; no runs remove them."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": config.target.bootstrap})
    key, value = encode_runs_key(RunsKey(topic, 0, source)), encode_runs(tuple(runs))
    producer.produce(config.offsets_topic, value if runs else None, key, 0)
    assert not producer.flush(30)


STORED: dict[str, tuple[int, list[OffsetRun]]] = {
    "last": (8, [OffsetRun(8, 10, 12)]),
    "first": (0, [OffsetRun(0, 1, 8)]),
    "beyond": (8, [OffsetRun(8, 1000, 12)]),
    "removed": (8, []),
    "one-off": (8, [OffsetRun(8, 9, 11), OffsetRun(19, 21, 1)]),
}
"""Records that replace those of the runs (0, 0, 8) and (8, 9, 12), by their source offsets."""
WRONG = {
    "last": (19, 20, 21),
    "first": (0, 0, 1),
    "beyond": (19, 20, 1011),
    "one-off": (19, 20, 21),
}


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_verify_finds_wrong_runs(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """All messages are equal, but groups would go on at others. What runs don't cover is equal."""
    topics = {kind: unique_topic(kind) for kind in ("right", *STORED)}
    for topic in topics.values():
        await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, dict.fromkeys(topics.values(), 1)
    )
    config = write_config(tmp_path, unique_topic("b"), source, target, list(topics.values()))
    copy = await asyncio.to_thread(HandCopy, config)
    for topic in topics.values():
        messages = await write_source(source.bootstrap_servers, topic)
        await asyncio.to_thread(copy.copy, topic, 0, messages[:8])
        await asyncio.to_thread(copy.copy, topic, 0, messages[8:])
    done = await asyncio.to_thread(cli, "bridge", "verify", str(config.path), "--format", "tsv")
    assert done.code == 0
    assert f"{len(topics)} offset maps are right: " in done.err
    for topic in topics.values():
        assert f"{topic}/0 (first 0 -> 0, last 19 -> 20)" in done.err

    for kind, (first, runs) in STORED.items():
        await asyncio.to_thread(plant_runs, config, topics[kind], first, runs)
    done = await asyncio.to_thread(cli, "bridge", "verify", str(config.path), "--format", "json")
    assert (done.code, done.json["equal"]) == (1, False)
    rows = {row["topic"]: row for row in done.json["partitions"]}
    for kind, topic in topics.items():
        found = WRONG.get(kind)
        assert rows[topic] == {
            "topic": topic,
            "partition": 0,
            "source_count": 20,
            "target_count": 20,
            "equal": found is None,
            "first_difference": None if found is None else found[0],
        }, kind
        if found is None:
            assert topic not in done.err
        else:
            at, there, given = found
            assert (
                f"{topic}/0: wrong offset map: offset {at} of the source is offset {there} of "
                f"{topic}/0 at the target, but the runs in topic {config.offsets_topic} give "
                f"{given}. Don't carry over groups"
            ) in done.err

    # The progress has both maps, so that they are looked at again.
    resumed = await asyncio.to_thread(
        cli, "bridge", "verify", str(config.path), "--resume", "--format", "json"
    )
    assert (resumed.json, resumed.err) == (done.json, done.err)
    await asyncio.to_thread(plant_runs, config, topics["first"], 0, [OffsetRun(0, 0, 8)])
    resumed = await asyncio.to_thread(
        cli, "bridge", "verify", str(config.path), "--resume", "--format", "tsv"
    )
    assert resumed.code == 1
    assert f"{topics['first']}/0: wrong" not in resumed.err
    assert f"{topics['first']}/0 (first 0 -> 0, last 19 -> 20)" in resumed.err
    assert (
        "1 offset map isn't checked, since no stored runs cover it: "
        f"{topics['removed']}/0 (last 19 -> 20)\n"
    ) in resumed.err


def verdict_of(
    first: tuple[int, int] | None,
    last: tuple[int, int] | None,
    known: OffsetMap,
    difference: Difference | None = None,
) -> PartitionVerdict:
    progress = CheckProgress(
        20, 21, 20, 20, difference=difference, first_pair=first, last_pair=last
    )
    return check_maps(PartitionVerdict("t", 0, "t", progress, is_complete=True), known)


def test_runs_are_checked_only_where_they_cover_the_offset() -> None:
    """Not in front of them, in a hole, behind them, or without runs."""
    known = OffsetMap([OffsetRun(5, 0, 5), OffsetRun(12, 6, 5)])
    for offset in (0, 4, 10, 11, 17, 30):
        assert known.copy_of(offset) is None, offset
    assert [known.copy_of(offset) for offset in (5, 9, 12, 16)] == [0, 4, 6, 10]
    assert OffsetMap().copy_of(5) is None

    verdict = verdict_of((5, 0), (17, 3), known)
    assert verdict.first_map == OffsetPair(5, 0, 0)
    assert verdict.last_map == OffsetPair(17, 3, None)
    assert (verdict.wrong_map, verdict.is_equal) == (None, True)
    verdict = verdict_of(None, (16, 9), known)
    assert verdict.wrong_map == verdict.last_map == OffsetPair(16, 9, 10)
    assert (verdict.is_equal, verdict.first_difference) == (False, 16)


def test_runs_arent_blamed_for_a_different_message() -> None:
    """A lost message shifts those that are all the same, and a repeated one has a later copy."""
    difference = Difference("lost", 19, 19, 19)
    verdict = verdict_of((0, 1), (18, 19), OffsetMap([OffsetRun(0, 0, 20)]), difference)
    assert verdict.wrong_map is None
    assert verdict.first_difference == 19


def test_progress_keeps_the_maps_of_a_verification(tmp_path: Path) -> None:
    """That of an older release has none: its first message isn't known any more."""
    path = tmp_path / "state.json"
    state = VerifyState(path, "b", timestamps=False)
    state.note(verdict_of((5, 0), (9, 3), OffsetMap()))
    wrong = verdict_of(None, (9, 3), OffsetMap([OffsetRun(0, 0, 20)]))
    state.note(replace(wrong, partition=1))
    state.save(now=5.0, is_complete=True)
    found = last_verification(path)
    assert found is not None
    assert not found.is_equal
    again = VerifyState(path, "b", timestamps=False)
    again.load()
    assert again.verdicts == state.verdicts
    assert all(one.last_map.source_offset == 9 for one in again.verdicts.values() if one.last_map)

    document = json.loads(path.read_text())
    for one in document["partitions"]:
        del one["first_map"], one["last_map"]
        for name in ("last_timestamp", "first_pair", "last_pair"):
            del one["progress"][name]
    path.write_text(json.dumps(document))
    again.load()
    for one in again.verdicts.values():
        assert (one.first_map, one.last_map) == (None, None)
        assert (one.progress.first_pair, one.progress.last_pair) == (None, None)


HEAD = {"version": 1, "bridge": "b", "timestamps": False}
PARTITIONS: list[Any] = [5, [5], [[]], [{"progress": []}]]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "5", "null", '"partitions"', "[" * 100_000),
        json.dumps(HEAD),
        *(json.dumps({**HEAD, "partitions": one}) for one in PARTITIONS),
    ],
    ids=lambda text: text[:60],
)
def test_state_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(IllegalArgumentError, match="Start without --resume"):
        VerifyState(path, "b", timestamps=False).load()
    assert last_verification(path) is None


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_timestamps_that_no_copy_keeps_are_not_compared(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """A source of 0.8 has none. With `timestamps = "now"` they always differ: a usage error."""
    topic = unique_topic("none")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    messages = await write_source(source.bootstrap_servers, topic)
    config = write_config(tmp_path, unique_topic("b"), source, target, [topic])
    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages)
    done = await asyncio.to_thread(
        cli, "bridge", "verify", str(config.path), "--timestamps", "--format", "json"
    )
    assert (done.code, done.err) == (0, "")
    assert done.json["partitions"][0]["source_count"] == 20

    more = '[copy]\ntimestamps = "now"\n'
    now = write_config(tmp_path, unique_topic("b"), source, target, [topic], more)
    done = await asyncio.to_thread(cli, "bridge", "verify", str(now.path), "--timestamps")
    assert (done.code, done.out) == (2, b"")
    assert f'--timestamps: copy.timestamps = "now" in {now.path} gives each' in done.err
    assert not state_path(now.path).exists()


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_timestamps_of_each_message_are_compared(
    target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """Also beside messages that have none."""
    topic = unique_topic("stamps")
    stamps = [-1, 0, 1_700_000_000_000, 1_700_000_000_001]
    kept = [5, 7, *stamps[2:]]
    with EmbeddedCluster(version="0.10", topics={topic: 1}) as source:
        await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
        for stamp in stamps:
            source.append(topic, 0, [b"v"], timestamp_ms=stamp)

        def write(some: list[int]) -> None:
            for stamp in some:
                write_target(target.bootstrap_servers, topic, [(0, None, b"v")], stamp)

        config = config_without_zookeeper(unique_topic("b"), source, target, topic)
        await asyncio.to_thread(write, kept[:3])
        [verdict] = await verify(config, timestamps=True)
        assert verdict.difference == Difference("lost", 3, 3, 3)
        await asyncio.to_thread(write, [kept[3] + 1])
        [verdict] = await verify(config)
        assert verdict.is_equal
        [verdict] = await verify(config, timestamps=True)
        assert verdict.difference == Difference("changed", 3, 3, 3)
