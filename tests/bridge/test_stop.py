"""How a bridge ends: by SIGTERM, in the middle of a backlog, and by a newer start."""

from __future__ import annotations

import asyncio
import configparser
import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._tools.cli.commands import bridge_run
from aiokafka08._tools.cli.connection import run
from aiokafka08._tools.cli.main import FENCED
from aiokafka08.bridge import daemon
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.sink.claims import producer_of
from aiokafka08.bridge.sink.events import Chunk, SinkEvent, WorkerFailed
from aiokafka08.bridge.sink.sink import BridgeRun, TransactionSink, worker_settings
from aiokafka08.bridge.sink.worker import TransactionWorker
from aiokafka08.bridge.target.target_cluster import Target, TopicSpec
from aiokafka08.structs import ConsumerRecord, TopicPartition
from tests.bridge.clusters import (
    Message,
    TargetReader,
    bridge_config,
    copy,
    running_bridge,
    write,
)
from tests.bridge.hand_copy import write_config
from tests.brokers import RealCluster
from tests.support.paths import ROOT
from tests.support.waiting import eventually, until
from tests.tools.bridge_rounds import BridgeProcess

PRODUCERS, PARTITIONS, COUNT = 3, 24, 4000
PROMISED_S = 5.0
"""Within which SIGTERM ends the bridge; systemd waits for longer."""
UNIT = ROOT / "examples/bridge/aiokafka08-bridge.service"


def unit_timeout() -> float:
    """Return after how many seconds systemd kills the process."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(UNIT)
    return float(unit["Service"]["TimeoutStopSec"])


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_sigterm_commits_what_three_producers_have(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """It ends with 0 as soon as promised, and the next start copies the rest, once."""
    assert unit_timeout() > PROMISED_S
    topic = unique_topic("stop")
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    assert {producer_of(tp, PRODUCERS) for tp in tps} == set(range(PRODUCERS))
    source.create_topic(topic, PARTITIONS)
    written = {
        number: [Message(None, b"%d-%d" % (number, one) + bytes(200)) for one in range(COUNT)]
        for number in range(PARTITIONS)
    }
    await write(source, topic, written)
    more = f'[copy]\nproducers = {PRODUCERS}\nrate = "3MB/s"\nfetch_bytes = 65536\n'
    config = write_config(tmp_path, topic, source, target, [topic], more)
    process, connection = BridgeProcess(config.path), Target(config)

    async def positions() -> dict[TopicPartition, int]:
        if topic not in await connection.partition_counts():
            return {}
        return await connection.committed(config.position_group, tps)

    async def all_copy() -> bool:
        assert process.process.poll() is None, process.tail()
        return {producer_of(tp, PRODUCERS) for tp in await positions()} == set(range(PRODUCERS))

    try:
        process.start()
        await eventually(all_copy, 60, 0.1)
        process.process.terminate()
        assert await asyncio.to_thread(process.finish, PROMISED_S) == 0
        copied = await positions()
    finally:
        process.close()
        await connection.close()
    assert 0 < sum(copied.values()) < PARTITIONS * COUNT
    found = await asyncio.to_thread(reader.messages, topic)
    assert found == {tp.partition: written[tp.partition][: copied.get(tp, 0)] for tp in tps}
    await copy(write_config(tmp_path, topic, source, target, [topic]))
    assert await asyncio.to_thread(reader.messages, topic) == written


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_process_fenced_by_a_newer_one_ends_with_3(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """An idle process finds the newer claim when it looks for new topics (`copy.refresh_s`)."""
    topic = unique_topic("fenced")
    source.create_topic(topic)
    processes = []
    for folder in (tmp_path / "older", tmp_path / "newer"):
        folder.mkdir()
        config = write_config(folder, topic, source, target, [topic], "[copy]\nrefresh_s = 1\n")
        processes.append(BridgeProcess(config.path))
    older, newer = processes
    written = [Message(None, b"for the older"), Message(None, b"for the newer")]

    async def copied() -> dict[int, list[Message]]:
        return await asyncio.to_thread(reader.messages, topic)

    async def is_copied(count: int) -> bool:
        return len((await copied())[0]) == count

    try:
        older.start()
        await write(source, topic, {0: written[:1]})
        await until(lambda: "copying 1 partition" in older.tail(), "the older one copies", 60, 0.1)
        await eventually(lambda: is_copied(1), 60, 0.1)
        newer.start()
        assert await asyncio.to_thread(older.finish, 60) == FENCED == 3
        assert "a newer start has taken over" in older.tail().splitlines()[-1]
        await write(source, topic, {0: written[1:]})
        await eventually(lambda: is_copied(2), 60, 0.1)
        newer.process.terminate()
        assert await asyncio.to_thread(newer.finish, 60) == 0
    finally:
        older.close()
        newer.close()
    assert await copied() == {0: written}


def test_stop_waits_for_no_call_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one to a ZooKeeper that accepts connections and doesn't respond."""
    release, has_returned = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(20)
        has_returned.set()

    async def begin_and_end(*_: Any, **__: Any) -> None:
        async with asyncio.timeout(0.1):
            await asyncio.to_thread(hang)

    monkeypatch.setattr(daemon, "run_bridge", begin_and_end)
    config = parse_config(
        'name = "b"\n[source]\nbootstrap = "a:1"\n[target]\nbootstrap = "b:1"\n'
        '[topics]\ninclude = ["t"]\n'
    )
    try:
        with pytest.raises(TimeoutError):
            run(bridge_run._run(config, CopyStatus(), False))
        assert not has_returned.is_set()
    finally:
        release.set()
    assert has_returned.wait(20)


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", ["killed", "paused"])
@pytest.mark.full
async def test_stop_without_the_target_ends_within_5_s(
    fault: str, source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """The promise for SIGTERM: it has a transaction open, and gives it up."""
    topic = unique_topic("gone")
    source.create_topic(topic, 2)
    more = "[copy]\nproducers = 2\ntransaction_s = 30\n"
    config = bridge_config(topic, source, target, topic, more)
    (node,) = target.nodes
    async with running_bridge(config) as (status, running):
        await until(lambda: status.problem is None, "the bridge copies", 60)
        await write(source, topic, {0: [Message(None, b"v")], 1: [Message(None, b"v")]})
        await until(lambda: status.lag() == 2, "the messages are seen", 60)
        await asyncio.to_thread(target.kill if fault == "killed" else target.pause, node)
        try:
            running.cancel()
            async with asyncio.timeout(PROMISED_S):
                await asyncio.wait([running])
        finally:
            await asyncio.to_thread(target.restart if fault == "killed" else target.resume, node)
    assert running.cancelled()
    assert status.records == 0
    assert (await copy(config)).records == 2


async def test_hung_workers_share_one_deadline_at_the_stop() -> None:
    """Otherwise each of them would take as long as the first."""
    waits: list[float] = []

    class HungWorker:
        is_running = True

        def request_stop(self, timeout_s: float) -> None:
            pass

        def join(self, timeout_s: float) -> None:
            waits.append(timeout_s)
            time.sleep(timeout_s)

    config = parse_config(
        'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="127.0.0.1:1"\n'
        '[topics]\ninclude=["t"]\n'
    )
    workers: list[Any] = [HungWorker() for _ in range(PRODUCERS)]
    sink = TransactionSink(config, Target(config), BridgeRun(), workers=workers)
    await sink.stop(0.2)
    assert len(waits) == PRODUCERS
    assert waits[1:] == pytest.approx([0.0] * (PRODUCERS - 1), abs=1e-6)
    assert sink.failure is not None


@pytest.mark.parametrize(("begins", "closed"), [(True, 0), (False, 1)])
async def test_worker_that_closes_itself_isnt_closed_again(begins: bool, closed: int) -> None:
    """The sink closes a worker only if its thread was never started."""
    config = parse_config(
        'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="127.0.0.1:1"\n'
        '[topics]\ninclude=["t"]\n'
    )
    closes: list[None] = []

    class Worker(TransactionWorker):
        def close(self) -> None:
            closes.append(None)
            super().close()

    target = Target(config)
    worker = Worker(worker_settings(config, target, 0, 1_000_000), list[SinkEvent]().append)
    sink = TransactionSink(config, target, BridgeRun(), workers=[worker])
    if begins:
        sink.run_workers({})
        await sink.stop(1.0)
        assert not worker.is_running
    closes.clear()
    await sink.close()
    assert len(closes) == closed


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_stop_while_the_target_hangs_frees_producers(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Callbacks that are never called would keep them, with their threads and descriptors."""
    topic = unique_topic("hangs")
    more = "[copy]\ntransaction_s = 60\n"
    config = write_config(tmp_path, topic, source, target, [topic], more)
    connection = Target(config)
    try:
        await connection.create_topic(TopicSpec(topic, 4, 1, {}))
    finally:
        await connection.close()
    stopped = await stop_while_it_hangs(config, topic, target)

    def is_freed() -> bool:
        gc.collect()
        return stopped() is None

    # An executor thread may hold its last call for a moment after that has returned.
    await until(is_freed, "the worker is freed", timeout_s=5, pause_s=0.05)


async def stop_while_it_hangs(
    config: BridgeConfig, topic: str, target: RealCluster
) -> weakref.ref[TransactionWorker]:
    """Stop a worker that has messages on their way to a paused target."""
    events: list[SinkEvent] = []
    connection = Target(config)
    worker = TransactionWorker(worker_settings(config, connection, 0, 1_000_000), events.append)
    await connection.close()
    await asyncio.to_thread(worker.initialise)
    worker.start({})

    async def put_all(first: int) -> None:
        before = len(events)
        for number in range(4):
            tp = TopicPartition(topic, number)
            records = [
                ConsumerRecord(topic, number, offset, -1, 0, None, b"v", None, -1, 1, ())
                for offset in range(first, first + 100)
            ]
            worker.put(Chunk(0, tp, tp, records, first + 100, 100))
        await until(lambda: len(events) >= before + 4, "the chunks are taken", 30)

    def is_acknowledged() -> bool:
        worker._producer.poll(0)  # the thread polls only with the next chunk
        return worker.unacknowledged == 0

    (node,) = target.nodes
    try:
        await put_all(0)
        await until(is_acknowledged, "all is acknowledged", 30)
        await asyncio.to_thread(target.pause, node)
        await put_all(100)
        worker.request_stop(1.0)
        await asyncio.to_thread(worker.join, 30.0)
        assert isinstance(events[-1], WorkerFailed)  # the transaction wasn't committed
        await asyncio.to_thread(worker.close)
    finally:
        await asyncio.to_thread(target.resume, node)
    return weakref.ref(worker)
