"""`Recorder`: record the calls of producers and consumers as a history.

Invariant: it uses only a client's public methods, configuration, subscription and generation, so it
records on real brokers, on the embedded cluster and in a simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from aiokafka08.structs import TopicPartition
from aiokafka08.testing.history.operations import Fact
from aiokafka08.testing.history.recorded_consumer import RecordedConsumer
from aiokafka08.testing.history.recorded_producer import RecordedProducer
from aiokafka08.testing.history.recording import Recording, place

Producer = TypeVar("Producer")
Consumer = TypeVar("Consumer")


class Recorder(Recording):
    """Records operations of any number of clients, which run in one event loop.

    Args:
        clock: returns seconds; None: the time of the running event loop (default None).
        identify: returns the identity of a message for (key, value); it must be unique in the
            message's partition. By default it is the value as text; a long text is cut, and ends
            with a digest. Clients with serializers need another function. It is called with values
            as they are sent, as a consumer returns them, and as the bytes in the log, and must
            return the same identity for all three.
    """

    # --- clients ----------------------------------------------------------------------------------

    def producer(
        self, process: str, producer: Producer, deadline_s: float | None = None
    ) -> Producer:
        """Return the producer, wrapped, so that its calls are recorded.

        Give the producer `on_event=recorder.on_event(process)`, or else the checker reports each
        message that a retry stored twice as an anomaly.

        Args:
            process: its name in the history; unique.
            producer: an AIOKafkaProducer.
            deadline_s: the maximum duration of a send call, of the delivery of its message, of
                `flush()`, of the start and of the stop. Give the sum of `request_timeout_ms` and
                `delivery_timeout_ms`. None: only the start is limited, to twice
                `start_timeout_ms` (default None).

        Raises:
            ValueError: the producer has serializers, but the recorder has no `identify`.
        """
        client = cast(Any, producer)
        self.check_serializers(f"producer {process!r} has serializers", client._serializers)
        self.embeds_headers |= client._headers.mode == "embedded"
        return cast(Producer, RecordedProducer(self, process, producer, deadline_s))

    def consumer(
        self, process: str, consumer: Consumer, deadline_s: float | None = None
    ) -> Consumer:
        """Return the consumer, wrapped, so that its calls are recorded.

        Call `subscribe()` of the wrapped consumer, so that rebalances are recorded; don't pass
        topics to the constructor.

        Args:
            process: its name in the history; unique.
            consumer: an AIOKafkaConsumer.
            deadline_s: the maximum duration of `commit()`, `committed()`, `position()`, the start
                and the stop. None: the consumer's own limits, `request_timeout_ms` for the first
                three, and twice `start_timeout_ms` for the start; but a start that waits for a
                group or for ZooKeeper has no limit, nor has the stop (default None). `getmany()`
                has its own limit; `getone()` and `async for` may wait for ever.

        Raises:
            ValueError: the consumer has deserializers, but the recorder has no `identify`.
        """
        self._extracts(f"consumer {process!r}", consumer)
        return cast(Consumer, RecordedConsumer(self, process, consumer, deadline_s))

    def on_event(
        self, process: str, then: Callable[[Any], None] | None = None
    ) -> Callable[[Any], None]:
        """Return a function for the option `on_event` of the producer with this name.

        Args:
            process: the name in the history.
            then: another function that gets each event (default None).
        """

        def note(event: Any) -> None:
            if event.name == "batches_retried":
                self.note(
                    process,
                    "retried",
                    partitions=(place(*event.partition),),
                    facts={"messages": event.messages, "may_be_stored": event.may_be_stored},
                )
            if then is not None:
                then(event)

        return note

    def expect_ready(self, process: str, expected: bool | None) -> None:
        """State the result that `ready()` of a running client must have from now on.

        State it only where it is certain: True while all brokers are up and the client only has to
        stay connected; False when it has reached no broker for longer than its timeouts.

        Args:
            process: the name of the client in the history.
            expected: the result; None: it isn't known any more.
        """
        if expected is None:
            self.expected_ready.pop(process, None)
        else:
            self.expected_ready[process] = expected

    # --- observations -----------------------------------------------------------------------------

    def note_log(self, partition: TopicPartition, messages: Iterable[Any]) -> None:
        """Record the whole log of a partition.

        Args:
            partition: which one.
            messages: objects with `offset`, `key` and `value`, such as those of
                `EmbeddedCluster.log()` or the records of a consumer.
        """
        name = place(*partition)
        polled = tuple(self.message(partition, message) for message in messages)
        self.note("observer", "log", partitions=(name,), polled=polled)

    async def read_logs(self, consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        """Read the whole logs of partitions and record them.

        Args:
            consumer: a started consumer that isn't recorded and has no group; this method assigns
                the partitions to it.
            partitions: which ones.

        Raises:
            ValueError: the consumer has deserializers, but the recorder has no `identify`.
        """
        extracts = self._extracts("consumer of the logs", consumer)
        wanted = list(partitions)
        entry = self.begin("observer", "log")
        consumer.assign(wanted)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(wanted)
        polled = []
        # A list, not a generator: `any()` would stop at the first partition that isn't at its end.
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                polled += [self.message(tp, record, extracts) for record in records]
        entry.end(partitions=tuple(place(*tp) for tp in wanted), polled=tuple(polled))

    def _extracts(self, name: str, consumer: Any) -> bool:
        """Check a consumer's deserializers; return whether it extracts embedded headers."""
        decoding = consumer._config.decoding
        deserializers = decoding.key_deserializer, decoding.value_deserializer
        self.check_serializers(f"{name} has deserializers", deserializers)
        extracts: bool = decoding.embedded_headers
        return extracts

    def note_left(self, **more: float) -> None:
        """Record how many tasks of the package are left; call it when all clients have stopped.

        Args:
            more: the numbers of other things that must not be left, by name: sockets=…, timers=…
        """
        tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("aiokafka08")]
        facts: dict[str, Fact] = {"tasks": len(tasks), **more}
        self.note("observer", "left", facts=facts)
