"""`TransactionSink`: the workers that write in transactions.

Invariants:
- `start()` claims the bridge (`claims`). Positions may be read only after it.
- The chunks that wait for the workers take at most `buffer_bytes` plus one chunk in all, if the
  caller waits for room. No call blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.offset_runs import RunLog
from aiokafka08.bridge.errors import BridgeFencedError, TargetError, TargetUnavailableError
from aiokafka08.bridge.sink.claims import (
    CLAIM_KEY,
    Claim,
    decode_claims,
    encode_claim,
    next_claim,
    producer_of,
)
from aiokafka08.bridge.sink.events import (
    Chunk,
    ChunkTaken,
    SinkEvent,
    TransactionCommitted,
    WorkerFailed,
)
from aiokafka08.bridge.sink.worker import INITIALISE_S, TransactionWorker, WorkerSettings
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

# The largest batch, before it is compressed: below the default of `max.message.bytes`.
BATCH_BYTES: Final = 1_000_000
_CLOSE_S: Final = 0.5
# A call counts as hung when it has taken this much longer than librdkafka's timeout for it.
_HANG_S: Final = 5.0
# librdkafka 2.16 caches the coordinator. If that broker is gone, a call that adds positions ignores
# its timeout, and hangs until the cache is older than `metadata.max.age.ms` and a connection opens
# or closes (librdkafka #5456, #5511). With librdkafka's defaults that takes over a minute.
_FIND_COORDINATOR: Final = {
    "topic.metadata.refresh.interval.ms": 2000,
    "metadata.max.age.ms": 6000,
    "connections.max.idle.ms": 8000,
}


@dataclass(slots=True)
class BridgeRun:
    """A start of the bridge's process."""

    # A random id, which names the run in its claim.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Whether the run's claim is in the state topic.
    has_claimed: bool = False
    # Whether no other start has left a claim.
    is_first: bool = True
    # Whether a session has found where its partitions begin, and so may have written records.
    has_begun: bool = False
    # Partitions of the source that began without a position and still have none committed, although
    # records were passed to `put`. Their copies may have records of this process.
    begun: set[TopicPartition] = field(default_factory=set)
    # Whether a warning has named the parts of the source's messages that the copy leaves out.
    has_warned: bool = False
    logged: set[str] = field(default_factory=set)
    # The logged reasons why it isn't known which topics were created again; empty once it is known.
    identities_unknown: set[str] = field(default_factory=set)
    # The start offsets of partitions that began at the end of their log. A later session begins
    # there, too, if no position was committed.
    first_ends: dict[TopicPartition, int] = field(default_factory=dict)

    def log_once(self, client_id: str, text: str) -> None:
        """Log a warning, unless a session of this process has logged it before."""
        if text not in self.logged:
            self.logged.add(text)
            _log.warning("%s: %s", client_id, text)


def check_claims(config: BridgeConfig, claims: Sequence[Claim], run: str) -> None:
    """Verify that `run` has the last of the claims, which are in the order of the state topic.

    Raises:
        BridgeFencedError: a newer start has claimed the bridge.
        TargetUnavailableError: no claim is there yet.
    """
    if not claims:
        raise TargetUnavailableError(
            f"topic {config.state_topic!r}: the claim that was written isn't there yet"
        )
    if claims[-1].run != run:
        raise BridgeFencedError(
            f"bridge {config.name!r}: a newer start has taken over (run {claims[-1].run}); this "
            "one ends, and must not be started again beside it"
        )


async def read_claims(config: BridgeConfig, target: Target) -> list[Claim]:
    """Return the claims in the state topic, in its order.

    Raises:
        TargetError: the target doesn't respond.
        KafkaProtocolError: a claim can't be read.
    """
    records = await target.read_topic(config.state_topic)
    return decode_claims((record.key, record.value) for record in records)


def worker_settings(
    config: BridgeConfig, target: Target, number: int, batch_bytes: int
) -> WorkerSettings:
    """Return the settings of producer `number`.

    `batch_bytes` is the largest batch that all target topics take.
    """
    # The target aborts the transaction itself after this time; brokers allow up to 15 minutes.
    timeout_ms = min(max(60_000, round(config.copy.transaction_s * 2000)), 900_000)
    producer = {
        **_FIND_COORDINATOR,
        "batch.size": min(BATCH_BYTES, batch_bytes),
        "transaction.timeout.ms": timeout_ms,
        **target.settings,
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


async def initialise(target: Target, worker: TransactionWorker, action: str) -> None:
    """Fence older producers of a worker's transactional id, and end their transaction.

    `action` is the call in words, for errors.

    Raises:
        TargetUnavailableError: the target doesn't respond, or the call of librdkafka doesn't
            return.
        TargetError: the target refuses.
    """
    await _call_producer(target, action, worker.initialise)


async def _call_producer(
    target: Target, action: str, call: Callable[[], None], limit_s: float = INITIALISE_S
) -> None:
    try:
        async with asyncio.timeout(limit_s + _HANG_S):
            await target.call(action, call)
    except TimeoutError:
        raise TargetUnavailableError(
            f"{action}: no result of a call for {limit_s + _HANG_S:.0f} s"
        ) from None


class TransactionSink:
    """The transactional producers of a bridge.

    Args:
        config: the file of the bridge.
        target: a connection for calls outside of transactions.
        run: this start; the same one for all sinks of a process.
        workers: producers that exist already.
        new_worker: makes a producer, as `TransactionWorker` does.
        initialise_s: how long a call that initialises a producer may take.
    """

    def __init__(
        self,
        config: BridgeConfig,
        target: Target,
        run: BridgeRun,
        *,
        workers: Sequence[TransactionWorker] = (),
        new_worker: Callable[..., TransactionWorker] = TransactionWorker,
        initialise_s: float = INITIALISE_S,
    ) -> None:
        self._config = config
        self._target = target
        self._run = run
        self._workers = list(workers)
        self._new_worker = new_worker
        self._initialise_s = initialise_s
        self._waiting_bytes = 0
        self._events: deque[SinkEvent] = deque()
        self._changed = asyncio.Event()

    async def start(self, batch_bytes: int) -> None:
        """Claim the bridge, and fence all older starts.

        Args:
            batch_bytes: the largest batch that all target topics take.

        Raises:
            BridgeFencedError: a newer start has claimed it.
            TargetError: the target doesn't respond, or refuses.
        """
        initialised = 0
        while True:
            claims = await self._claims()
            # A claim whose write timed out may have arrived.
            self._run.has_claimed |= any(claim.run == self._run.id for claim in claims)
            if self._run.has_claimed:
                # A session after an outage doesn't take the bridge back from a newer start.
                self._check(claims)
            older = [claim.run for claim in claims if claim.run != self._run.id]
            is_new = not self._run.has_claimed
            # Step 1: write this run's claim, with all ids that were ever in use.
            claim = next_claim(claims, self._run.id, self._config.copy.producers)
            await self._target.write(self._config.state_topic, CLAIM_KEY, encode_claim(claim))
            self._run.has_claimed = True
            # Step 2: initialise all these ids. That fences each producer of an older start, and
            # ends its open transaction one way or the other.
            await self._initialise(initialised, claim.ids, batch_bytes)
            initialised = claim.ids
            # Step 3: read the claims again. If the last one is of another run, that start is newer.
            claims = await self._claims()
            self._check(claims)
            if is_new and older:
                _log.info(
                    "%s: took the bridge over from its last start (run %s): if that still runs, it "
                    "ends with exit code 3", self._config.client_id, older[-1],
                )  # fmt: skip
            # A claim that came in between may have more ids: do all steps again.
            if all(claim.ids <= initialised for claim in claims):
                break
        producers = self._config.copy.producers
        idle, self._workers = self._workers[producers:], self._workers[:producers]
        for worker in idle:
            await self._target.call("close a producer", worker.close)

    async def check_owner(self) -> None:
        """Verify that no newer start has claimed the bridge.

        Raises:
            BridgeFencedError: one has.
            TargetError: the target doesn't respond.
        """
        self._check(await self._claims())

    @property
    def has_run(self) -> bool:
        """Whether the bridge was started before this process, as `start()` has found."""
        return not self._run.is_first

    @property
    def has_room(self) -> bool:
        """Whether less than `buffer_bytes` wait for the workers."""
        return self._waiting_bytes < self._config.copy.buffer_bytes

    async def wait_room(self) -> None:
        """Wait until there is room, or a worker reports an event."""
        if not self.has_room and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    @property
    def failure(self) -> WorkerFailed | None:
        """The failure of a worker among the events that weren't taken; None if there is none."""
        return next((event for event in self._events if isinstance(event, WorkerFailed)), None)

    @property
    def has_new_commit(self) -> bool:
        """Whether a commit is among the events that weren't taken."""
        return any(isinstance(event, TransactionCommitted) for event in self._events)

    def next_event(self) -> SinkEvent | None:
        """Return the next event of a worker, None if there is none."""
        return self._events.popleft() if self._events else None

    async def begin_anew(
        self,
        pairs: Mapping[TopicPartition, TopicPartition],
        stale: Mapping[TopicPartition, Sequence[bytes]],
    ) -> None:
        """Set positions to 0 and remove stored offset runs; call it before `run_workers()`.

        Args:
            pairs: partition of the source → partition of the target.
            stale: by partition of the source, the keys to remove from the offsets topic.

        Raises:
            BridgeFencedError: a newer start has claimed the bridge; its positions are untouched.
            TargetError: the target doesn't respond, or refuses.
        """
        for number, worker in enumerate(self._workers):
            tps = [tp for tp in pairs if self.worker_of(tp) == number]
            copies = [pairs[tp] for tp in tps]
            keys = [key for tp in tps for key in stale.get(tp, ())]
            action = f"set positions to 0 by producer {number}"
            if tps:
                await self._call_claimed(action, partial(worker.begin_anew, copies, keys))

    def run_workers(self, run_logs: Mapping[TopicPartition, RunLog]) -> None:
        """Start the threads; `run_logs`: the stored offset runs by source partition."""
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
        """Let the workers commit their open transactions and end; give up after `timeout_s`.

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
                self.report(WorkerFailed(number, error))

    async def close(self) -> None:
        """Release the producers of workers that never began; free the chunks of hanging workers."""
        workers, self._workers = self._workers, []
        for worker in workers:
            if worker.is_running:
                worker.drop_chunks()
        await asyncio.gather(*(self._close(worker) for worker in workers if not worker.has_begun))

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
            settings = worker_settings(self._config, self._target, number, batch_bytes)
            action = f"initialise {settings.transactional_id}"
            worker = await self._target.call(
                action,
                self._new_worker,
                settings,
                lambda event: loop.call_soon_threadsafe(self.report, event),
            )
            self._workers.append(worker)
            await self._call_claimed(action, worker.initialise)

    async def _call_claimed(self, action: str, call: Callable[[], None]) -> None:
        try:
            await _call_producer(self._target, action, call, self._initialise_s)
        except TargetError:
            await self.check_owner()  # two starts at the same time: the older one ends here
            raise

    async def _claims(self) -> list[Claim]:
        claims = await read_claims(self._config, self._target)
        # Compaction may remove the claims of older starts once this one has written its own.
        self._run.is_first &= all(claim.run == self._run.id for claim in claims)
        return claims

    def _check(self, claims: list[Claim]) -> None:
        check_claims(self._config, claims, self._run.id)

    def report(self, event: SinkEvent) -> None:
        """Add an event of a worker, in the event loop."""
        if isinstance(event, ChunkTaken):
            self._waiting_bytes -= event.size
        else:
            self._events.append(event)
        self._changed.set()
