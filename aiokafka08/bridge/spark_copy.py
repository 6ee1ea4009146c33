"""Copy large histories with Spark, exactly once, with `kafka08` and the bridge's transactions.

Each round reads a limited number of offsets from the positions on, with one Spark job per producer
of the bridge. A job's only task writes rows and positions in the same transactions (`spark_task`),
so a round needs no checkpoint, and `bridge run` with the same configuration file continues where
the last job ended.

Invariant: a partition of the source is always written with the transactional id that
`claims.producer_of` gives it. So a task that Spark took for dead is fenced before another one reads
the positions.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08._wording import partition_text
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_session import CopySession, PreparedCopy
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError
from aiokafka08.bridge.sink.claims import producer_of
from aiokafka08.bridge.sink.sink import BridgeRun, check_claims, read_claims
from aiokafka08.bridge.sink.spark_task import RangeToCopy, SparkPart
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.errors import IllegalArgumentError, KafkaError
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_log: Final = logging.getLogger("aiokafka08.bridge")

_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "timestamp")

Positions = Mapping[TopicPartition, int]


def copy_with_spark(
    spark: SparkSession,
    config: BridgeConfig,
    *,
    records_per_round: int = 5_000_000,
    on_round: Callable[[Positions], object] = lambda positions: None,
) -> dict[TopicPartition, int]:
    """Copy all that the source has now, and return the positions after it.

    The call may be killed and repeated at any time: it continues at the last commit. A newer start
    of the same bridge, with Spark or by `bridge run`, fences it.

    Args:
        spark: the session; the format `kafka08` is registered in it.
        config: the file of the bridge. `copy.producers` tasks write at the same time; `copy.rate`
            isn't used.
        records_per_round: the most offsets that a round reads, over all partitions (default 5
            million).
        on_round: called with the positions after each round (default: does nothing).

    Raises:
        IllegalArgumentError: `records_per_round` is below 1.
        BridgeFencedError: a newer start has taken over.
        BridgeError: the bridge or a cluster needs a change by hand.
        UnsupportedVersionError: the target is below 0.11.
        KafkaError: a cluster doesn't respond, or the source has lost messages.
        PySparkException: a job failed, after Spark's own retries.
    """
    from aiokafka08.spark import register

    if records_per_round < 1:
        raise IllegalArgumentError(f"records_per_round={records_per_round}: expected at least 1")
    register(spark)
    from aiokafka08.bridge.sink.spark_sink import register_sink

    run = BridgeRun()
    prepared = _run(_prepare(config, run))
    _log.info("%s: Spark copies %d partitions", config.client_id, len(prepared.positions))
    ends = _run(_log_ends(config, list(prepared.positions)))
    # Advance positions only after a committed round. A round that fails ends the call; another call
    # continues at the committed positions.
    positions = {tp: at for tp, (_, at) in prepared.positions.items()}
    while wanted := plan_round(positions, ends, records_per_round):
        parts = divide(config, run, prepared, wanted)
        try:
            sinks = [register_sink(spark, part) for part in parts]
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(partial(_copy_part, spark), parts, sinks))
        except Exception:
            _run(_check_owner(config, run))  # names the newer start, if that is the reason
            raise
        positions |= {tp: end for tp, (_, end) in wanted.items()}
        on_round(positions)
    return positions


def plan_round(
    positions: Positions, ends: Positions, most: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Return each partition's range [start, end) of a round; {} if everything has been read.

    Args:
        positions: the next offset of each partition.
        ends: where each partition ends.
        most: the most offsets of a round; each partition gets its share, and at least one offset.

    Raises:
        BridgeError: a log ends before its position.
    """
    left = {tp: ends[tp] - at for tp, at in positions.items()}
    for tp, count in left.items():
        if count < 0:
            raise BridgeError(
                f"{partition_text(tp)}: the source's log ends at "
                f"{ends[tp]}, but offsets up to {positions[tp] - 1} were copied: it was truncated, "
                "or the topic was recreated. 'bridge run' copies the other partitions"
            )
    share = min(1.0, most / max(sum(left.values()), 1))
    return {
        tp: (positions[tp], positions[tp] + max(int(count * share), 1))
        for tp, count in left.items()
        if count
    }


def divide(
    config: BridgeConfig,
    run: BridgeRun,
    prepared: PreparedCopy,
    wanted: Mapping[TopicPartition, tuple[int, int]],
) -> list[SparkPart]:
    """Return the part of each producer that has something to copy."""
    ranges: dict[int, list[RangeToCopy]] = {}
    for tp in sorted(wanted):
        number = producer_of(tp, config.copy.producers)
        copy = prepared.positions[tp][0]
        ranges.setdefault(number, []).append(RangeToCopy(tp, copy, *wanted[tp]))
    return [
        SparkPart(config, run.id, number, prepared.batch_bytes, tuple(some))
        for number, some in sorted(ranges.items())
    ]


def source_options(part: SparkPart) -> dict[str, str]:
    """Return the options with which `kafka08` reads a part."""
    config = part.config
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for range_ in part.ranges:
        topic, number = range_.source
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = range_.start
        ends.setdefault(topic, {})[str(number)] = range_.end
    return {
        **{f"kafka.{name}": value for name, value in config.source.properties.items()},
        "kafka.bootstrap.servers": config.source.bootstrap,
        "kafka.client.id": config.client_id,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "minPartitions": "1",  # no partition is split, so its rows come in order
        "headers": "refuse",
    }


def _copy_part(spark: SparkSession, part: SparkPart, sink: str) -> None:
    from aiokafka08.bridge.sink.spark_sink import save

    frame = spark.read.format("kafka08").options(**source_options(part)).load()
    save(spark, frame.select(*_COLUMNS), sink)


async def _prepare(config: BridgeConfig, run: BridgeRun) -> PreparedCopy:
    await refuse_old_target(config)
    status = CopyStatus()
    # The session's claim fences older starts, so no other process moves these positions.
    prepared = await CopySession(config, status, run).prepare()
    problems = [*status.stopped.values(), *status.refused_topics.values()]
    if problems:
        raise BridgeError("; ".join(problems))
    return prepared


async def _log_ends(config: BridgeConfig, partitions: list[TopicPartition]) -> Positions:
    source = SourceReader(config)
    try:
        await source.start()
        bounds = await source.bounds(partitions)
    finally:
        await source.stop()
    return {tp: end for tp, (_, end) in bounds.items()}


async def _check_owner(config: BridgeConfig, run: BridgeRun) -> None:
    target = Target(config)
    try:
        check_claims(config, await read_claims(config, target), run.id)
    except KafkaError as error:
        if not error.retriable:
            raise
    finally:
        await target.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    # Run it in a thread, since a notebook already runs an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
