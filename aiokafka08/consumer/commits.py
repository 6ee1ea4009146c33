"""What is committed and when: the user's calls, every `auto_commit_interval_ms`, before partitions
are taken away, and at the stop.

What is committed is the position: behind the last message that the user got. Law: one commit at a
time, in the order of the calls, so that an older position never overwrites a newer one. A commit
carries the member's standing of the moment when its positions were taken: a generation that ends
meanwhile fences it, and none outlives the giving back of partitions. A commit that nobody asked for
by name fails without an exception, told by `CommitFailed`; what trying again can't help comes out
of the next call that takes messages. Where offsets are kept is `offset_store`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.cursor import Cursor
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Membership
from aiokafka08.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
)
from aiokafka08.net.router import Router
from aiokafka08.offset_store import CommitIdentity, OffsetStore
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.telemetry import CommitFailed

Offsets = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]

LAST_OFFSET = 2**63 - 1

SHORTEST_INTERVAL_S = 0.01
"""With `auto_commit_interval_ms=0`."""


class Commits:
    """The commits of one consumer.

    Args:
        cursors: what is read now.
        member_state: the consumer's state in its group, written by the membership.
        on_crash: called with what ended the task that should never end.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        member_state: MemberState,
        cursors: Mapping[TopicPartition, Cursor],
        router: Router,
        on_crash: Callable[[BaseException], object],
    ) -> None:
        self._store: OffsetStore | None = None  # until `start`
        self._membership: Membership | None = None  # as well
        self._member_state = member_state
        self._cursors = cursors
        self._on_crash = on_crash
        self._telemetry = router.telemetry
        self._timeout_s = router.config.request_timeout_s
        self._automatic = config.enable_auto_commit and config.group_id is not None
        self._interval_s = max(config.auto_commit_interval_s, SHORTEST_INTERVAL_S)
        # In a rebalance the others wait for this member, for as long as its session lasts.
        self._last_s = config.session_timeout_s / 2
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._given_back = 0  # how often
        self._under_way: set[asyncio.Timeout] = set()
        self._error: KafkaError | None = None

    def start(self, store: OffsetStore, membership: Membership) -> None:
        """Begin to commit by itself, where that is wanted."""
        self._store, self._membership = store, membership
        if self._automatic:
            self._task = asyncio.get_running_loop().create_task(
                self._keep(), name="aiokafka08 auto commit"
            )
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End that, with a last commit; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            try:
                await self.automatic(self._cursors)
            finally:
                await asyncio.gather(*self._later, return_exceptions=True)

    def positions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of these partitions, where they are known."""
        known = {tp: self._cursors[tp].position for tp in partitions if tp in self._cursors}
        return {tp: OffsetAndMetadata(at, "") for tp, at in known.items() if at is not None}

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Commit these offsets, with the standing of now, not of when it is awaited.

        Raises as `OffsetStore.commit`.
        """
        self._refuse_lost()
        identity = CommitIdentity(self._member_state.generation, self._member_state.member)
        return self._commit(offsets, identity, timeout_s, self._given_back)

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: CommitIdentity,
        timeout_s: float | None,
        given_back: int,
    ) -> None:
        if not offsets:
            return
        under_way = asyncio.timeout(None)  # `give_back` sets it
        try:
            async with under_way:
                if given_back != self._given_back:
                    raise TimeoutError
                self._under_way.add(under_way)
                await self._in_turn(offsets, identity, timeout_s)
        except TimeoutError:
            raise CommitFailedError(
                "the partitions were given back meanwhile, to others who begin at the offsets "
                "committed before; these may or may not be"
            ) from None
        finally:
            self._under_way.discard(under_way)

    async def _in_turn(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: CommitIdentity,
        timeout_s: float | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            async with asyncio.timeout_at(end):
                await self._lock.acquire()
        except TimeoutError:
            raise KafkaTimeoutError("offsets not committed: the commit before takes long") from None
        try:
            self._refuse_lost()  # it may have ended while this waited
            assert self._store is not None  # no call gets here before the consumer's start
            await self._store.commit(offsets, identity, timeout_s=max(end - loop.time(), 0))
        except CommitFailedError as failure:
            if self._membership is not None and isinstance(failure.__cause__, BrokerResponseError):
                self._membership.on_commit_fenced(failure.__cause__, identity.generation)
            raise
        finally:
            self._lock.release()

    async def automatic(self, partitions: Collection[TopicPartition]) -> None:
        """Commit the positions of these partitions, which are being given up.

        Only where commits are automatic. Never raises for Kafka's reasons, and takes no longer than
        half the session timeout.
        """
        if self._automatic:
            await self._try(self.positions(partitions), self._last_s)

    def later(self, partitions: Collection[TopicPartition]) -> None:
        """`automatic` in the background, with the positions of now; for the user's own choice of
        partitions, which nobody else waits for."""
        if self._task is not None:
            work = self._try(self.positions(partitions), self._last_s)
            task = asyncio.get_running_loop().create_task(work, name="aiokafka08 commit")
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            task.add_done_callback(self._ended)

    def last_moment(self) -> float:
        """The loop time by which partitions that are given up from now on are committed."""
        return asyncio.get_running_loop().time() + self._last_s

    async def settled(self, until: float) -> None:
        """Wait for the commits that were asked for before; not beyond this loop time."""
        await asyncio.sleep(0)  # those asked for just now take their turn first
        try:
            async with asyncio.timeout_at(until):
                if self._later:
                    await asyncio.wait(self._later)
                await self._lock.acquire()
                self._lock.release()
        except TimeoutError:
            pass

    def give_back(self) -> None:
        """Let no commit that was asked for until now go on: from now on the partitions may be
        others', and where ZooKeeper keeps the offsets nobody refuses what comes too late."""
        self._given_back += 1
        now = asyncio.get_running_loop().time()
        for one in self._under_way:
            if not one.expired():
                one.reschedule(now)

    def check(self) -> None:
        """Raise, once, why commits can't work by themselves."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)

    def _refuse_lost(self) -> None:
        if (
            self._member_state.session_lost
            or asyncio.get_running_loop().time() > self._member_state.session_deadline
        ):
            raise CommitFailedError(
                "the session in ZooKeeper has ended, or may have while this process stood still "
                "(session_timeout_ms): the partitions may have been given to others, who begin at "
                "the offsets committed before"
            )

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._try(self.positions(self._cursors), None)

    async def _try(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None
    ) -> None:
        try:
            await self.commit(offsets, timeout_s=timeout_s)
        except KafkaError as error:
            self._telemetry.emit(CommitFailed(error.text))
            if not error.retriable and not isinstance(error, CommitFailedError):
                self._error = error


def checked(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a user gave to commit.

    Raises:
        ValueError: it is empty, or an offset isn't an integer from 0 to 2⁶³-1.
        TypeError: a key is no `TopicPartition`, or a metadata no text.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError(f"{offsets!r}: allowed is a dict of TopicPartition to offset, not empty")
    commits = {}
    for tp, given in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"{tp!r} must be a TopicPartition")
        try:
            offset, metadata = (given, "") if isinstance(given, int) else given
        except (TypeError, ValueError):
            raise ValueError(
                f"{given!r} for {tp}: allowed are an offset and (offset, metadata)"
            ) from None
        if type(offset) is not int or not 0 <= offset <= LAST_OFFSET:
            raise ValueError(
                f"offset {offset!r} for {tp}: allowed are integers from 0 to 2**63 - 1"
            )
        if not isinstance(metadata, str):
            raise TypeError(f"metadata {metadata!r} for {tp} must be a string")
        commits[tp] = OffsetAndMetadata(offset, metadata)
    return commits
