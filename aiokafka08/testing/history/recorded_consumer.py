"""`RecordedConsumer`: a consumer whose calls, positions and rebalances a `Recorder` writes down.

Invariant: a message counts as polled when the call that returned it ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.history.operations import Fact, Message
from aiokafka08.testing.history.recording import Recording

# Gauges that are 0 after `stop()`.
_EMPTY_AT_END: Final = ("requested_bytes", "buffered_bytes")


def _names(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{topic}/{number}" for topic, number in sorted(partitions))


class _RecordedListener(ConsumerRebalanceListener):
    """Records the calls of a rebalance, and passes them on to the user's listener."""

    def __init__(
        self,
        note: Callable[[str, Collection[TopicPartition]], None],
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        self._note = note
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)
        if self._listener is not None:
            await _await_if_awaitable(self._listener.on_partitions_revoked(revoked))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)
        if self._listener is not None:
            await _await_if_awaitable(self._listener.on_partitions_assigned(assigned))


async def _await_if_awaitable(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


class RecordedConsumer:
    """Has the wrapped consumer's methods; see the module. `Recorder.consumer` makes it."""

    def __init__(
        self, recorder: Recording, process: str, consumer: Any, deadline_s: float | None
    ) -> None:
        self._recorder = recorder
        self._process = process
        self._consumer = consumer
        self._extracts_headers: bool = consumer._config.decoding.embedded_headers
        self._deadline_s = deadline_s
        timeout_s: float = consumer._router.config.request_timeout_s
        self._request_deadline_s = timeout_s if deadline_s is None else deadline_s
        self._positions: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    async def __aenter__(self) -> RecordedConsumer:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    def __aiter__(self) -> RecordedConsumer:
        return self

    async def __anext__(self) -> Any:
        return await self._poll("anext", self._consumer.__anext__(), None, self._one)

    async def start(self) -> None:
        await self._record("start", self._consumer.start(), self._start_deadline_s())

    def _start_deadline_s(self) -> float | None:
        consumer = self._consumer
        if self._deadline_s is not None:
            return self._deadline_s
        # `start()` may wait for the group, if topics are subscribed to, or for ZooKeeper.
        if consumer._wanted.by_topic or consumer._config.zookeeper_connect is not None:
            return None
        # One `start_timeout_s` to find a broker, and one to find its exact line.
        deadline_s: float = 2 * consumer._router.config.start_timeout_s
        return deadline_s

    async def stop(self) -> None:
        await self._record("stop", self._consumer.stop(), self._deadline_s)
        self.ready()  # records that it isn't ready any more
        metrics = self.metrics()
        # "left": what is left behind; it must be 0
        self._note("left", facts={name: metrics[name] for name in _EMPTY_AT_END})

    def ready(self) -> bool:
        facts = self._recorder.ready_facts(self._process, self._consumer)
        self._note("ready", facts=facts)
        return bool(facts["ready"])

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = self._consumer.metrics()
        facts: dict[str, Fact] = {name: value for name, value in metrics.items() if "{" not in name}
        facts |= self._recorder.ready_facts(self._process, self._consumer)
        self._note("metrics", facts=facts)
        return metrics

    # --- what to read -----------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = list(partitions)
        self._consumer.assign(chosen)
        names = _names(chosen)
        self._positions = {name: at for name, at in self._positions.items() if name in names}
        self._note("assign", partitions=names)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: Any = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        self._consumer.subscribe(topics, pattern, _RecordedListener(self._rebalanced, listener))
        self._positions = {}
        self._note("subscribe")

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()
        self._positions = {}
        # For the checks this is a subscription, too: it replaces the one before it.
        self._note("subscribe")

    def _rebalanced(self, call: str, partitions: Collection[TopicPartition]) -> None:
        names = _names(partitions)
        if call == "assigned":
            self._positions = {}
        else:
            for name in names:
                self._positions.pop(name, None)
        generation = self._consumer._coordinator.generation
        self._note(
            call,
            partitions=names,
            generation=None if generation < 0 else generation,
            facts={"auto_commit": True} if self._consumer._config.enable_auto_commit else {},
        )

    # --- messages ---------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> Any:
        # Without a deadline: it may wait for ever for a message.
        return await self._poll("getone", self._consumer.getone(*partitions), None, self._one)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Any:
        polling = self._consumer.getmany(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )
        return await self._poll("getmany", polling, timeout_ms, self._many)

    async def getmany_arrow(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Any:
        polling = self._consumer.getmany_arrow(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )
        return await self._poll("getmany_arrow", polling, timeout_ms, self._rows)

    async def _poll(
        self,
        call: str,
        polling: Any,
        timeout_ms: float | None,
        messages_of: Callable[[Any], Iterable[Message]],
    ) -> Any:
        entry = self._recorder.begin(
            self._process,
            call,
            group=self._consumer._group_id,
            deadline_s=None if timeout_ms is None else timeout_ms / 1000,
        )
        try:
            result = await polling
        except BaseException as error:
            entry.end("fail", error=repr(error))
            raise
        polled = tuple(messages_of(result))
        for message in polled:
            if message.offset is not None:
                self._positions[message.partition] = message.offset + 1
        entry.end(polled=polled)
        return result

    def _one(self, record: Any) -> list[Message]:
        tp = TopicPartition(record.topic, record.partition)
        return [self._recorder.message(tp, record, self._extracts_headers)]

    def _many(self, fetched: Mapping[TopicPartition, Iterable[Any]]) -> list[Message]:
        return [
            self._recorder.message(tp, record, self._extracts_headers)
            for tp, records in fetched.items()
            for record in records
        ]

    def _rows(self, batch: Any) -> list[Message]:
        names = ("topic", "partition", "offset", "key", "value")
        columns = [batch.column(name).to_pylist() for name in names]
        recorder = self._recorder
        return [
            Message(
                f"{topic}/{partition}", recorder.identify(key, self._without_headers(value)), offset
            )
            for topic, partition, offset, key, value in zip(*columns, strict=True)
        ]

    def _without_headers(self, value: Any) -> Any:
        return value if self._extracts_headers else self._recorder.without_headers(value)

    # --- positions --------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        entry = self._recorder.begin(
            self._process,
            "position",
            group=self._consumer._group_id,
            deadline_s=self._request_deadline_s,
        )
        try:
            offset: int = await self._consumer.position(partition)
        except BaseException as error:
            entry.end("fail", error=repr(error))
            raise
        entry.end(offsets={_names([partition])[0]: offset})
        return offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(partition, offset)
        [name] = _names([partition])
        self._positions[name] = offset
        self._note("seek", offsets={name: offset})

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        result: bool = await self._seek_somewhere(partitions, self._consumer.seek_to_beginning)
        return result

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        result: bool = await self._seek_somewhere(partitions, self._consumer.seek_to_end)
        return result

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        offsets: dict[TopicPartition, int | None] = await self._seek_somewhere(
            partitions, self._consumer.seek_to_committed
        )
        return offsets

    async def _seek_somewhere(self, partitions: Collection[TopicPartition], seek: Any) -> Any:
        """Record that the position is unknown, from before the call until after it."""
        names = _names(partitions or self._consumer.assignment())
        self._forget_positions(names)
        result = await seek(*partitions)
        self._forget_positions(names)
        return result

    def _forget_positions(self, names: tuple[str, ...]) -> None:
        self._note("seek", partitions=names)
        for name in names:
            self._positions.pop(name, None)

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        positions, assigned = dict(self._positions), _names(self._consumer.assignment())
        if offsets is not None:
            assigned = ()  # only the given offsets are committed
            positions = {
                _names([tp])[0]: value if isinstance(value, int) else value[0]
                for tp, value in offsets.items()
            }
        entry = self._recorder.begin(
            self._process,
            "commit",
            group=self._consumer._group_id,
            deadline_s=self._request_deadline_s,
            partitions=tuple(name for name in assigned if name not in positions),
            offsets=positions,
            facts={} if offsets is None else {"explicit": True},
        )
        try:
            await self._consumer.commit(offsets)
        except BaseException as error:
            # The broker may have stored the offsets before the error.
            entry.end("unknown", error=repr(error))
            raise
        entry.end()

    async def committed(self, partition: TopicPartition) -> int | None:
        [name] = _names([partition])
        entry = self._recorder.begin(
            self._process,
            "committed",
            group=self._consumer._group_id,
            deadline_s=self._request_deadline_s,
            partitions=(name,),
        )
        try:
            offset: int | None = await self._consumer.committed(partition)
        except BaseException as error:
            entry.end("fail", error=repr(error))
            raise
        entry.end(offsets={} if offset is None else {name: offset})
        return offset

    # --- recording --------------------------------------------------------------------------------

    def _note(self, call: str, **fields: Any) -> None:
        self._recorder.note(self._process, call, group=self._consumer._group_id, **fields)

    async def _record(self, call: str, awaitable: Any, deadline_s: float | None) -> None:
        entry = self._recorder.begin(self._process, call, deadline_s=deadline_s)
        try:
            await awaitable
        except BaseException as error:
            entry.end("fail", error=repr(error))
            raise
        entry.end()
