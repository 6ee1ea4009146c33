"""The cluster, as the driver and the tasks see it: plain calls over the asynchronous client.

Spark calls from threads without an event loop. `Brokers` has one of its own, which runs only while
a call lasts; connections and metadata stay from call to call. Law: asking costs one Metadata
request, and one ListOffsets request per broker and question (up to three, and a Fetch, for times),
however many partitions there are; and it never creates a topic.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Self, TypeVar

from aiokafka08.consumer.range import RawSet, read_range
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError, KafkaError
from aiokafka08.helpers import create_ssl_context
from aiokafka08.net.cluster import INTERNAL_TOPICS
from aiokafka08.net.config import NetConfig, net_config
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.offsets_for_times import offsets_for_times
from aiokafka08.net.router import Router
from aiokafka08.protocol import api
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, MessageSetReader
from aiokafka08.spark.offsets import Offsets
from aiokafka08.spark.options import ByTime, NoMatch, ReadOptions
from aiokafka08.spark.planning import Resolved, choose_partitions, went_back
from aiokafka08.spark.properties import TLS, Properties
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Telemetry

_logger = logging.getLogger("aiokafka08.spark")

T = TypeVar("T")

_SCANS = 8
"""How many partitions are searched for a time at once."""
_SCAN_RECORDS = 4096


def ssl_context(tls: TLS | None) -> ssl.SSLContext | None:
    """The context that the options describe.

    Raises:
        KafkaConfigurationError: a file can't be read, or isn't PEM; names it.
    """
    if tls is None:
        return None
    try:
        context = create_ssl_context(
            cafile=tls.cafile, certfile=tls.certfile, password=tls.password or None
        )
    except OSError as error:
        raise KafkaConfigurationError(
            f"kafka.ssl.truststore.location={tls.cafile!r}, kafka.ssl.keystore.location="
            f"{tls.certfile!r}: {error}; the files must be on each executor"
        ) from error
    context.check_hostname = tls.check_hostname
    return context


def network(client: Properties) -> NetConfig:
    """The network's options, with this client's defaults. Raises as `net_config`."""
    defaults: dict[str, Any] = {
        "client_id": "aiokafka08-spark",
        "request_timeout_ms": 30_000,
        "retry_backoff_ms": 100,
        "metadata_max_age_ms": 300_000,
        "connections_max_idle_ms": 540_000,
        "api_version": None,
        "security_protocol": "PLAINTEXT",
    }
    return net_config(**{**defaults, **client.network}, ssl_context=ssl_context(client.tls))


class Brokers:
    """A connected client with plain calls; made by whoever closes it."""

    def __init__(self, client: Properties) -> None:
        config = network(client)
        self._runner = asyncio.Runner()
        try:
            self.router = self._runner.run(_started(config))
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        try:
            self._runner.run(self.router.stop())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop."""
        return self._runner.run(work)


class Driver:
    """What the driver asks: partitions, and the ends of their logs, tried again as options say."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._brokers: Brokers | None = None

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.close()

    def partitions(
        self, *, known: Collection[TopicPartition] | None = None
    ) -> tuple[TopicPartition, ...]:
        """The partitions that the options name, from one Metadata request.

        Args:
            known: those that were there before, None for the first time. Where one is missing the
                cluster is asked again, as often as `fetchOffset.numRetries` says: a broker that
                just came up may not know of all. What is missing then is left out.

        Raises:
            UnknownTopicOrPartitionError: one isn't there, for the first time.
            KafkaError: the cluster can't be asked.
        """
        for left in range(self._options.fetch_offset_retries, -1, -1):
            found = self._partitions(missing_ok=known is not None)
            if not left or set(known or ()) <= set(found):
                return found
            time.sleep(self._options.fetch_offset_interval_s)
        raise AssertionError("not reached")

    def _partitions(self, *, missing_ok: bool) -> tuple[TopicPartition, ...]:
        snapshot = self._ask(lambda router: router.metadata.refresh())
        known = {name: sorted(info.partitions) for name, info in snapshot.topics.items()}
        internal = {name for name, info in snapshot.topics.items() if info.is_internal}
        return choose_partitions(
            self._options.topics, known, internal | INTERNAL_TOPICS, missing_ok=missing_ok
        )

    def earliest(self, partitions: Collection[TopicPartition]) -> Resolved:
        """The first offset of each partition."""
        return self._ask(lambda router: _ends(router, partitions, api.EARLIEST))

    def latest(self, partitions: Collection[TopicPartition], known: Offsets) -> Resolved:
        """The offset behind the last message of each partition.

        Args:
            partitions: which.
            known: offsets that were ends before. One below that may be a new leader's that hasn't
                caught up: it is asked again, as often as `fetchOffset.numRetries` says.
        """

        async def ask(router: Router) -> Resolved:
            found = await _ends(router, partitions, api.LATEST)
            for _ in range(self._options.fetch_offset_retries):
                back = went_back(found, known)
                if not back:
                    break
                await asyncio.sleep(self._options.fetch_offset_interval_s)
                router.metadata.request_refresh()
                found.update(await _ends(router, list(back), api.LATEST))
            return found

        return self._ask(ask)

    def by_time(
        self, bound: ByTime, partitions: Collection[TopicPartition], latest: Offsets, *, start: bool
    ) -> Resolved:
        """The first offset of a time or later, for each partition.

        Brokers from 0.10.1 on find it. Where they can't, segments are known, and the log is read
        from there up to the message if messages have timestamps (all do on 0.10.0).

        Args:
            bound: the times.
            partitions: which; with times of their own, those are named in `bound`.
            latest: the ends of their logs.
            start: where a query begins: then `startingOffsetsByTimestampStrategy` decides where
                there is no such message. A query ends at the latest offset then.

        Raises:
            IllegalArgumentError: there is no such message, or messages have no timestamps, and the
                options don't say what to do then.
        """
        times = bound.timestamps_ms
        wanted = {tp: bound.at_ms or 0 if times is None else times[tp] for tp in partitions}
        return self._ask(
            lambda router: _by_time(router, self._options, bound.option, wanted, latest, start)
        )

    def _ask(self, question: Callable[[Router], Coroutine[Any, Any, T]]) -> T:
        """Ask, and ask again after errors that pass."""
        for left in range(self._options.fetch_offset_retries, -1, -1):
            try:
                if self._brokers is None:
                    self._brokers = Brokers(self._options.client)
                return self._brokers.run(question(self._brokers.router))
            except KafkaError as error:
                if not error.retriable or not left:
                    raise
                _logger.warning("asking the cluster again, %d times at most: %s", left, error)
                self.close()
                time.sleep(self._options.fetch_offset_interval_s)
        raise AssertionError("not reached")


# --- on the loop ----------------------------------------------------------------------------------


def sets_of(
    router: Router, options: ReadOptions, tp: TopicPartition, start: int, end: int
) -> AsyncGenerator[RawSet, None]:
    """`read_range`, as the options say."""
    own = options.client.own
    sizes = {name: own[name] for name in ("max_bytes", "limit_bytes") if name in own}
    timeout_s = options.poll_timeout_s
    # An error comes when the driver, too, would give up on a partition that isn't known any more.
    # Where the query goes on without it that has to be sure: a whole cluster may be coming up.
    missing_s = timeout_s / 2
    if options.fail_on_data_loss:
        missing_s = min(missing_s, options.fetch_offset_retries * options.fetch_offset_interval_s)
    return read_range(router, tp, start, end, timeout_s=timeout_s, missing_s=missing_s, **sizes)


def reader_of(options: ReadOptions, tp: TopicPartition, raw: RawSet) -> MessageSetReader:
    """What decodes a set of `sets_of`, as the options say."""
    return MessageSetReader(
        tp,
        raw.message_set,
        raw.fetch_offset,
        check_crcs=options.client.own.get("check_crcs", True),
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
        end_offset=raw.end_offset,
    )


async def _started(config: NetConfig) -> Router:
    router = Router(config, Telemetry())
    # A request that names a topic would create it on brokers that do so.
    router.metadata.all_topics, router.metadata.by_name = True, False
    await router.start()
    return router


async def _ends(router: Router, partitions: Collection[TopicPartition], which: int) -> Resolved:
    if not partitions:
        return {}
    found = await list_offsets(router, dict.fromkeys(partitions, which))
    return {tp: offsets[0] if offsets else 0 for tp, offsets in found.items()}


async def _by_time(
    router: Router,
    options: ReadOptions,
    option: str,
    wanted: Mapping[TopicPartition, int],
    latest: Offsets,
    start: bool,
) -> Resolved:
    strategy = options.no_match
    found = await offsets_for_times(router, wanted)
    known = {
        tp: min(one.offset, latest[tp])
        for tp, one in found.items()
        if one is not None and one.timestamp is not None
    }
    room = asyncio.Semaphore(_SCANS)

    async def one(tp: TopicPartition) -> int:
        where = f"{option}={wanted[tp]}: topic {tp.topic!r}, partition {tp.partition}"
        segment = found[tp]
        if segment is not None:
            async with room:
                offset, has_timestamps = await _scan(
                    router, options, tp, wanted[tp], segment.offset, latest[tp]
                )
            if not has_timestamps:
                if strategy is NoMatch.SEGMENT:
                    return segment.offset
                raise IllegalArgumentError(
                    f"{where}: the messages have no timestamps (format 0); set the option "
                    "startingOffsetsByTimestampStrategy to 'segment' to take the first segment of "
                    "the log that was written to at that time or later"
                )
            if offset is not None:
                return offset
        if start and strategy is NoMatch.ERROR:
            raise IllegalArgumentError(
                f"{where} has no message of that time or later; set the option "
                "startingOffsetsByTimestampStrategy to 'latest' to begin at the end then"
            )
        return latest[tp]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {tp: group.create_task(one(tp)) for tp in wanted if tp not in known}
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # one tells what is wrong, and whether it passes
    return known | {tp: task.result() for tp, task in tasks.items()}


async def _scan(
    router: Router, options: ReadOptions, tp: TopicPartition, at_ms: int, start: int, end: int
) -> tuple[int | None, bool]:
    """The first offset from `start` on of this time or later, and whether there are timestamps."""
    async with aclosing(sets_of(router, options, tp, start, end)) as sets:
        async for raw in sets:
            reader = reader_of(options, tp, raw)
            while records := reader.read(_SCAN_RECORDS):
                for record in records:
                    if record.timestamp is None:
                        return None, False
                    if record.timestamp >= at_ms:
                        return record.offset, True
    return None, True
