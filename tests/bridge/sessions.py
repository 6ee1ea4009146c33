"""A session of a bridge without clusters: its sink records chunks, its source is scripted.

Drive it by `CopySession.add` and `CopySession.step`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import AsyncMock, Mock, create_autospec

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_session import CopyParts, CopySession
from aiokafka08.bridge.copy.copy_starts import CopyStart, CopyStarts, FoundStarts, LeftOut
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.sink.events import (
    Chunk,
    SinkEvent,
    TransactionCommitted,
    WorkerFailed,
)
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.source.topic_identity import TopicIdentities
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import ConsumerRecord, TopicPartition


class RecordingSink:
    """In place of a `TransactionSink` with one worker.

    Attributes:
        chunks: what was put.
        events: what `next_event` returns.
        room: what `has_room` returns, the last one again and again.
    """

    has_run = False

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.events: deque[SinkEvent] = deque()
        self.room = deque([True])

    @property
    def has_room(self) -> bool:
        return self.room.popleft() if len(self.room) > 1 else self.room[0]

    @property
    def failure(self) -> WorkerFailed | None:
        return next((one for one in self.events if isinstance(one, WorkerFailed)), None)

    @property
    def has_new_commit(self) -> bool:
        return any(isinstance(one, TransactionCommitted) for one in self.events)

    async def wait_room(self) -> None:
        pass

    async def check_owner(self) -> None:
        pass

    def next_event(self) -> SinkEvent | None:
        return self.events.popleft() if self.events else None

    def worker_of(self, tp: TopicPartition) -> int:
        return 0

    def put(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)


class UnstartedSession:
    """A session and what it works with; the time stands still unless a test moves `now`."""

    def __init__(self, config: BridgeConfig, run: BridgeRun | None = None) -> None:
        self.status, self.sink, self.now = CopyStatus(), RecordingSink(), 1000.0
        self.source: Any = create_autospec(SourceReader, instance=True)
        self.source.read = AsyncMock(return_value={})
        self.source.end_of.return_value = None
        self.starts: Any = create_autospec(CopyStarts, instance=True)
        self.watch: Any = Mock(found=asyncio.Queue(), expired=set(), leaderless=set())
        parts: Any = CopyParts(
            self.source,
            create_autospec(Target, instance=True),
            self.sink,  # type: ignore[arg-type]
            create_autospec(TopicIdentities, instance=True),
            self.starts,
            self.watch,
        )
        run = run or BridgeRun()
        self.session = CopySession(config, self.status, run, parts=parts, clock=lambda: self.now)

    async def add(
        self,
        positions: Mapping[TopicPartition, CopyStart],
        left_out: Mapping[TopicPartition, LeftOut] | None = None,
        begins: Iterable[TopicPartition] = (),
    ) -> None:
        """Let the session copy partitions, to partitions of the same names."""
        found = FoundStarts(dict(positions), dict(left_out or {}), begins=set(begins))
        self.starts.find = AsyncMock(return_value=found)
        await self.session.add({tp: tp for tp in [*found.positions, *found.left_out]})

    async def read(self, records: Mapping[TopicPartition, Sequence[Any]] | Exception) -> None:
        """Let the session read these records, or meet an error."""
        self.source.read.side_effect = [records]
        await self.session.step(None)
        self.source.read.side_effect = None

    @property
    def put(self) -> list[tuple[TopicPartition, int]]:
        """Return where the chunks lead that were put."""
        return [(one.source, one.next_offset) for one in self.sink.chunks]


def record(tp: TopicPartition, offset: int = 0) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(*tp, offset, -1, -1, b"k", b"v", 0, 1, 1, ())


def with_identities(identities: type[TopicIdentities]) -> Callable[..., CopySession]:
    """Return what makes sessions that read the topics of the source in this way."""

    def new_session(
        config: BridgeConfig, status: CopyStatus, run: BridgeRun, *rest: Any
    ) -> CopySession:
        parts = CopyParts.of(config, status, run, new_identities=identities)
        return CopySession(config, status, run, *rest, parts=parts)

    return new_session
