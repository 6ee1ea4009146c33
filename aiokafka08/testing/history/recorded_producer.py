"""`RecordedProducer`: a producer whose calls a `Recorder` writes down.

Invariant: a message is recorded as failed only if `send()` itself raised; any other error may have
come after the message was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from aiokafka08.testing.history.operations import Fact, Message, Status
from aiokafka08.testing.history.recording import Entry, Recording, place

# Gauges that are 0 after `stop()`.
_EMPTY_AT_END: Final = (
    "batches_unfinished",
    "buffer_used_bytes",
    "requests_in_flight",
    "senders_waiting",
)


class RecordedBatch:
    """A batch of `create_batch()`, and the (key, value) pairs that it holds."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.pairs: list[tuple[Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def append(self, *, key: Any = None, value: Any = None, **more: Any) -> Any:
        added = self.batch.append(key=key, value=value, **more)
        if added is not None:
            self.pairs.append((key, value))
        return added


class RecordedProducer:
    """Has the wrapped producer's methods; see the module. `Recorder.producer` makes it."""

    def __init__(
        self, recorder: Recording, process: str, producer: Any, deadline_s: float | None
    ) -> None:
        self._recorder = recorder
        self._process = process
        self._producer = producer
        self._deadline_s = deadline_s
        self._watchers: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    async def __aenter__(self) -> RecordedProducer:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> None:
        deadline_s = self._deadline_s
        # The start may take its timeout twice: to find a broker, and to tell which 0.8 line it is.
        if deadline_s is None:
            deadline_s = 2 * self._producer._config.start_timeout_s
        await self._record("start", self._producer.start(), deadline_s)

    async def stop(self, timeout: float | None = None) -> None:
        deadline_s = self._deadline_s if timeout is None else timeout
        entry = self._recorder.begin(self._process, "stop", deadline_s=deadline_s)
        try:
            await self._producer.stop(timeout)
        finally:
            await asyncio.gather(*self._watchers, return_exceptions=True)
            await asyncio.sleep(0)  # let the callbacks of futures run
            entry.end()
            self.ready()
            metrics = self.metrics()
            left = {name: metrics[name] for name in _EMPTY_AT_END}
            self._recorder.note(self._process, "left", facts=left)

    async def flush(self) -> None:
        await self._record("flush", self._producer.flush(), self._deadline_s)

    def ready(self) -> bool:
        facts = self._ready_facts(self._producer.metrics())
        self._recorder.note(self._process, "ready", facts=facts)
        return bool(facts["ready"])

    def _ready_facts(self, metrics: dict[str, float]) -> dict[str, Fact]:
        facts = self._recorder.ready_facts(self._process, self._producer)
        facts["connections"] = metrics["connections_opened"] - metrics["connections_closed"]
        return facts

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = self._producer.metrics()
        facts: dict[str, Fact] = {name: value for name, value in metrics.items() if "{" not in name}
        facts |= self._ready_facts(metrics)
        self._recorder.note(self._process, "metrics", facts=facts)
        return metrics

    # --- sending ----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        **more: Any,
    ) -> Any:
        entry = self._begin("send", topic, [(key, value)], partition)
        future = await self._accepted(
            entry, self._producer.send(topic, value, key, partition, **more)
        )
        return self._follow(entry, topic, future)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        **more: Any,
    ) -> Any:
        return await (await self.send(topic, value, key, partition, **more))

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        **more: Any,
    ) -> Any:
        values = list(values)
        keys = None if keys is None else list(keys)
        pairs = list(zip(keys or [None] * len(values), values, strict=False))
        entry = self._begin("send_many", topic, pairs, partition)
        return await self._send_all(
            entry, topic, pairs, self._producer.send_many(topic, values, keys, partition, **more)
        )

    async def send_arrow(self, topic: str, batch: Any) -> Any:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        values = columns["value"]
        pairs = list(zip(columns.get("key") or [None] * len(values), values, strict=True))
        entry = self._begin("send_arrow", topic, pairs, None)
        return await self._send_all(entry, topic, pairs, self._producer.send_arrow(topic, batch))

    def create_batch(self) -> RecordedBatch:
        return RecordedBatch(self._producer.create_batch())

    async def send_batch(self, batch: RecordedBatch, topic: str, *, partition: int) -> Any:
        if not isinstance(batch, RecordedBatch):
            raise TypeError(f"batch={batch!r}: expected a batch of this producer's create_batch()")
        entry = self._begin("send_batch", topic, batch.pairs, partition)
        future = await self._accepted(
            entry, self._producer.send_batch(batch.batch, topic, partition=partition)
        )
        return self._follow(entry, topic, future)

    # --- outcomes ---------------------------------------------------------------------------------

    def _begin(
        self, call: str, topic: str, pairs: Sequence[tuple[Any, Any]], partition: int | None
    ) -> Entry:
        identify, name = self._recorder.identify, place(topic, partition)
        sent = tuple(Message(name, identify(key, value)) for key, value in pairs)
        return self._recorder.begin(self._process, call, sent=sent, deadline_s=self._deadline_s)

    async def _accepted(self, entry: Entry, sending: Any) -> Any:
        try:
            result = await sending
        except BaseException as error:
            # A call that sends many may have buffered some of them.
            many = len(entry.fields["sent"]) > 1
            entry.end("unknown" if many else "fail", error=repr(error))
            raise
        entry.update(accepted=self._recorder.now())
        return result

    def _follow(self, entry: Entry, topic: str, future: Any) -> asyncio.Future[Any]:
        """Return a future that the caller may cancel: the outcome is recorded all the same."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: self._sent(entry, topic, done, outcome))
        return outcome

    def _sent(self, entry: Entry, topic: str, future: Any, outcome: asyncio.Future[Any]) -> None:
        error = future.exception()
        if not outcome.done():
            if error is None:
                outcome.set_result(future.result())
            else:
                outcome.set_exception(error)
                outcome.exception()  # so asyncio logs no warning if the caller never awaits it
        if error is not None:
            entry.end("unknown", error=repr(error))
        elif (metadata := future.result()) is None:
            entry.end("unknown")  # with acks=0 no response says whether it was stored
        else:
            # The messages of a batch have consecutive offsets.
            name = place(topic, metadata.partition)
            stored = (
                Message(name, message.value, metadata.offset + number)
                for number, message in enumerate(entry.fields["sent"])
            )
            entry.end(sent=tuple(stored))

    async def _send_all(
        self, entry: Entry, topic: str, pairs: Sequence[tuple[Any, Any]], sending: Any
    ) -> Any:
        deliveries = await self._accepted(entry, sending)
        task = asyncio.create_task(self._watch(entry, topic, deliveries), name="history recorder")
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)
        return deliveries

    async def _watch(self, entry: Entry, topic: str, deliveries: Any) -> None:
        """Wait for the end of all messages of a call; record those of each partition together."""
        sent = entry.fields["sent"]
        try:
            results: Sequence[Any] = await deliveries
            failed: dict[int, BaseException] = {}
        except Exception:
            results = ()
            # If some messages fail, the offsets of the others aren't known.
            failed = deliveries.errors()
        outcomes: list[tuple[Status, tuple[Message, ...], str]] = []
        stored: dict[str, list[Message]] = {}
        for number, message in enumerate(sent):
            metadata = results[number] if results else None
            if metadata is not None:
                name = place(topic, metadata.partition)
                stored.setdefault(name, []).append(Message(name, message.value, metadata.offset))
            elif number not in failed and message.partition != place(topic, None):
                stored.setdefault(message.partition, []).append(message)
            else:
                error = failed.get(number)
                outcomes.append(("unknown", (message,), "" if error is None else repr(error)))
        outcomes += [("ok", tuple(messages), "") for messages in stored.values()]
        self._recorder.split(entry, outcomes)

    async def _record(self, call: str, awaitable: Any, deadline_s: float | None) -> Any:
        entry = self._recorder.begin(self._process, call, deadline_s=deadline_s)
        try:
            result = await awaitable
        except BaseException as error:
            entry.end("fail", error=repr(error))
            raise
        entry.end()
        return result
