"""`SessionWatch`: look from time to time for changes that the copy itself doesn't notice.

These are new or recreated topics, new partitions, partitions without a leader, records that the
target refuses and the source has deleted, and a newer start of the bridge.

Invariant: only the session reads, writes and stops partitions. The watch notes its findings, and
raises the errors that end the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiokafka08._wording import some_of
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError, BridgeFencedError
from aiokafka08.bridge.sink.sink import TransactionSink
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.source.topic_identity import TopicIdentities, TopicRecreatedError
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

_NEW_TOPICS: Final = "look for new topics"
_LEADERS: Final = "look for leaders"


class SessionWatch:
    """The periodic checks of one session, every `copy.look_s` seconds.

    Attributes:
        found: New partitions of the source, with their target partitions.
        expired: Partitions whose refused record the source doesn't have any more.
        leaderless: Partitions that have had no leader for `copy.outage_s`.
    """

    def __init__(
        self,
        config: BridgeConfig,
        source: SourceReader,
        sink: TransactionSink,
        identities: TopicIdentities,
        status: CopyStatus,
    ) -> None:
        self._config, self._source, self._sink = config, source, sink
        self._identities, self._status = identities, status
        self._gone_since: dict[TopicPartition, float] = {}
        self._transactions = 0
        self.found: asyncio.Queue[dict[TopicPartition, TopicPartition]] = asyncio.Queue()
        self.expired: set[TopicPartition] = set()
        self.leaderless: set[TopicPartition] = set()

    async def follow(
        self,
        refused: Mapping[TopicPartition, int],
        new_pairs: Callable[[], Awaitable[dict[TopicPartition, TopicPartition]]] | None,
    ) -> None:
        """Look until cancelled.

        Args:
            refused: the source offset that the target refuses, by partition; it may change.
            new_pairs: returns partitions that aren't copied yet; None looks for none.

        Raises:
            BridgeFencedError: a newer start has claimed the bridge.
            BridgeError: the bridge or a cluster needs a change by hand.
            TopicRecreatedError: a topic was created again.
        """
        while True:
            await asyncio.sleep(self._config.copy.look_s)
            if new_pairs is not None:
                await self._look(_NEW_TOPICS, lambda: self._find_new(refused, new_pairs))
            await self._look(_LEADERS, self._find_leaderless)

    async def _look(self, action: str, look: Callable[[], Awaitable[str | None]]) -> None:
        """Run a check; note its text or error in the status, or clear the note if it succeeds."""
        try:
            text = await look()
        except (BridgeError, BridgeFencedError, TopicRecreatedError):
            raise
        except KafkaError as error:
            text = error.text or repr(error)
        if text is None:
            self._status.note_success(action)
        else:
            failed = self._status.note_error(action, text)
            _log.warning("%s: %s: %s", self._config.client_id, action, failed)

    async def _find_new(
        self,
        refused: Mapping[TopicPartition, int],
        new_pairs: Callable[[], Awaitable[dict[TopicPartition, TopicPartition]]],
    ) -> None:
        # A commit by an older start fails as fenced. An idle session commits nothing, so check.
        if self._status.transactions == self._transactions:
            await self._sink.check_owner()
        self._transactions = self._status.transactions
        await self._identities.refresh()
        if self._config.copy.on_loss == "skip" and refused:
            bounds = await self._source.reachable_bounds(refused)
            self.expired |= {tp for tp in bounds if refused.get(tp, -1) < bounds[tp][0]}
        if pairs := await new_pairs():
            await self.found.put(pairs)

    async def _find_leaderless(self) -> str | None:
        """Return a text about the copied partitions without a leader; None if all have one.

        Raises:
            BridgeError: no broker of the source has responded for `copy.outage_s`.
        """
        copied = [
            tp for tp, partition in self._status.partitions.items() if partition.stopped is None
        ]
        bounds: Mapping[TopicPartition, tuple[int, int]] = {}
        # The consumer waits for a leader and raises no error, so the brokers are asked here.
        away: KafkaError | None = None
        try:
            bounds = await self._source.reachable_bounds(copied) if copied else {}
        except KafkaError as error:
            away = error
        if copied and not bounds:
            self._status.note_away("source", away.text if away else "no partition has a leader")
        elif copied:
            self._status.note_away("source", None)
        now = asyncio.get_running_loop().time()
        gone = [tp for tp in copied if tp not in bounds]
        self._gone_since = {tp: self._gone_since.get(tp, now) for tp in gone}
        self.leaderless = {
            tp for tp, at in self._gone_since.items() if now - at >= self._config.copy.outage_s
        }
        if not gone:
            return None
        if away is not None and self.leaderless.issuperset(copied):
            raise BridgeError(
                f"the source has been away for {self._config.copy.outage_s:g} s: {away.text}"
            ) from away
        return f"the source has no leader for {some_of(gone)}"
