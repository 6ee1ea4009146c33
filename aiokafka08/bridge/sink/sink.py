"""`TransactionSink`: the workers that write in transactions, for targets of 0.11 and later.

It claims the bridge, runs its workers, passes chunks to them and their events back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetError, TargetUnavailableError
from aiokafka08.bridge.offset_runs import RunLog
from aiokafka08.bridge.sink.base import BATCH_BYTES, BridgeRun, BridgeSink
from aiokafka08.bridge.sink.claims import producer_of
from aiokafka08.bridge.sink.events import Chunk, WorkerFailed
from aiokafka08.bridge.sink.worker import INITIALISE_S, TransactionWorker, WorkerSettings
from aiokafka08.bridge.target import Target, client_settings
from aiokafka08.structs import TopicPartition

_log = logging.getLogger("aiokafka08.bridge")

_CLOSE_S = 0.5
_HANG_S = 5.0
"""How much longer a call may take than librdkafka was told, until it counts as hung."""
_FIND_COORDINATOR = {
    "topic.metadata.refresh.interval.ms": 2000,
    "metadata.max.age.ms": 6000,
    "connections.max.idle.ms": 8000,
}
"""When the broker that librdkafka 2.16 remembers as the coordinator has left, a call that adds
positions ignores its timeout, until a connection opens or closes and what it remembers is older
than `metadata.max.age.ms` (librdkafka #5456, #5511). With its defaults that took 76 to 81 s."""


def worker_settings(config: BridgeConfig, number: int, batch_bytes: int) -> WorkerSettings:
    """Return the settings of a producer.

    Args:
        config: the file of the bridge.
        number: the producer's, from 0 on.
        batch_bytes: the largest batch that all target topics take.
    """
    # When the target aborts a transaction itself; brokers allow up to 15 minutes.
    timeout_ms = min(max(60_000, round(config.copy.transaction_s * 2000)), 900_000)
    producer = {
        **_FIND_COORDINATOR,
        "batch.size": min(BATCH_BYTES, batch_bytes),
        "transaction.timeout.ms": timeout_ms,
        **client_settings(config),
        "compression.codec": config.target.compression,
    }
    return WorkerSettings(
        number,
        config.client_id,
        config.transactional_id(number),
        producer,
        config.position_group,
        config.offsets_topic,
        config.copy,
    )


async def initialise(target: Target, worker: TransactionWorker, what: str) -> None:
    """Fence older producers of a worker's transactional id, and end their transaction.

    Args:
        target: the connection.
        worker: the producer.
        what: the call in words, for errors.

    Raises:
        TargetUnavailableError: also if the call of librdkafka doesn't return.
        TargetError: the target refuses.
    """
    await _call_producer(target, what, worker.initialise)


async def _call_producer(target: Target, what: str, call: Callable[[], None]) -> None:
    try:
        async with asyncio.timeout(INITIALISE_S + _HANG_S):
            await target.call(what, call)
    except TimeoutError:
        raise TargetUnavailableError(
            f"{what}: no result of a call for {INITIALISE_S + _HANG_S:.0f} s"
        ) from None


class TransactionSink(BridgeSink):
    """The transactional producers of a bridge.

    Args:
        config: the file of the bridge.
        target: a connection for what isn't a transaction.
        run: this start; the same one for all sinks of a process.
    """

    _target: Target

    def __init__(self, config: BridgeConfig, target: Target, run: BridgeRun) -> None:
        super().__init__(config, target, run)
        self._workers: list[TransactionWorker] = []

    async def start(self, batch_bytes: int) -> None:
        """Claim the bridge and fence all older starts; see `BridgeSink`."""
        await super().start(batch_bytes)
        producers = self._config.copy.producers
        idle, self._workers = self._workers[producers:], self._workers[:producers]
        for worker in idle:
            await self._target.call("close a producer", worker.close)

    async def begin_anew(
        self,
        pairs: Mapping[TopicPartition, TopicPartition],
        stale: Mapping[TopicPartition, Sequence[bytes]],
    ) -> None:
        """Set positions to 0 and remove runs, by the claimed producers; see `BridgeSink`."""
        for number, worker in enumerate(self._workers):
            tps = [tp for tp in pairs if self.worker_of(tp) == number]
            copies = [pairs[tp] for tp in tps]
            keys = [key for tp in tps for key in stale.get(tp, ())]
            what = f"set positions to 0 by producer {number}"
            if tps:
                await self._call_claimed(what, partial(worker.begin_anew, copies, keys))

    def run_workers(self, run_logs: Mapping[TopicPartition, RunLog]) -> None:
        """Start the threads.

        Args:
            run_logs: by partition of the source, what the offsets topic has.
        """
        for number, worker in enumerate(self._workers):
            worker.start({tp: log for tp, log in run_logs.items() if self.worker_of(tp) == number})

    def worker_of(self, tp: TopicPartition) -> int:
        """Return the number of the worker that writes a partition of the source."""
        return producer_of(tp, self._config.copy.producers)

    def put(self, chunk: Chunk) -> None:
        """Pass a chunk to its worker; wait for room first, with `wait_room`."""
        self._waiting_bytes += chunk.memory
        self._workers[self.worker_of(chunk.source)].put(chunk)

    async def stop(self, timeout_s: float) -> None:
        """Let the workers commit what they have begun, and end; give up after `timeout_s`.

        A worker that doesn't end reports a failure.
        """
        for worker in self._workers:
            worker.request_stop(timeout_s)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s + _CLOSE_S
        for worker in self._workers:
            await asyncio.to_thread(worker.join, max(deadline - loop.time(), 0.0))
        for number, worker in enumerate(self._workers):
            if worker.is_running:
                error = TargetUnavailableError(f"producer {number}: not done in {timeout_s:g} s")
                self._on_event(WorkerFailed(number, error))

    async def close(self) -> None:
        """Release what librdkafka holds of the workers whose threads were never started."""
        workers, self._workers = self._workers, []
        for one in workers:
            if one.is_running:
                one.drop_chunks()
        await asyncio.gather(*(self._close(one) for one in workers if not one.has_begun))

    async def _close(self, worker: TransactionWorker) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._target.call("close a producer", worker.close)
        except (TargetError, TimeoutError) as error:
            _log.debug("%s: closing a producer: %s", self._config.client_id, error)

    # --- inside -----------------------------------------------------------------------------------

    async def _initialise(self, first: int, end: int, batch_bytes: int) -> None:
        """Make the producers from `first` to before `end`, which fences those of older starts."""
        loop = asyncio.get_running_loop()
        for number in range(first, end):
            settings = worker_settings(self._config, number, batch_bytes)
            what = f"initialise {settings.transactional_id}"
            worker = await self._target.call(
                what,
                TransactionWorker,
                settings,
                lambda event: loop.call_soon_threadsafe(self._on_event, event),
            )
            self._workers.append(worker)
            await self._call_claimed(what, worker.initialise)

    async def _call_claimed(self, what: str, call: Callable[[], None]) -> None:
        try:
            await _call_producer(self._target, what, call)
        except TargetError:
            await self.check_owner()  # two starts at the same time: the older one ends here
            raise
