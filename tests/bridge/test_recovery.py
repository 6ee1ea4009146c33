"""What a session of a bridge does about leaders, holes, full memory, claims and open transactions.

The source is an embedded cluster, the target a real 4.1.0.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import confluent_kafka
import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config, read_config
from aiokafka08.bridge.copy.copy_session import CHUNK_RECORDS, CopyParts, CopySession
from aiokafka08.bridge.copy.copy_starts import CopyStart, LeftOut
from aiokafka08.bridge.copy.read_progress import read_progress
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import (
    BridgeError,
    BridgeFencedError,
    TargetError,
    TargetUnavailableError,
)
from aiokafka08.bridge.groups.carry_over import CopiedCluster, GroupTransfer
from aiokafka08.bridge.groups.group_plan import GroupMove
from aiokafka08.bridge.sink.events import (
    Chunk,
    TransactionAborted,
    TransactionCommitted,
    WorkerFailed,
)
from aiokafka08.bridge.sink.sink import BridgeRun, TransactionSink
from aiokafka08.bridge.sink.transaction import OpenTransaction
from aiokafka08.bridge.sink.worker import TransactionWorker
from aiokafka08.bridge.source.source_reader import PartitionLostError
from aiokafka08.bridge.target.own_topics import create_own_topics
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.topic_plan import LEAST_MESSAGE_BYTES
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import (
    Message,
    TargetReader,
    bridge_text,
    config_without_zookeeper,
    copy,
    running_bridge,
)
from tests.bridge.hand_copy import create_topics
from tests.bridge.sessions import UnstartedSession, record
from tests.bridge.test_faults import delete_group
from tests.brokers import RealCluster
from tests.support.full import in_full
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.timeout(180)]

REFRESH_S = 0.5

CONFIG = parse_config(
    'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="127.0.0.1:1"\n'
    '[topics]\ninclude=["t"]\n[copy]\noutage_s=1\n'
)


IMPATIENT = partial(CopySession, leader_s=0.5)
"""Makes sessions that soon do without a partition's leader."""


@pytest.fixture
def old() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, version="0.8.2") as running:
        yield running


def copied(count: int, first: int = 0) -> list[Message]:
    return [Message(None, b"%d" % number * 20) for number in range(first, first + count)]


def append(old: EmbeddedCluster, topic: str, partition: int, count: int, first: int = 0) -> None:
    old.append(topic, partition, [one.value for one in copied(count, first)])


@pytest.mark.real
async def test_partition_without_leader_does_not_stop_others(
    old: EmbeddedCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """At the start: it is named, and copied as soon as it has a leader."""
    topic = unique_topic("leaderless")
    old.create_topic(topic, 2, replication_factor=1)
    for partition in range(2):
        append(old, topic, partition, 3)
    config = config_without_zookeeper(topic, old, target, topic, "[copy]\nrefresh_s = 0.5\n")
    gone = TopicPartition(topic, 0)
    node = old.leader(*gone)
    old.kill(node, "leaderless")
    status = await copy(config, new_session=IMPATIENT)
    assert status.records == 3
    assert "the source has no leader for it" in status.stopped[gone]
    rows = {one.partition: one for one in await read_progress(config)}
    assert (rows[0].end, rows[0].lag, rows[1].lag) == (None, None, 0)
    async with running_bridge(config, new_session=IMPATIENT) as (following, _):
        await until(lambda: gone in following.stopped, "the bridge runs", 60)
        old.restart(node)
        old.elect()
        await until(lambda: following.records == 3, "the partition is copied", 60)
        assert not following.stopped
    wanted = {0: copied(3), 1: copied(3)}
    assert await asyncio.to_thread(reader.messages, topic) == wanted
    old.kill(node, "leaderless")  # a position is known, the end isn't
    status = await copy(config, new_session=IMPATIENT)
    assert "so its end isn't known" in status.stopped[gone]


@pytest.mark.real
@pytest.mark.full
async def test_copy_until_caught_up_looks_for_no_leaders(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    """Or else it would end well without the messages of a partition whose leader has returned."""
    topic = unique_topic("returns")
    old.create_topic(topic, 2, replication_factor=1)
    for partition in range(2):
        append(old, topic, partition, 3)
    gone = TopicPartition(topic, 0)
    node = old.leader(*gone)
    old.kill(node, "leaderless")
    returned = False

    class Session(CopySession):
        async def step(self, ends: Any) -> None:
            nonlocal returned
            if not returned:
                returned = True
                old.restart(node)
                old.elect()
                await asyncio.sleep(4 * REFRESH_S)  # time to find it, if it looked for it
            await super().step(ends)

    status = await copy(
        config_without_zookeeper(topic, old, target, topic, f"[copy]\nrefresh_s = {REFRESH_S}\n"),
        new_session=partial(Session, leader_s=0.5),
    )
    assert returned
    assert gone in status.stopped


@pytest.mark.real
async def test_daemon_commits_behind_a_hole_at_the_end(
    old: EmbeddedCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """Otherwise the lag never becomes 0, and a cut-over is never ready."""
    topic = unique_topic("hole")
    old.create_topic(topic)
    append(old, topic, 0, 6)
    old.remove(topic, 0, [4, 5])
    config = config_without_zookeeper(topic, old, target, topic)
    tp = TopicPartition(topic, 0)
    async with running_bridge(config) as (status, _):
        await until(
            lambda: tp in status.partitions and status.partitions[tp].position == 6,
            "the position is at the end",
            60,
        )
    assert status.records == 4


@pytest.mark.real
@pytest.mark.full
async def test_latest_start_of_an_empty_partition_is_kept(
    old: EmbeddedCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Position 0 is committed: a second run doesn't begin at what is the latest then."""
    topic = unique_topic("latest")
    old.create_topic(topic)
    config = config_without_zookeeper(topic, old, target, topic, '[copy]\nstart = "latest"\n')
    await copy(config)
    append(old, topic, 0, 3)
    assert (await copy(config)).records == 3
    assert await asyncio.to_thread(reader.messages, topic) == {0: copied(3)}


@pytest.mark.real
@pytest.mark.full
async def test_latest_start_counts_only_in_the_first_session(
    old: EmbeddedCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Messages of a new topic, and those behind an expired position of an empty copy, are kept."""
    topic = unique_topic("first")
    first, second = f"{topic}-a", f"{topic}-b"
    more = f'[copy]\nstart = "latest"\nrefresh_s = {REFRESH_S}\n'
    config = config_without_zookeeper(topic, old, target, f"{topic}-.*", more)
    old.create_topic(first)
    append(old, first, 0, 2)
    async with running_bridge(config) as (status, _):
        await until(lambda: TopicPartition(first, 0) in status.partitions, "it has begun", 60)
        old.create_topic(second)
        append(old, second, 0, 3)
        await until(lambda: status.records == 3, "the new topic is copied", 60)
    assert await asyncio.to_thread(reader.messages, first) == {0: []}
    await asyncio.to_thread(delete_group, target, config.position_group)
    append(old, first, 0, 2, 2)
    assert (await copy(config)).records == 4
    assert await asyncio.to_thread(reader.messages, first) == {0: copied(4)}
    assert await asyncio.to_thread(reader.messages, second) == {0: copied(3)}
    assert caplog.text.count('copy.start = "latest" counts only for what its first session') == 2


@pytest.mark.real
@pytest.mark.full
async def test_latest_start_that_was_not_committed_is_kept(
    old: EmbeddedCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """The next session of the process begins where the first one would have begun."""
    topic = unique_topic("kept")
    old.create_topic(topic)
    append(old, topic, 0, 2)
    path = tmp_path / "bridge.toml"
    path.write_text(bridge_text(topic, old, target, topic, '[copy]\nstart = "latest"\n'))
    config = read_config(path)
    run = BridgeRun()
    run.first_ends[TopicPartition(topic, 0)] = 2
    append(old, topic, 0, 2, 2)
    await CopySession(config, CopyStatus(), run).run(until_caught_up=True)
    assert await asyncio.to_thread(reader.messages, topic) == {0: copied(2, 2)}
    verified = await asyncio.to_thread(cli, "bridge", "verify", str(path))
    assert "2 offsets of the source are in front of the first message copied" in verified.err


@pytest.mark.real
@pytest.mark.parametrize(("removed", "outcome"), [(range(5), "move"), (range(4), "missing")])
@pytest.mark.full
async def test_group_in_a_hole_at_the_head_of_a_log_moves(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    removed: range,
    outcome: str,
) -> None:
    """Compaction has removed what it would have read; it is missing if a message is left."""
    topic = unique_topic("head")
    old.create_topic(topic)
    append(old, topic, 0, 5)
    files = '[copy]\nstart = "latest"\n[groups]\ninclude = ["g"]\nstore = "file"\nfile = "f"\n'
    config = config_without_zookeeper(topic, old, target, topic, files)
    await copy(config)
    append(old, topic, 0, 5, 5)
    await copy(config)
    old.remove(topic, 0, removed)
    transfer = GroupTransfer(config, {"g": {TopicPartition(topic, 0): (1, "")}})
    try:
        [move] = await transfer.plan()
    finally:
        await transfer.close()
    assert (move.outcome, move.target_offset) == (outcome, 0)


async def test_wait_for_room_ends_when_a_worker_has_failed() -> None:
    """Nobody would free the memory any more."""
    workers: list[Any] = [Mock() for _ in range(CONFIG.copy.producers)]
    sink = TransactionSink(CONFIG, Target(CONFIG), BridgeRun(), workers=workers)
    tp = TopicPartition("t", 0)
    sink.put(Chunk(0, tp, tp, [], 1, CONFIG.copy.buffer_bytes))
    assert not sink.has_room
    failed = WorkerFailed(0, TargetError("fenced"))
    sink.report(failed)
    async with asyncio.timeout(10):
        await sink.wait_room()
    assert sink.failure == failed


async def test_full_memory_behind_a_failed_worker_ends_session() -> None:
    """The records that were read don't wait for room that nobody makes."""
    made, tp = UnstartedSession(CONFIG), TopicPartition("t", 0)
    await made.add({tp: CopyStart(0, False)})
    made.sink.room.extend([False])  # it is full when the records are read

    def fail(*_: object) -> dict[TopicPartition, list[Any]]:
        made.sink.events.append(WorkerFailed(0, TargetError("the producer has failed")))
        return {tp: [record(tp)]}

    made.source.read.side_effect = fail
    with pytest.raises(TargetError, match="the producer has failed"):
        await made.session.step(None)
    assert made.put == []


@pytest.mark.real
@pytest.mark.full
async def test_latest_start_in_front_of_a_refused_record_is_kept(
    old: EmbeddedCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The transaction with the first position is aborted: without it the next run begins at 0."""
    topic = unique_topic("refused")
    old.create_topic(topic)
    append(old, topic, 0, 2)
    tp, limit = TopicPartition(topic, 0), {"max.message.bytes": "2000"}
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1}, limit)
    more = '[copy]\nstart = "latest"\ntransaction_s = 3\n'
    config = config_without_zookeeper(topic, old, target, topic, more)
    connection = Target(config)

    async def is_committed() -> bool:
        return await connection.committed(config.position_group, [tp]) == {tp: 2}

    try:
        async with running_bridge(config) as (status, _):
            await until(lambda: tp in status.partitions, "the first transaction is open", 60)
            old.append(topic, 0, [os.urandom(5000)])
            await until(lambda: tp in status.stopped, "the record is refused", 60)
            assert "refuses the record at offset 2" in status.stopped[tp]
            await eventually(is_committed, 30, 0.2)
    finally:
        await connection.close()
    assert tp in (await copy(config)).stopped
    assert await asyncio.to_thread(reader.messages, topic) == {0: []}


def config_with(copy_key: str) -> BridgeConfig:
    """Return the file of a bridge with this line in the section [copy]."""
    text = 'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="b:1"\n[topics]\n'
    return parse_config(f'{text}include=["t"]\n[copy]\n{copy_key}\n')


async def test_stopped_partition_is_recommitted_at_its_position() -> None:
    """Nothing is committed of one whose position isn't known, or has moved in the sink."""
    made = UnstartedSession(config := config_with('start = "latest"'))
    known, ahead, lost = (TopicPartition("t", number) for number in range(3))
    at_5 = CopyStart(5, False)
    await made.add({known: at_5, ahead: at_5}, {lost: LeftOut(0, "its position is lost")})
    await made.read({ahead: [record(ahead, offset) for offset in range(5, 8)]})
    assert made.put == [(ahead, 8)]
    made.sink.chunks.clear()
    for tp in (known, ahead):
        made.status.partitions[tp].stopped = "gone"
    made.now += config.copy.recommit_s
    await made.session.step(None)
    assert made.put == [(known, 5)]
    await made.session.step(None)
    assert made.put == [(known, 5)]
    made.sink.chunks.clear()
    made.sink.events.append(TransactionAborted(0, 1, "NOT_ENOUGH_REPLICAS"))
    await made.session.step(None)
    assert made.put == [(known, 5), (ahead, 5)]
    assert list(made.status.stopped) == [lost, known]  # the other one is read again


async def test_abort_behind_a_truncated_source_skips_nothing_new() -> None:
    """The position of the shorter log wasn't committed yet; the log may grow past the old one."""
    made, tp = UnstartedSession(config_with('on_loss = "skip"')), TopicPartition("t", 0)
    await made.add({tp: CopyStart(10, False)})
    await made.read(PartitionLostError(tp, 10, 0, 4))
    made.sink.events.append(TransactionAborted(0, 1, "NOT_ENOUGH_REPLICAS"))
    await made.session.step(None)
    assert made.source.seek.call_args_list == [call(tp, 4), call(tp, 4)]
    assert made.put == [(tp, 4), (tp, 4)]


async def test_chunk_has_all_records_of_its_last_offset() -> None:
    """A transaction may end behind each chunk, and its position is between two offsets."""
    made, tp = UnstartedSession(CONFIG), TopicPartition("t", 0)
    await made.add({tp: CopyStart(0, False)})
    offsets = [*range(CHUNK_RECORDS - 1), *[CHUNK_RECORDS] * 9, CHUNK_RECORDS + 1]
    await made.read({tp: [record(tp, offset) for offset in offsets]})
    assert made.put == [(tp, CHUNK_RECORDS + 1), (tp, CHUNK_RECORDS + 2)]
    assert [len(one.records) for one in made.sink.chunks] == [CHUNK_RECORDS + 8, 1]


async def test_skipped_damage_loses_no_record_in_front_of_it() -> None:
    """They share its offset: the position can't be between them."""
    made, tp = UnstartedSession(config_with('on_loss = "skip"')), TopicPartition("t", 0)
    await made.add({tp: CopyStart(7, False)})
    lost = PartitionLostError(tp, 7, 7, 7, resume=8, detail="", records=[record(tp, 7)] * 2)
    await made.read(lost)
    assert made.put == [(tp, 8)]
    assert [len(one.records) for one in made.sink.chunks] == [2]


async def test_log_that_cannot_be_read_any_further_is_not_skipped() -> None:
    made, tp = UnstartedSession(config_with('on_loss = "skip"')), TopicPartition("t", 0)
    await made.add({tp: CopyStart(7, False)})
    await made.read(PartitionLostError(tp, 7, 7, 7, detail="t/0: damaged"))
    assert made.put == []
    text = "t/0: damaged. Start the bridge again once more of the log can be read"
    assert made.status.stopped[tp] == text


@pytest.mark.real
@pytest.mark.parametrize("hangs", ["commit", *in_full("initialise")])
async def test_hung_producer_is_replaced(
    hangs: str,
    old: EmbeddedCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """A call of librdkafka doesn't return: a new session goes on from the committed positions."""
    topic = unique_topic("hung")
    old.create_topic(topic)
    append(old, topic, 0, 500)
    more = (
        "[copy]\ntransaction_records = 100\nbuffer_bytes = 65536\nfetch_bytes = 65536\n"
        '[target.properties]\n"transaction.timeout.ms" = 3000\n'
    )
    returned = threading.Event()
    hung: list[TransactionWorker] = []

    class Worker(TransactionWorker):
        def initialise(self) -> None:
            if hangs != "initialise" or hung:
                super().initialise()
                return
            hung.append(self)
            returned.wait(150)

        def _send_positions(self, transaction: OpenTransaction) -> None:
            if hangs != "commit" or hung:
                super()._send_positions(transaction)
                return
            hung.append(self)
            self._call(lambda: returned.wait(150))

    def session(config: BridgeConfig, status: CopyStatus, run: BridgeRun, *_: Any) -> CopySession:
        new_sink = partial(TransactionSink, new_worker=Worker, initialise_s=3.0)
        parts = CopyParts.of(config, status, run, new_sink=new_sink)
        return CopySession(config, status, run, parts=parts)

    status = CopyStatus()
    config = config_without_zookeeper(topic, old, target, topic, more)
    running = run_bridge(config, status, until_caught_up=True, new_session=session)
    try:
        await asyncio.wait_for(running, 120)
    finally:
        returned.set()
    assert (len(hung), status.sessions) == (1, 2)
    assert await asyncio.to_thread(reader.messages, topic) == {0: copied(500)}


@pytest.mark.real
async def test_claim_that_arrived_though_its_write_failed_counts(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    """A newer start has claimed since: the older one must not take the bridge back."""
    config = config_without_zookeeper(unique_topic("claim"), old, target, "none")

    class Unsteady(Target):
        fails = False

        async def write(self, topic: str, key: bytes, value: bytes | None) -> None:
            await super().write(topic, key, value)
            if self.fails:
                raise TargetUnavailableError("no response in time")

    connection = Unsteady(config)
    older, newer = BridgeRun(), BridgeRun()
    sinks: list[TransactionSink] = []

    async def start(run: BridgeRun) -> None:
        sinks.append(TransactionSink(config, connection, run))
        await sinks[-1].start(LEAST_MESSAGE_BYTES)

    try:
        await create_own_topics(config, connection, [], BridgeRun())
        connection.fails = True
        with pytest.raises(TargetUnavailableError):
            await start(older)
        connection.fails = False
        await start(newer)
        with pytest.raises(BridgeFencedError):
            await start(older)
    finally:
        for one in sinks:
            await one.close()
        await connection.close()


@pytest.mark.real
async def test_ended_session_is_gone_before_the_next(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two sessions with their buffers would take twice the memory, and none would be returned."""
    topic = unique_topic("ended")
    old.create_topic(topic)
    append(old, topic, 0, 100)
    ended: list[weakref.ref[CopySession]] = []
    left: list[CopySession | None] = []

    class Observed(CopySession):
        def __init__(self, *arguments: Any) -> None:
            left.extend(one() for one in ended)
            super().__init__(*arguments)
            ended.append(weakref.ref(self))

    def fail_once(_: TransactionCommitted) -> None:
        if len(ended) == 1:
            raise TargetUnavailableError("away")

    config, status = config_without_zookeeper(topic, old, target, topic), CopyStatus()
    await run_bridge(
        config, status, until_caught_up=True, on_commit=fail_once, new_session=Observed
    )
    assert status.sessions == 2
    assert left == [None]


async def no_check(config: BridgeConfig) -> None:
    """In place of `refuse_old_target`: these tests have no target."""


async def test_outage_begins_when_a_running_session_ends() -> None:
    """A bridge that had nothing to copy for longer than `outage_s` isn't ended by one failure."""
    sessions = 0

    class Session:
        def __init__(self, config: BridgeConfig, status: CopyStatus, *rest: Any) -> None:
            self._status = status

        async def run(self, *, until_caught_up: bool) -> None:
            nonlocal sessions
            sessions += 1
            if sessions == 1:
                self._status.problem = None
                await asyncio.sleep(1.2 * CONFIG.copy.outage_s)  # idle
                raise TargetUnavailableError("away")

    new_session: Any = Session
    await run_bridge(CONFIG, CopyStatus(), new_session=new_session, check_target=no_check)
    assert sessions == 2


async def test_outage_that_lasts_ends_the_run() -> None:
    class Session:
        def __init__(self, *_: Any) -> None:
            pass

        async def run(self, *, until_caught_up: bool) -> None:
            raise TargetUnavailableError("away")

    new_session: Any = Session
    with pytest.raises(KafkaError, match="away"):
        await run_bridge(CONFIG, CopyStatus(), new_session=new_session, check_target=no_check)


@pytest.mark.real
@pytest.mark.parametrize("until_caught_up", [True, False])
async def test_source_that_stays_away_ends_a_running_copy(
    until_caught_up: bool,
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    """Reads return nothing then, without an error."""
    topic = unique_topic("away")
    old.create_topic(topic)
    for _ in range(20):
        old.append(topic, 0, [bytes(1000)] * 1000)
    config = config_without_zookeeper(
        topic, old, target, topic,
        "[copy]\ntransaction_records = 100\nbuffer_bytes = 200000\nfetch_bytes = 100000\n"
        "outage_s = 2\nrefresh_s = 30\n",
    )  # fmt: skip
    status = CopyStatus()

    def kill(_: TransactionCommitted) -> None:
        if status.transactions == 1:
            for node in old.nodes:
                old.kill(node)

    with pytest.raises(BridgeError, match="the source has been away for 2 s: ") as raised:
        await run_bridge(config, status, until_caught_up=until_caught_up, on_commit=kill)
    assert 0 < status.records < 20_000
    assert old.bootstrap_servers.partition(",")[0] in raised.value.text


def file_groups(topic: str, offset: int) -> dict[str, dict[TopicPartition, tuple[int, str]]]:
    return {f"g-{topic}": {TopicPartition(topic, 0): (offset, "")}}


@pytest.mark.real
async def test_groups_wait_for_an_open_transaction_of_runs(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    """A transaction ends in each partition by itself: its runs may show behind its positions."""
    topic = unique_topic("open")
    old.create_topic(topic)
    append(old, topic, 0, 10)
    more = '[groups]\ninclude = [".*"]\nstore = "file"\nfile = "unused"\n'
    config = config_without_zookeeper(topic, old, target, topic, more)
    await copy(config)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": target.bootstrap_servers, "transactional.id": topic}
    )
    await asyncio.to_thread(producer.init_transactions, 30)
    producer.begin_transaction()
    producer.produce(config.offsets_topic, None, b"\x00\x01x" + bytes(12), 0)
    await asyncio.to_thread(producer.flush, 30)
    transfer = GroupTransfer(config, file_groups(topic, 4))
    looks = 0
    log_bounds = transfer.target.log_bounds

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal looks
        found = await log_bounds(*arguments, **options)
        looks += 1
        return found

    transfer.target.log_bounds = counted  # type: ignore[method-assign]
    planning = asyncio.create_task(transfer.plan())
    try:
        await until(lambda: looks >= 4 or planning.done(), "it waits for the transaction", 30)
        assert not planning.done()
        await asyncio.to_thread(producer.commit_transaction, 30)
        [move] = await asyncio.wait_for(planning, 60)
    finally:
        planning.cancel()
        await asyncio.gather(planning, return_exceptions=True)
        await transfer.close()
    assert (move.outcome, move.target_offset) == ("move", 4)


@pytest.mark.real
async def test_commit_of_a_consumer_meanwhile_is_kept(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer of the target comes, commits and goes between the plan and the commit."""
    topic = unique_topic("race")
    old.create_topic(topic)
    append(old, topic, 0, 10)
    more = '[groups]\ninclude = [".*"]\nstore = "file"\nfile = "unused"\n'
    config = config_without_zookeeper(topic, old, target, topic, more)
    await copy(config)
    [group] = groups = file_groups(topic, 4)
    transfer = GroupTransfer(config, groups)
    look, tp = transfer.look, TopicPartition(topic, 0)

    async def look_and_lose_the_race(
        *, rewind: bool | None = None
    ) -> tuple[list[GroupMove], CopiedCluster]:
        found = await look(rewind=rewind)
        await transfer.groups.commit(group, {tp: (9, "")})
        return found

    try:
        with monkeypatch.context() as patch:
            patch.setattr(transfer, "look", look_and_lose_the_race)
            [move], _ = await transfer.carry_over()
        assert (move.outcome, move.reason) == ("refused", "the group has committed 9 meanwhile")
        assert await transfer.committed(group, [tp]) == {tp: 9}
        [move], _ = await transfer.carry_over()
        assert move.outcome == "behind"
    finally:
        await transfer.close()


async def test_unreachable_target_is_named(old: EmbeddedCluster) -> None:
    """Also where an address of the old cluster was given as the target's."""
    config = replace(CONFIG, target=replace(CONFIG.target, bootstrap=old.bootstrap_servers))
    connection = Target(config, timeout_s=1.0)
    try:
        with pytest.raises(TargetUnavailableError) as caught:
            await connection.partition_counts()
    finally:
        await connection.close()
    assert f"target {old.bootstrap_servers}: list the topics: _TRANSPORT" in caught.value.text
    assert "Expected brokers of Kafka 0.11 or later at target.bootstrap" in caught.value.text
