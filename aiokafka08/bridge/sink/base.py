"""`BridgeSink`: what a copy asks of a sink, and how each sink claims the bridge.

`start()` does what `claims` describes; only after it may positions be read. `next_event()` returns
what the workers report. `check_owner()` tells a fenced worker from one that has failed.
`sink.TransactionSink` writes in transactions, `ordered.OrderedSink` without.

Invariant: the chunks that wait for a worker have at most `buffer_bytes` and one chunk more, if the
caller waits for room. No call blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import BridgeFencedError, TargetUnavailableError
from aiokafka08.bridge.offset_runs import RunLog
from aiokafka08.bridge.sink.claims import (
    CLAIM_KEY,
    Claim,
    decode_claims,
    encode_claim,
    next_claim,
)
from aiokafka08.bridge.sink.events import Chunk, ChunkTaken, SinkEvent, WorkerFailed
from aiokafka08.bridge.target_cluster import TargetCluster
from aiokafka08.structs import TopicPartition

_log = logging.getLogger("aiokafka08.bridge")

BATCH_BYTES = 1_000_000
"""The largest batch, before it is compressed: below the default of `max.message.bytes`."""


@dataclass(slots=True)
class BridgeRun:
    """A start of the bridge's process.

    Attributes:
        id: Random.
        has_claimed: Whether its claim is in the state topic.
        is_first: Whether no other start has left a claim.
        has_begun: Whether a session has found where its partitions begin, so it may have written.
        begun: Partitions of the source that began without a position, of which records were put,
            and that have no committed position yet: what their copies have may be this process's.
        has_warned: Whether the log says what the copy doesn't have of the source.
        logged: The texts that `log_once` has logged.
        identities_unknown: The reasons in the log why it isn't known which topics were created
            again; empty once it is known.
        first_ends: Where partitions of the source begin that began at their ends. A later session
            begins there, too, if that wasn't committed.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    has_claimed: bool = False
    is_first: bool = True
    has_begun: bool = False
    begun: set[TopicPartition] = field(default_factory=set)
    has_warned: bool = False
    logged: set[str] = field(default_factory=set)
    identities_unknown: set[str] = field(default_factory=set)
    first_ends: dict[TopicPartition, int] = field(default_factory=dict)

    def log_once(self, client_id: str, text: str) -> None:
        """Log a warning, unless a session of this process has logged it before."""
        if text not in self.logged:
            self.logged.add(text)
            _log.warning("%s: %s", client_id, text)


def check_claims(config: BridgeConfig, claims: Sequence[Claim], run: str) -> None:
    """Verify that a run has the last claim.

    Args:
        config: the file of the bridge.
        claims: all that the state topic has, in its order.
        run: the id of the run.

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


async def read_claims(config: BridgeConfig, target: TargetCluster) -> list[Claim]:
    """Return the claims in the state topic, in its order.

    Raises:
        TargetError: the target doesn't respond.
        KafkaProtocolError: a claim can't be read.
    """
    records = await target.read_topic(config.state_topic)
    return decode_claims((one.key, one.value) for one in records)


class BridgeSink(ABC):
    """The workers that write for a bridge.

    Args:
        config: the file of the bridge.
        target: a connection for topics, positions and claims.
        run: this start; the same one for all sinks of a process.
    """

    def __init__(self, config: BridgeConfig, target: TargetCluster, run: BridgeRun) -> None:
        self._config = config
        self._target = target
        self._run = run
        self._waiting_bytes = 0
        self._events: deque[SinkEvent] = deque()
        self._changed = asyncio.Event()

    async def start(self, batch_bytes: int) -> None:
        """Claim the bridge, and fence all older starts as far as the target can.

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
            self._run.has_claimed |= any(one.run == self._run.id for one in claims)
            if self._run.has_claimed:
                self._check(claims)  # don't take the bridge back from a newer start
            older = [one.run for one in claims if one.run != self._run.id]
            is_new = not self._run.has_claimed
            claim = next_claim(claims, self._run.id, self._config.copy.producers)
            await self._target.write(self._config.state_topic, CLAIM_KEY, encode_claim(claim))
            self._run.has_claimed = True
            await self._initialise(initialised, claim.ids, batch_bytes)
            initialised = claim.ids
            claims = await self._claims()
            self._check(claims)
            if is_new and older:
                _log.info(
                    "%s: took the bridge over from its last start (run %s): if that still runs, it "
                    "ends with exit code 3", self._config.client_id, older[-1],
                )  # fmt: skip
            if all(one.ids <= initialised for one in claims):
                break

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
        """Wait until there is room, or a worker has something to report."""
        if not self.has_room and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    @property
    def failure(self) -> WorkerFailed | None:
        """The failure of a worker among the events that weren't taken; None if there is none."""
        return next((one for one in self._events if isinstance(one, WorkerFailed)), None)

    def next_event(self) -> SinkEvent | None:
        """Return the next event of a worker, None if there is none."""
        return self._events.popleft() if self._events else None

    @abstractmethod
    async def _initialise(self, first: int, end: int, batch_bytes: int) -> None:
        """Fence what older starts have left under the ids from `first` to before `end`."""

    @abstractmethod
    async def begin_anew(
        self,
        pairs: Mapping[TopicPartition, TopicPartition],
        stale: Mapping[TopicPartition, Sequence[bytes]],
    ) -> None:
        """Set positions to 0 and remove runs; before `run_workers`.

        Args:
            pairs: partition of the source → partition of the target.
            stale: by partition of the source, the keys to remove from the offsets topic.

        Raises:
            BridgeFencedError: a newer start has claimed the bridge; its positions are untouched.
            TargetError: the target doesn't respond, or refuses.
        """

    @abstractmethod
    def run_workers(self, run_logs: Mapping[TopicPartition, RunLog]) -> None:
        """Start the workers.

        Args:
            run_logs: by partition of the source, what the offsets topic has.
        """

    @abstractmethod
    def worker_of(self, tp: TopicPartition) -> int:
        """Return the number of the worker that writes a partition of the source."""

    @abstractmethod
    def put(self, chunk: Chunk) -> None:
        """Pass a chunk to its worker; wait for room first, with `wait_room`."""

    @abstractmethod
    async def stop(self, timeout_s: float) -> None:
        """Let the workers commit what they have begun, and end; give up after `timeout_s`."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the workers hold."""

    # --- for the sinks ----------------------------------------------------------------------------

    async def _claims(self) -> list[Claim]:
        claims = await read_claims(self._config, self._target)
        # Compaction removes the claims of older starts as soon as this one has written its own.
        self._run.is_first &= all(one.run == self._run.id for one in claims)
        return claims

    def _check(self, claims: list[Claim]) -> None:
        check_claims(self._config, claims, self._run.id)

    def _on_event(self, event: SinkEvent) -> None:
        if isinstance(event, ChunkTaken):
            self._waiting_bytes -= event.size
        else:
            self._events.append(event)
        self._changed.set()
