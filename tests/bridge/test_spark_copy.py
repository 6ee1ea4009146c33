"""The copy by Spark: its rounds, the writer of a task on a real 4.1.0, and jobs that are killed."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_session import CopySession, PreparedCopy
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import BridgeError, BridgeFencedError, TargetError
from aiokafka08.bridge.sink.claims import producer_of
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.sink.spark_task import PartWriter, SparkPart
from aiokafka08.bridge.sink.worker import TransactionWorker
from aiokafka08.bridge.spark_copy import divide, plan_round
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import Message, TargetReader, bridge_config, bridge_text, copy, write
from tests.bridge.hand_copy import create_topics
from tests.brokers import RealCluster
from tests.spark.conftest import PACKAGES, SHORT_JVM, quick_home
from tests.support.paths import ROOT

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_round_shares_its_records_among_partitions() -> None:
    assert plan_round({A: 10, B: 0}, {A: 40, B: 10}, 20) == {A: (10, 25), B: (0, 5)}
    assert plan_round({A: 10, B: 0}, {A: 40, B: 10}, 100) == {A: (10, 40), B: (0, 10)}
    assert plan_round({A: 0, B: 0}, {A: 1000, B: 1}, 10)[B] == (0, 1)
    assert plan_round({A: 40, B: 10}, {A: 40, B: 10}, 20) == {}


def test_log_that_ends_before_its_position_is_refused() -> None:
    with pytest.raises(BridgeError, match="log ends at 3, but offsets up to 9 were copied"):
        plan_round({A: 10}, {A: 3}, 20)


def test_each_producer_gets_its_partitions() -> None:
    """Those that `producer_of` gives it: so `bridge run` and Spark fence each other."""
    text = 'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="b:1"\n[topics]\n'
    config = parse_config(text + 'include=["a"]\n[copy]\nproducers=4\n')
    tps = [TopicPartition("a", number) for number in range(20)]
    prepared = PreparedCopy({tp: (tp, 0) for tp in tps}, 1000)
    parts = divide(config, BridgeRun(), prepared, dict.fromkeys(tps, (0, 5)))
    assert sorted(one.source for part in parts for one in part.ranges) == tps
    for part in parts:
        assert {producer_of(one.source, 4) for one in part.ranges} == {part.producer}


def arrow(
    topic: str, rows: Sequence[int], stamp: datetime.datetime | None = None, *, keys: bool = True
) -> object:
    """Return rows of partition 0 as Spark passes them on; without `keys` these are null."""
    pa = pytest.importorskip("pyarrow")
    stamps = pa.array([stamp] * len(rows), pa.timestamp("us", "UTC"))
    return pa.record_batch(
        {
            "topic": pa.array([topic] * len(rows)),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(list(rows), pa.int64()),
            "key": pa.array([b"%d" % one if keys else None for one in rows], pa.binary()),
            "value": pa.array([b"v%d" % one if one % 3 else None for one in rows], pa.binary()),
            "timestamp": stamps,
        }
    )


def expected(rows: Sequence[int]) -> list[Message]:
    return [Message(b"%d" % one, b"v%d" % one if one % 3 else None) for one in rows]


async def prepare(config: BridgeConfig, end: int) -> SparkPart:
    """Claim the bridge, and return the part of its only partition."""
    run = BridgeRun()
    prepared = await CopySession(config, CopyStatus(), run).prepare()
    wanted = {tp: (at, end) for tp, (_, at) in prepared.positions.items()}
    [part] = divide(config, run, prepared, wanted)
    return part


async def in_thread(part: SparkPart, *batches: object, finish: bool = True) -> None:
    """Write batches as a task does."""

    def work() -> None:
        writer = PartWriter(part)
        try:
            for one in batches:
                writer.write(one)
            if finish:
                writer.finish()
        finally:
            writer.close()

    await asyncio.to_thread(work)


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_repeated_task_writes_each_row_once(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """An attempt that fails in the middle, a second one, and one that comes too late."""
    topic = unique_topic("task")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_records = 10\n")
    part = await prepare(config, 50)
    await in_thread(part, arrow(topic, range(20)), finish=False)
    rows = arrow(topic, range(45))  # a hole at the end
    await in_thread(part, rows)
    await in_thread(part, rows)
    assert await asyncio.to_thread(reader.messages, topic) == {0: expected(range(45))}
    status = CopyStatus()
    source_end = (await prepare_positions(config))[TopicPartition(topic, 0)]
    assert source_end == 50
    assert status.records == 0


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_rows_that_share_an_offset_are_in_one_transaction(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """An attempt ends between two of them, as do batches: none is lost, none twice."""
    topic = unique_topic("shared")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_records = 1\n")
    part = await prepare(config, 3)
    batches = [arrow(topic, offsets) for offsets in ([0, 1], [1, 1], [1, 2, 2])]
    await in_thread(part, *batches[:2], finish=False)
    await in_thread(part, *batches)
    await in_thread(part, *batches)
    assert await asyncio.to_thread(reader.messages, topic) == {0: expected([0, 1, 1, 1, 1, 2, 2])}


async def prepare_positions(config: BridgeConfig) -> dict[TopicPartition, int]:
    prepared = await CopySession(config, CopyStatus(), BridgeRun()).prepare()
    return {tp: at for tp, (_, at) in prepared.positions.items()}


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_later_attempt_fences_an_older_one(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Spark took the older task for dead, but it goes on: it fails, and nothing is twice."""
    topic = unique_topic("zombie")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    part = await prepare(config, 20)
    zombie = await asyncio.to_thread(PartWriter, part)
    try:
        await asyncio.to_thread(zombie.write, arrow(topic, range(10)))
        await in_thread(part, arrow(topic, range(20)))
        with pytest.raises(TargetError, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
            await asyncio.to_thread(zombie.finish)
    finally:
        await asyncio.to_thread(zombie.close)
    assert await asyncio.to_thread(reader.messages, topic) == {0: expected(range(20))}


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_task_of_an_older_claim_is_fenced(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """`bridge run` has started since: it isn't disturbed."""
    topic = unique_topic("claimed")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    part = await prepare(config, 20)
    await prepare(config, 20)
    with pytest.raises(BridgeFencedError, match="a newer start has taken over"):
        await in_thread(part, arrow(topic, range(20)))


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_task_claimed_during_its_start_is_fenced(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`bridge run` starts between the first look at the claims and the task's own producer.

    The task then takes the transactional id from the newer start, and must not write with it.
    """
    topic = unique_topic("between")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    part = await prepare(config, 20)
    initialise = TransactionWorker.initialise

    def claimed_meanwhile(worker: TransactionWorker) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(TransactionWorker, "initialise", initialise)
            asyncio.run(prepare(config, 20))
        initialise(worker)

    monkeypatch.setattr(TransactionWorker, "initialise", claimed_meanwhile)
    with pytest.raises(BridgeFencedError, match="a newer start has taken over"):
        await in_thread(part, arrow(topic, range(20)))


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_first_positions_that_fail_name_the_reason(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a task would say that the group was set back."""
    topic = unique_topic("first")
    source.create_topic(topic)
    await write(source, topic, {0: expected(range(5))})
    config = bridge_config(topic, source, target, topic, '[copy]\nstart = "latest"\n')

    def fail(worker: TransactionWorker, transaction: object) -> None:
        raise TargetError("the quota of the group is used up")

    with monkeypatch.context() as patch:
        patch.setattr(TransactionWorker, "_send_positions", fail)
        with pytest.raises(KafkaError, match="the quota of the group is used up"):
            await prepare(config, 5)
    assert await prepare_positions(config) == {TopicPartition(topic, 0): 5}


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_rows_that_are_not_in_order_are_refused(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    topic = unique_topic("order")
    source.create_topic(topic)
    part = await prepare(bridge_config(topic, source, target, topic), 20)
    with pytest.raises(BridgeError, match="offset 3 came after 9; expected rows in order"):
        await in_thread(part, arrow(topic, range(10)), arrow(topic, range(3, 12)))


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.full
async def test_refused_row_is_named_by_its_transaction(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """A task can't read its rows again to find it; the bridge, which can, goes on with it."""
    topic = unique_topic("null")
    source.create_topic(topic)
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, {topic: 1}, {"cleanup.policy": "compact"}
    )
    await write(source, topic, {0: [*expected(range(20)), Message(None, b"no key")]})
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_records = 10\n")
    part = await prepare(config, 21)
    rows = arrow(topic, range(20)), arrow(topic, range(20, 21), keys=False)
    with pytest.raises(TargetError) as failed:
        await in_thread(part, *rows)
    assert "INVALID_RECORD" in failed.value.text
    # Row 19 waits for the next one, which might share its offset; so it comes with row 20.
    where = rf"topic {topic!r}, partition 0, offsets (19|20) to 20 of the source"
    assert re.search(where, failed.value.text)
    named = (await copy(config)).stopped[TopicPartition(topic, 0)]
    assert "the target refuses the record at offset 20 of the source: INVALID_RECORD" in named


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_timestamps_of_rows_are_kept(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    topic = unique_topic("stamped")
    source.create_topic(topic)
    stamp = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
    part = await prepare(bridge_config(topic, source, target, topic), 3)
    await in_thread(part, arrow(topic, range(3), stamp))
    found = (await asyncio.to_thread(reader.read, topic))[0]
    assert [one.timestamp()[1] for one in found] == [round(stamp.timestamp() * 1000)] * 3


class SparkJob:
    """An example in a process group of its own, with a local Spark of two cores."""

    def __init__(self, folder: Path, example: str, *arguments: str, submit: str = "") -> None:
        self.log = folder / "spark.log"
        environment = {
            **os.environ,
            "PYTHONPATH": PACKAGES,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": quick_home(),
            "PYSPARK_SUBMIT_ARGS": (
                f"{submit} --master local[2] --conf spark.ui.enabled=false "
                "--conf spark.python.authenticate.socketTimeout=120s "
                f"--conf spark.local.dir={folder} "  # a JVM that is killed leaves its files
                '--conf "spark.driver.extraJavaOptions='
                f'{SHORT_JVM} -Djava.io.tmpdir={folder}" pyspark-shell'
            ),
        }
        environment.pop("PYTHONASYNCIODEBUG", None)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "examples" / example), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd=folder,
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self, *, all_processes: bool) -> None:
        """Kill the driver's Python alone, so that its JVM dies later; or all at once."""
        if all_processes:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Kill what is left of the group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class CopiedCount:
    """How many offsets a bridge has committed, asked of the target while a job copies."""

    def __init__(self, target: RealCluster, topic: str, partitions: int) -> None:
        self._wanted = [confluent_kafka.TopicPartition(topic, one) for one in range(partitions)]
        group = f"aiokafka08-bridge.{topic}"
        settings = {
            "bootstrap.servers": target.bootstrap_servers,
            "group.id": group,
            # Else it waits for the transaction that a killed job has left open.
            "isolation.level": "read_uncommitted",
        }
        self._consumer = confluent_kafka.Consumer(settings)

    def now(self) -> int:
        try:
            found = self._consumer.committed(self._wanted, timeout=30)
        except confluent_kafka.KafkaException:  # before the first job has made the topic
            return 0
        return sum(max(one.offset, 0) for one in found)

    def close(self) -> None:
        self._consumer.close()


def kill_jobs(
    source: RealCluster,
    target: RealCluster,
    topic: str,
    folder: Path,
    kills: int,
    seed: int,
    count: CopiedCount,
    total: int,
) -> None:
    """Kill each job when it has copied a random share of what is left; let the last one end."""
    chance = random.Random(seed)
    file = folder / f"{topic}.toml"
    more = "[copy]\nproducers = 2\ntransaction_records = 1000\n"
    file.write_text(bridge_text(topic, source, target, topic, more))
    jobs: list[SparkJob] = []
    arguments = (folder, "spark_bridge.py", str(file), "--records-per-round", "15000")
    try:
        for number in range(kills):
            jobs.append(job := SparkJob(*arguments))
            before = count.now()
            # The first job is killed in its first round, others also behind it.
            goal = before + chance.randint(1, (total - before) // (2 * (kills - number) + 1))
            deadline = time.monotonic() + 240
            while count.now() < goal:
                assert job.process.poll() is None, job.text()[-4000:]
                assert time.monotonic() < deadline, job.text()[-4000:]
                time.sleep(0.02)
            assert job.process.poll() is None, "it has ended before the kill"
            job.kill(all_processes=chance.random() < 0.5)
            assert before < count.now() < total, "nothing was left to copy"
        jobs.append(last := SparkJob(*arguments))
        assert last.process.wait(600) == 0, last.text()[-4000:]
    finally:
        for job in jobs:
            job.close()
        count.close()


async def check_killed_jobs(
    source: RealCluster, target: RealCluster, topic: str, folder: Path, kills: int, seed: int
) -> None:
    """Fill a topic, kill jobs, and compare what the target holds."""
    partitions = 5
    await asyncio.to_thread(source.create_topic, topic, partitions)
    written = {
        number: [
            Message(
                b"%d" % one if one % 7 else None, b"%d-%d" % (number, one) if one % 11 != 1 else b""
            )
            for one in range(3_000 * kills * (number + 1) // 3 + 5_000)
        ]
        for number in range(partitions)
    }
    await write(source, topic, written)
    total, count = sum(map(len, written.values())), CopiedCount(target, topic, partitions)
    await asyncio.to_thread(kill_jobs, source, target, topic, folder, kills, seed, count, total)
    reader = TargetReader(target)
    try:
        found = await asyncio.to_thread(reader.messages, topic)
    finally:
        reader.close()
    for number, messages in written.items():
        assert len(found[number]) == len(messages)
        assert found[number] == messages
    # `bridge run` goes on behind the job, in the same file.
    await write(source, topic, {0: [Message(b"more", b"more")]})
    status = CopyStatus()
    config = bridge_config(topic, source, target, topic)
    await run_bridge(config, status, until_caught_up=True)
    assert status.records == 1


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.full
async def test_killed_spark_job_copies_once_and_in_order(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    await check_killed_jobs(source, target, unique_topic("spark"), tmp_path, 1, seed=1)


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_ten_killed_spark_jobs_lose_nothing(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    await check_killed_jobs(source, target, unique_topic("spark"), tmp_path, 10, seed=7)


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(600)
async def test_drain_example_writes_to_4x_by_sparks_sink(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """With the jars of Spark's own sink, which Spark gets from Maven."""
    topic = unique_topic("drain")
    await asyncio.to_thread(source.create_topic, topic, 2)
    create_topics(target.bootstrap_servers, {topic: 2})
    written = {0: expected(range(100)), 1: expected(range(7))}
    await write(source, topic, written)
    servers = ("--source", source.bootstrap_servers, "--target", target.bootstrap_servers)
    job = SparkJob(
        tmp_path,
        "spark_drain.py",
        *("--sink", "kafka", *servers, "--topic", topic, "--checkpoint", str(tmp_path / "c")),
        submit="--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    )
    try:
        assert await asyncio.to_thread(job.process.wait, 400) == 0, job.text()[-4000:]
    finally:
        job.close()
    assert await asyncio.to_thread(reader.messages, topic) == written
