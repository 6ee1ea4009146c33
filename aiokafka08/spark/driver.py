"""Request partitions and offsets from the cluster with blocking calls, and connect tasks to it.

Spark calls the data source from threads that run no event loop. `BlockingClient` owns an event loop
that runs only during a call; `DriverClient` uses it on the Spark driver.

Invariant: once connected and without retries, a call of `DriverClient` costs one Metadata request,
or one ListOffsets request per broker, however many partitions there are; a search by timestamp
costs up to three per broker, and Fetch requests for partitions whose broker has no timestamp index.
No call creates a topic.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final, Self, TypeVar

from aiokafka08._core.names import did_you_mean
from aiokafka08._core.net.cluster import INTERNAL_TOPICS, ClusterSnapshot, PartitionLeaders
from aiokafka08._core.net.config import NETWORK_DEFAULTS, NetConfig, address_text, net_config
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.offsets_for_times import offsets_for_times
from aiokafka08._core.net.retry import is_final
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.tls import ssl_context
from aiokafka08._core.properties import TlsOptions
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08._core.ranges.range_reader import MAX_IN_FLIGHT, RawSet, read_range
from aiokafka08._wording import partition_text
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaUnavailableError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, MessageSetReader
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.spark.offsets import PartitionOffsets
from aiokafka08.spark.options import NoMatchStrategy, ReadOptions, TimestampBound
from aiokafka08.spark.planning import (
    ResolvedOffsets,
    choose_partitions,
    find_ends_below,
    is_selected,
)
from aiokafka08.spark.properties import ClientProperties
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Telemetry

_log: Final = logging.getLogger("aiokafka08.spark")

T = TypeVar("T")

# How long to try to reach a first broker if kafka.request.timeout.ms isn't set. Including the start
# of a Python process, Spark then reports a wrong address within 30 s.
_FIRST_BROKER_MS: Final = 25_000
# The shortest pause between two requests to brokers that don't know the topics yet.
_MIN_RETRY_S: Final = 0.1
# How many logs are searched for a timestamp at the same time.
_MAX_CONCURRENT_SCANS: Final = 8
# How many records are decoded at a time in such a search.
_SCAN_RECORDS: Final = 4096


def executor_ssl_context(tls: TlsOptions | None) -> ssl.SSLContext | None:
    """Return the SSL context, None without TLS; an error says where Spark needs the files."""
    hint = ". Copy them to the same path on the driver and on each executor"
    return ssl_context(tls, prefix="kafka.", hint=hint)


def task_network(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a client, with the keytab's path on this machine."""
    keytab = network.get("sasl_kerberos_keytab")
    if keytab is None or os.path.exists(keytab):
        return dict(network)
    # A file of `--files` is in the working directory on YARN and Kubernetes, but elsewhere only in
    # a folder that Spark names. In the driver's Python process of a stream, Spark names a subfolder
    # instead, which doesn't have the file.
    from pyspark import SparkFiles

    named = SparkFiles.getRootDirectory()
    folders = (named, os.path.dirname(named))
    shipped = (os.path.join(folder, os.path.basename(keytab)) for folder in folders)
    return {**network, "sasl_kerberos_keytab": next(filter(os.path.exists, shipped), keytab)}


def start_timeout_ms(network: Mapping[str, Any]) -> int:
    """Return how long to try to reach a first broker, in ms."""
    return int(network.get("request_timeout_ms", _FIRST_BROKER_MS))


def network_config(client: ClientProperties) -> NetConfig:
    """Return the network configuration, with the defaults of this data source.

    Raises as `net_config`.
    """
    return net_config(
        **{
            **NETWORK_DEFAULTS,
            "client_id": client.client_id,
            "request_timeout_ms": 30_000,
            "start_timeout_ms": start_timeout_ms(client.network),
            **task_network(client.network),
            "ssl_context": executor_ssl_context(client.tls),
        }
    )


def name_start_options(error: NoBrokersAvailable, client: ClientProperties) -> None:
    """Add to the error of a failed start what to do in Spark."""
    error.args = (
        f"{error.text}. In Spark: start the brokers, or correct the option "
        "kafka.bootstrap.servers, or set kafka.request.timeout.ms above "
        f"{start_timeout_ms(client.network)}: it limits the wait for a first broker. A stream that "
        "is started again goes on from its checkpoint",
    )


class _PausingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while the loop doesn't run."""

    # Spark may process a batch for minutes before it calls for the next one. This time must not
    # count as time without progress: no timeout of a request in flight or of a range may end in it.

    def __init__(self) -> None:
        self._stopped_at: float | None = None
        self._paused_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the seconds of `time.monotonic()` in which the loop ran, from any origin."""
        now = super().time() if self._stopped_at is None else self._stopped_at
        return now - self._paused_s

    def run_forever(self) -> None:
        """Run until the loop is stopped."""
        if self._stopped_at is not None:
            self._paused_s += super().time() - self._stopped_at
            self._stopped_at = None
        try:
            super().run_forever()
        finally:
            self._stopped_at = super().time()


class BlockingClient:
    """A started `Router` with an event loop of its own. The caller that creates it closes it.

    Args:
        client: the options `kafka.*`.
        leaders: start with the metadata of another client, without a Metadata request.
    """

    def __init__(self, client: ClientProperties, leaders: PartitionLeaders | None = None) -> None:
        config = network_config(client)
        self._runner = asyncio.Runner(loop_factory=_PausingLoop)
        try:
            self.router = self._runner.run(_start_router(config, leaders))
        except NoBrokersAvailable as error:
            self._runner.close()
            name_start_options(error, client)
            raise
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        try:
            self._runner.run(self.router.stop())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and return its result."""
        return self._runner.run(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        self.router.check_credentials()
        return await work


class DriverClient:
    """The driver's view of the cluster. It retries as `fetchOffset.*` says."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client: BlockingClient | None = None
        self._was_connected = False  # if True, the addresses are right, whatever fails later
        self._has_warned = False  # a warning said that no partition is selected

    def close(self) -> None:
        """Close all connections. The next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def partitions(
        self, *, known: Collection[TopicPartition] | None = None
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions that the options select, from one Metadata request.

        Args:
            known: partitions that existed before, or None in a new query. While one of them that
                the options still select is missing, the request is retried: a broker that has just
                started may not know all topics yet. A partition that stays missing is left out.

        Raises:
            UnknownTopicOrPartitionError: a selected topic or partition doesn't exist, in a new
                query.
            KafkaUnavailableError: no broker has learnt yet which brokers and topics there are.
            KafkaError: no broker responded, or the request failed.
        """
        expected = {tp for tp in known or () if is_selected(self._options.topics, tp)}
        for retries_left in self._attempts():
            snapshot = self._fetch_topics(had_topics=bool(expected))
            selected = self._select(snapshot, missing_ok=known is not None)
            if not retries_left or expected <= set(selected):
                if not selected and not expected:  # else the caller says what is missing
                    self._warn_no_partitions()
                return selected
        raise AssertionError("not reached")

    def existing(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return those partitions that exist, also if the options don't select them any more.

        While one is missing, the request is retried, as in `partitions`.

        Raises as `partitions` with `known`.
        """
        for retries_left in self._attempts():
            found = self._fetch_existing(partitions)
            if not retries_left or len(found) == len(partitions):
                return found
        raise AssertionError("not reached")

    def _fetch_existing(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        snapshot = self._fetch_topics(had_topics=bool(partitions))
        return frozenset(tp for tp in partitions if tp.partition in snapshot.partitions(tp.topic))

    def brokers(self) -> tuple[str, ...]:
        """Return the addresses of the brokers as of the last request; sends no request."""
        known = {} if self._client is None else self._client.router.metadata.snapshot.brokers
        return tuple(address_text((known[node].host, known[node].port)) for node in sorted(known))

    def _fetch_topics(self, *, had_topics: bool) -> ClusterSnapshot:
        """Return the cluster's metadata; `had_topics`: the cluster is known to have had topics."""
        deadline = time.monotonic() + start_timeout_ms(self._options.client.network) / 1000
        while True:
            snapshot = self._call(lambda router: router.metadata.refresh())
            # A restarted broker names neither brokers nor topics until the controller has updated
            # it. On 0.8.2, if it was killed and is the only broker, that takes until its old
            # ZooKeeper session has expired (docs/brokers.md 4.1). Such a response doesn't show that
            # topics are missing.
            if snapshot.brokers or not had_topics:
                return snapshot
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise KafkaUnavailableError(
                    "no broker names a broker or a topic: a restarted broker hasn't been updated "
                    "by the controller yet, or all topics were deleted. Check the brokers, and "
                    "start the query again: it goes on where it was"
                )
            time.sleep(min(max(self._options.fetch_offset_interval_s, _MIN_RETRY_S), left_s))

    def _warn_no_partitions(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: %s selects no partition of the cluster: nothing is read",
                self._options.client.client_id,
                self._options.topics,
            )

    def _select(self, snapshot: ClusterSnapshot, *, missing_ok: bool) -> tuple[TopicPartition, ...]:
        existing = {name: sorted(info.partitions) for name, info in snapshot.topics.items()}
        internal = {name for name, info in snapshot.topics.items() if info.is_internal}
        return choose_partitions(
            self._options.topics, existing, internal | INTERNAL_TOPICS, missing_ok=missing_ok
        )

    def earliest(
        self, partitions: Collection[TopicPartition], *, missing_ok: bool = False
    ) -> ResolvedOffsets:
        """Return the first offset of each partition.

        Args:
            partitions: the partitions to look up.
            missing_ok: leave out the partitions that the brokers don't list any more, also after
                retries.

        Raises:
            UnknownTopicOrPartitionError: the brokers don't list a partition, and `missing_ok` is
                false.
            KafkaError: no broker responded, or the request failed.
        """

        async def fetch(router: Router, existing: Collection[TopicPartition]) -> ResolvedOffsets:
            return await _list_offsets(router, existing, EARLIEST)

        return self._call_for_existing(partitions, fetch, missing_ok)

    def latest(
        self,
        partitions: Collection[TopicPartition],
        known: PartitionOffsets,
        *,
        missing_ok: bool = False,
    ) -> ResolvedOffsets:
        """Return the offset after the last message of each partition.

        Args:
            partitions: the partitions to look up.
            known: offsets that existed before. While a partition ends below its known offset, the
                request is retried: a new leader may not have caught up yet.
            missing_ok: as for `earliest`.

        Raises as `earliest`.
        """

        async def fetch(router: Router, existing: Collection[TopicPartition]) -> ResolvedOffsets:
            ends = await _list_offsets(router, existing, LATEST)
            for _ in range(self._options.fetch_offset_retries):
                below = find_ends_below(ends, known)
                if not below:
                    break
                await asyncio.sleep(self._options.fetch_offset_interval_s)
                router.metadata.request_refresh()
                ends.update(await _list_offsets(router, list(below), LATEST))
            return ends

        return self._call_for_existing(partitions, fetch, missing_ok)

    def leaders(self) -> PartitionLeaders:
        """Return the leaders as of the last request, for the tasks; sends no request."""
        return PartitionLeaders() if self._client is None else self._client.router.leaders()

    def by_time(
        self,
        bound: TimestampBound,
        partitions: Collection[TopicPartition],
        latest: PartitionOffsets,
        *,
        start: bool,
    ) -> ResolvedOffsets:
        """Return the offset of the first message at or after a timestamp, for each partition.

        Args:
            bound: the timestamps.
            partitions: the partitions to look up; `bound` has a timestamp for each of them.
            latest: the offset after the last message of each partition.
            start: True if the query starts there. `startingOffsetsByTimestampStrategy` then decides
                what to do without such a message, or without timestamps. False if the query ends
                there: without such a message it ends at `latest`.

        Raises:
            IllegalArgumentError: messages have no timestamps, and the query ends there or the
                strategy isn't "segment"; or it starts there without such a message, and the
                strategy is "error".
        """
        times = bound.timestamps_ms
        timestamps = {tp: bound.at_ms or 0 if times is None else times[tp] for tp in partitions}
        return self._call(
            lambda router: _offsets_by_time(
                router, self._options, bound.option, timestamps, latest, start
            )
        )

    def _call_for_existing(
        self,
        partitions: Collection[TopicPartition],
        work: Callable[[Router, Collection[TopicPartition]], Coroutine[Any, Any, T]],
        missing_ok: bool,
    ) -> T:
        """Call `work` with the partitions; `missing_ok` leaves out unlisted ones."""
        try:
            return self._call(lambda router: work(router, partitions))
        except UnknownTopicOrPartitionError:
            existing = self.existing(partitions)
            if not missing_ok or len(existing) == len(partitions):
                raise
        return self._call_for_existing([tp for tp in partitions if tp in existing], work, True)

    def _call(self, work: Callable[[Router], Coroutine[Any, Any, T]]) -> T:
        """Run `work`, again after retriable errors, each time with new connections."""
        for retries_left in self._attempts():
            try:
                if self._client is None:
                    self._client = BlockingClient(self._options.client)
                    self._was_connected = True
                return self._client.run(work(self._client.router))
            except KafkaError as error:
                # The first connection isn't retried, because its start has tried each address again
                # and again for `start_timeout_ms()`, and a wrong address stays wrong.
                if not (error.retriable and retries_left and self._was_connected):
                    raise
                _log.warning(
                    "%s: request to the cluster failed, retries left: %d (the query goes on "
                    "once one succeeds): %s",
                    self._options.client.client_id,
                    retries_left,
                    error,
                )
                self.close()
        raise AssertionError("not reached")

    def _attempts(self) -> Iterator[int]:
        """Yield the number of retries left for each attempt, with a sleep between attempts."""
        # `_core.net.retry` doesn't fit: Spark's options limit the number of retries, not their
        # time.
        for retries_left in range(self._options.fetch_offset_retries, -1, -1):
            yield retries_left
            time.sleep(self._options.fetch_offset_interval_s)


# --- coroutines for `BlockingClient.run` ----------------------------------------------------------


def fetch_message_sets(
    router: Router,
    options: ReadOptions,
    tp: TopicPartition,
    start: int,
    end: int,
    *,
    fetches: RangeFetches | None = None,
    max_bytes: int | None = None,
    in_flight: int = MAX_IN_FLIGHT,
) -> AsyncGenerator[RawSet, None]:
    """Call `read_range` with the options' sizes and timeouts; `max_bytes` replaces its option."""
    settings = options.client.settings
    sizes = {name: settings[name] for name in ("max_bytes", "limit_bytes") if name in settings}
    if max_bytes is not None:
        sizes["max_bytes"] = max_bytes
    timeout_s = options.poll_timeout_s
    # A partition that metadata has lacked for missing_s counts as deleted. This is long, since the
    # whole cluster may be restarting, but with failOnDataLoss=true no longer than the driver's
    # retries take, because the query fails then in any case.
    missing_s = timeout_s / 2
    if options.fail_on_data_loss:
        missing_s = min(missing_s, options.fetch_offset_retries * options.fetch_offset_interval_s)
    return read_range(
        router,
        tp,
        start,
        end,
        fetches=fetches,
        in_flight=in_flight,
        timeout_s=timeout_s,
        missing_s=missing_s,
        **sizes,
    )


def message_set_reader(options: ReadOptions, tp: TopicPartition, raw: RawSet) -> MessageSetReader:
    """Return the decoder of a fetched message set, with the checks of the options."""
    return MessageSetReader(
        tp,
        raw.message_set,
        raw.fetch_offset,
        check_crcs=options.client.settings.get("check_crcs", True),
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
        end_offset=raw.end_offset,
    )


async def similar_topics(client: ClientProperties, topic: str) -> str:
    """Return a question that names topics similar to a missing one; "" if there are none."""
    try:
        router = await _start_router(network_config(client), None)
        try:
            existing = (await router.metadata.refresh()).topics
        finally:
            await router.stop()
    except KafkaError:
        return ""  # the error of the missing topic says more
    return "" if topic in existing else did_you_mean(topic, existing)


async def _start_router(config: NetConfig, leaders: PartitionLeaders | None) -> Router:
    router = Router(config, Telemetry(client_id=config.client_id))
    # Request all topics, because a broker may create a topic that a Metadata request names.
    router.metadata.all_topics, router.metadata.may_create_topics = True, False
    await router.start(leaders)
    return router


async def _list_offsets(
    router: Router, partitions: Collection[TopicPartition], timestamp: int
) -> ResolvedOffsets:
    """Return one offset per partition; `timestamp` is `EARLIEST` or `LATEST`.

    Raises:
        UnknownTopicOrPartitionError: the metadata lacks a partition. As long as it has the
            partition, other errors are retried: the leader may have just started.
    """

    def find_missing() -> list[TopicPartition]:
        topics = router.metadata.snapshot
        return [tp for tp in partitions if tp.partition not in topics.partitions(tp.topic)]

    if not partitions:
        return {}
    if not find_missing():
        try:
            listed = await list_offsets(
                router,
                dict.fromkeys(partitions, timestamp),
                is_final=lambda error: is_final(error) or bool(find_missing()),
            )
            return {tp: offsets[0] if offsets else 0 for tp, offsets in listed.items()}
        except KafkaError:
            if not find_missing():
                raise
    names = ", ".join(partition_text(tp) for tp in find_missing())
    raise UnknownTopicOrPartitionError(
        f"brokers don't list {names} any more: deleted, or this principal may not describe it"
    )


async def _offsets_by_time(
    router: Router,
    options: ReadOptions,
    option: str,
    timestamps: Mapping[TopicPartition, int],
    latest: PartitionOffsets,
    start: bool,
) -> ResolvedOffsets:
    """Return the offsets of `DriverClient.by_time`."""
    strategy = options.no_match_strategy
    listed = await offsets_for_times(router, timestamps)
    exact = {
        tp: min(match.offset, latest[tp])
        for tp, match in listed.items()
        if match is not None and match.timestamp is not None
    }
    scans = asyncio.Semaphore(_MAX_CONCURRENT_SCANS)

    async def search(tp: TopicPartition) -> int:
        where = f"{option}={timestamps[tp]}: {partition_text(tp)}"
        segment = listed[tp]
        # Brokers from 0.10.1 on have an index by time. Older ones only name the segment, which is
        # read from its start up to the message. That needs timestamps, which only 0.10.0 has among
        # these brokers.
        if segment is not None:
            async with scans:
                offset, has_timestamps = await _scan(
                    router, options, tp, timestamps[tp], segment.offset, latest[tp]
                )
            if not has_timestamps:
                # The beginning of a segment is too early for an end, since it would leave out rows.
                if not start:
                    raise IllegalArgumentError(
                        f"{where}: the messages have no timestamps (message format 0), so a query "
                        "can't end at a time. Use endingOffsets, or a filter on what the messages "
                        "hold"
                    )
                if strategy is NoMatchStrategy.SEGMENT:
                    return segment.offset
                raise IllegalArgumentError(
                    f"{where}: the messages have no timestamps (message format 0). Set the option "
                    "startingOffsetsByTimestampStrategy to 'segment' to use the first segment "
                    "that was written to at that time or later"
                )
            if offset is not None:
                return offset
        if start and strategy is NoMatchStrategy.ERROR:
            raise IllegalArgumentError(
                f"{where}: no message of that time or later. Set the option "
                "startingOffsetsByTimestampStrategy to 'latest' to start at the end of the log"
            )
        return latest[tp]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {tp: group.create_task(search(tp)) for tp in timestamps if tp not in exact}
    except ExceptionGroup as failed:
        # One error is enough, since it has the detail, and shows whether a retry can help.
        raise failed.exceptions[0] from None
    return exact | {tp: task.result() for tp, task in tasks.items()}


async def _scan(
    router: Router, options: ReadOptions, tp: TopicPartition, at_ms: int, start: int, end: int
) -> tuple[int | None, bool]:
    """Read the log from `start` up to the first message at or after `at_ms`.

    Returns:
        The offset of that message, None if there is none before `end`; and whether the messages
        have timestamps.
    """
    async with aclosing(fetch_message_sets(router, options, tp, start, end)) as message_sets:
        async for raw in message_sets:
            reader = message_set_reader(options, tp, raw)
            while records := reader.read(_SCAN_RECORDS):
                for record in records:
                    if record.timestamp is None:
                        return None, False
                    if record.timestamp >= at_ms:
                        return record.offset, True
    return None, True
