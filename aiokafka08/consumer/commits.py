"""Commit positions: for `commit()`, at intervals, before a revocation, and at the stop.

A position is the offset after the last message that the user got.

Invariants: one commit is in progress at a time. A commit's coroutine begins to run at most one loop
iteration after its positions were read, and commits are sent in the order in which they began. A
commit carries the generation and the member id (`CommitIdentity`) from the moment when its
positions were read, so the coordinator refuses it if that generation has ended. If a commit that
the user didn't call fails, it raises no `KafkaError` in the background. It emits `CommitFailed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Final, SupportsIndex

from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.histogram import Histogram
from aiokafka08._core.net.cluster import check_partitions
from aiokafka08._core.net.config import as_integer
from aiokafka08._core.net.router import Router
from aiokafka08._core.offset_store import CommitIdentity, OffsetStore
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.cursor import Cursor
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Membership
from aiokafka08.consumer.observer import ConsumerObserver
from aiokafka08.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
)
from aiokafka08.structs import LAST_OFFSET, OffsetAndMetadata, TopicPartition
from aiokafka08.telemetry import CommitFailed

CommitOffsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]
"""What a user may pass to `commit()`."""

# Offsets, or partitions whose committed offsets are read and committed again
_ToCommit = Mapping[TopicPartition, OffsetAndMetadata] | frozenset[TopicPartition]

SHORTEST_INTERVAL_S: Final = 0.01
"""The interval for `auto_commit_interval_ms=0`."""


class Committer:
    """The commits of one consumer; see the module."""

    def __init__(
        self,
        config: ConsumerConfig,
        member_state: MemberState,
        cursors: Mapping[TopicPartition, Cursor],
        router: Router,
        observer: ConsumerObserver,
    ) -> None:
        self.times = Histogram("commit_seconds")  # the times of successful commits
        self._member_state = member_state
        self._cursors = cursors
        self._observer = observer
        self._telemetry = router.telemetry
        self._timeout_s = router.config.request_timeout_s
        self._has_two_stores = config.offsets_storage == "dual"
        self._is_automatic = config.enable_auto_commit and config.group_id is not None
        self._interval_s = max(config.auto_commit_interval_s, SHORTEST_INTERVAL_S)
        # In a rebalance the group waits for this member only until its session ends, so the commits
        # before the member joins again may take half of that time.
        self._revoke_timeout_s = config.session_timeout_s / 2
        self._store: OffsetStore
        self._membership: Membership
        self._lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._timers = TaskSet(observer.task_failed)
        self._tasks = TaskSet(observer.task_failed)
        self._cancel_count = 0  # calls of `cancel_pending`
        self._pending: dict[asyncio.Timeout, None] = {}

    @property
    def is_committing(self) -> bool:
        return self._lock.locked()

    def start(self, store: OffsetStore, membership: Membership) -> None:
        """Commit to `store`, and begin to commit automatically, if that is enabled."""
        self._store, self._membership = store, membership
        if self._is_automatic:
            self._timer = self._timers.start(self._commit_at_intervals(), "aiokafka08 auto commit")

    async def stop(self) -> None:
        """Make the last automatic commit, and make no further one; safe to call twice."""
        task, self._timer = self._timer, None
        try:
            if task is not None:
                await self._timers.cancel()
                await self.commit_revoked(self._cursors)
        finally:
            await self._tasks.wait()

    def positions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of these partitions, as far as they are assigned and known."""
        return known_positions(
            {tp: cursor for tp, cursor in self._cursors.items() if tp in partitions}
        )

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Return a coroutine that commits these offsets; raises as `OffsetStore.commit`."""
        self.check_session()
        # The generation is that of this call, even if the coroutine is awaited later.
        return self._commit(offsets, self._identity(), timeout_s, self._cancel_count)

    async def commit_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit the positions of partitions that are being given up; raise no `KafkaError`."""
        if self._is_automatic:
            await self._try_commit(self.positions(partitions), self._revoke_timeout_s)

    def commit_revoked_soon(self, partitions: Collection[TopicPartition]) -> None:
        """As `commit_revoked`, in the background, with the present positions and generation."""
        if self._timer is not None:
            # After assign() or unsubscribe() no other member waits for these partitions.
            self._commit_soon(self.positions(partitions))

    def level_stores_soon(self, partitions: Collection[TopicPartition]) -> None:
        """With "dual", commit stored offsets to both stores, in the background."""
        if self._has_two_stores and partitions:
            # The offset of a partition without new messages would stay in the store that the group
            # is about to leave. A member that knows only the other one would start where
            # `auto_offset_reset` says.
            self._commit_soon(frozenset(partitions))

    def revoke_deadline(self) -> float:
        """Return the deadline, as loop time, for the commits of a revocation that begins now."""
        return asyncio.get_running_loop().time() + self._revoke_timeout_s

    async def wait_pending(self, deadline: float) -> None:
        """Wait until the commits that were called so far have ended, at most until `deadline`."""
        if self._lost() is not None:
            # Commits of a lost session are refused, and may themselves wait for ZooKeeper. Other
            # members may own the partitions already.
            return
        await asyncio.sleep(0)  # a commit that was called just now gets the lock first
        try:
            async with asyncio.timeout_at(deadline):
                await self._tasks.wait()
                await self._lock.acquire()
                self._lock.release()
        except TimeoutError:
            pass

    def cancel_pending(self) -> None:
        """Make all commits that were called so far raise `CommitFailedError`."""
        # From now on other members may commit their own positions. ZooKeeper accepts the commit of
        # a former member too, so a late one would overwrite theirs with older offsets.
        self._cancel_count += 1
        now = asyncio.get_running_loop().time()
        for timeout in self._pending:
            if not timeout.expired():
                timeout.reschedule(now)

    def check_session(self) -> None:
        """Raise CommitFailedError if the group is gone, or the ZooKeeper session may have ended."""
        if (error := self._lost()) is not None:
            raise error

    # --- inside -----------------------------------------------------------------------------------

    def _commit_soon(self, offsets: _ToCommit) -> None:
        self._tasks.start(self._try_commit(offsets, self._revoke_timeout_s), "aiokafka08 commit")

    async def _commit(
        self,
        offsets: _ToCommit,
        identity: CommitIdentity,
        timeout_s: float | None,
        cancel_count: int,
    ) -> None:
        if not offsets:
            return
        timeout = asyncio.timeout(None)  # `cancel_pending` makes it expire
        try:
            async with timeout:
                if cancel_count != self._cancel_count:
                    raise TimeoutError
                self._pending[timeout] = None
                await self._commit_locked(offsets, identity, timeout_s)
        except TimeoutError:
            raise CommitFailedError(
                "commit of offsets: the partitions were revoked meanwhile, so the offsets may be "
                "committed or not. The members that read the partitions now begin at the committed "
                "offsets"
            ) from None
        finally:
            self._pending.pop(timeout, None)

    async def _commit_locked(
        self,
        offsets: _ToCommit,
        identity: CommitIdentity,
        timeout_s: float | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
        except TimeoutError:
            raise KafkaTimeoutError(
                "commit of offsets: not begun in time, an earlier commit is still in progress"
            ) from None
        try:
            self.check_session()  # the session may have ended since
            if isinstance(offsets, frozenset):
                # Offsets that can't be read are left out: `start_offsets` reports them.
                committed = await self._store.fetch_each(
                    offsets, timeout_s=max(deadline - loop.time(), 0)
                )
                offsets = {
                    tp: commit
                    for tp, commit in committed.items()
                    if isinstance(commit, OffsetAndMetadata)
                }
                if not offsets:
                    return
                self.check_session()
            began = loop.time()
            await self._store.commit(offsets, identity, timeout_s=max(deadline - began, 0))
            self.times.add(loop.time() - began)
        except CommitFailedError as failure:
            if isinstance(failure.__cause__, BrokerResponseError):
                self._membership.on_commit_fenced(failure.__cause__, identity.generation)
            raise
        finally:
            self._lock.release()

    def _identity(self) -> CommitIdentity:
        return CommitIdentity(self._member_state.generation, self._member_state.member)

    def _lost(self) -> CommitFailedError | None:
        state, now = self._member_state, asyncio.get_running_loop().time()
        if state.group_is_gone:
            return CommitFailedError(
                "commit of offsets: the brokers have no groups any more, since they were set back "
                "to a release before 0.9. Members in ZooKeeper may read the partitions now; they "
                "begin at the committed offsets"
            )
        if not state.session_lost and now <= state.session_deadline:
            return None
        return CommitFailedError(
            "commit of offsets: the session in ZooKeeper has ended, or may have ended while "
            "ZooKeeper wasn't reached, or this process or its event loop was held up "
            "(session_timeout_ms). Other members may read the partitions now; they begin at the "
            "committed offsets"
        )

    async def _commit_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._try_commit(self.positions(self._cursors), None)

    def _try_commit(self, offsets: _ToCommit, timeout_s: float | None) -> Coroutine[Any, Any, None]:
        """Like `commit`, with the generation at this call; report a failure, don't raise it."""
        return self._commit_reporting(
            offsets, self._identity(), timeout_s, self._cancel_count, self._lost()
        )

    async def _commit_reporting(
        self,
        offsets: _ToCommit,
        identity: CommitIdentity,
        timeout_s: float | None,
        cancel_count: int,
        lost: CommitFailedError | None,
    ) -> None:
        try:
            if lost is not None:
                raise lost
            await self._commit(offsets, identity, timeout_s, cancel_count)
        except KafkaError as error:
            self._telemetry.emit(CommitFailed(str(error)))
            if not error.retriable and not isinstance(error, CommitFailedError):
                # No retry can help.
                self._observer.commit_failed(error)


def known_positions(
    cursors: Mapping[TopicPartition, Cursor],
) -> dict[TopicPartition, OffsetAndMetadata]:
    positions = {
        # Messages that a call has taken and not returned yet don't count.
        tp: min((taken.position for taken in cursor.unreturned), default=cursor.position)
        for tp, cursor in cursors.items()
    }
    return {tp: OffsetAndMetadata(at, "") for tp, at in positions.items() if at is not None}


def as_offset(value: object) -> int | None:
    """Return a user's value if it is an offset: an integer from 0 to 2**63 - 1; else None."""
    number = as_integer(value)
    return number if number is not None and 0 <= number <= LAST_OFFSET else None


def check_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check what a user passed to `commit()`, and return it in one form.

    Raises:
        ValueError: it isn't a dict or is empty, an offset isn't an integer from 0 to 2**63 - 1, or
            a metadata can't be encoded.
        TypeError: a key isn't a `TopicPartition`, or a metadata isn't a string.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError(
            f"offsets={offsets!r}: expected a dict of TopicPartition to offset, not empty"
        )
    commits = {}
    for tp, value in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"offsets: {tp!r} is a key; expected a TopicPartition")
        check_partitions([tp])
        try:
            offset, metadata = (value, "") if isinstance(value, SupportsIndex) else value
        except (TypeError, ValueError):
            raise ValueError(
                f"offsets[{tp}]={value!r}: expected an offset or (offset, metadata)"
            ) from None
        checked = as_offset(offset)
        if checked is None:
            raise ValueError(
                f"offsets[{tp}]: offset {offset!r}; expected an integer from 0 to 2**63 - 1"
            )
        if not isinstance(metadata, str):
            raise TypeError(f"offsets[{tp}]: metadata {metadata!r}; expected a string")
        try:
            metadata.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"offsets[{tp}]: metadata {metadata!r}: {error}") from None
        commits[tp] = OffsetAndMetadata(checked, metadata)
    return commits
