"""A group in ZooKeeper, as the Scala high-level consumer of 0.8 has them, and together with it.

One task goes round: register and look, compute who reads what, and where that is different from
what is read: give all back, release, claim the new ones, read. Somebody else may not have released
yet: then all is released again, and tried anew after `rebalance_backoff_ms`, until after
`rebalance_max_retries` tries the user is told. Law: a partition is read only while this session
owns its node. When the session has ended, or ZooKeeper was away for so long that it may have,
partitions are let go at once and nothing more is committed of them: others may be further by now.
The same where this process was stopped, or its loop held up, so that nobody could have noticed.

kazoo's threads touch nothing here; they call the loop by `call_soon_threadsafe`. What is in the
nodes is told in `registry`, the arithmetic in `scala`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, TypeVar

from aiokafka08.concurrency.notifier import Notifier
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Assignee
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaUnavailableError,
)
from aiokafka08.net.router import Router
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import GroupJoined, GroupJoinFailed, GroupLeft
from aiokafka08.zookeeper.scala_format import RANGE, ROUNDROBIN, decide
from aiokafka08.zookeeper.scala_registry import Registry
from aiokafka08.zookeeper.session import KeptSession, check_node_name, require_kazoo

T = TypeVar("T")

SURE = 2 / 3
"""The part of a session that it lasts at least without a sign of life: kazoo gives one at each
third."""
AWAY = 1 / 4
"""The part of a session for which ZooKeeper may be away. kazoo may notice only after two thirds
that nothing comes any more (where no connection is closed), and the session goes on from the last
sign that ZooKeeper has seen."""
BEAT = 1 / 6
"""The part of a session after which this loop looks whether it was held up."""

_log = logging.getLogger("aiokafka08.consumer")


class ZookeeperGroup:
    """This consumer's membership in its group.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
        IllegalArgumentError: the group can't be a node, or a strategy is neither range nor
            roundrobin.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        router: Router,
        subscription: Subscription,
        assignee: Assignee,
        standing: MemberState,
        connect: str,
    ) -> None:
        require_kazoo()
        self._group = config.group_id or ""
        check_node_name("group_id", self._group)
        self._strategy = _strategy(config)
        self._config = config
        self._router = router
        self._subscription = subscription
        self._assignee = assignee
        self._standing = standing
        self._connect = connect
        self._bell = Notifier()
        self._session = KeptSession(connect, "aiokafka08.consumer.kazoo")
        self._registry: Registry | None = None
        self._owned: dict[TopicPartition, str] = {}  # what is read, each with its thread
        self._nodes: set[TopicPartition] = set()  # what may have a node of this session
        self._number = -1  # of the subscription that the partitions are of
        self._away_since: float | None = None  # without a connection to ZooKeeper
        self._lost = False  # the session is over
        self._beating: asyncio.TimerHandle | None = None
        self._stale = True
        self._task: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    # --- the seam ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the session; where there is a subscription, wait for the first assignment.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: there is no such chroot; or others didn't let go of partitions.
        """
        loop = asyncio.get_running_loop()
        limit_s = self._config.session_timeout_s
        session = await self._session.open(limit_s)
        session.add_listener(lambda state: loop.call_soon_threadsafe(self._state, str(state)))
        self._registry = Registry(
            session,
            self._connect,
            self._group,
            limit_s,
            lambda: loop.call_soon_threadsafe(self.changed),
        )
        self._settled = loop.create_future()
        self._beat()
        self._task = loop.create_task(self._follow(), name="aiokafka08 zookeeper group")
        if self._subscription.by_topic:
            await self._settled
            self.check()

    async def stop(self) -> None:
        """End the session: the nodes go with it."""
        if self._beating is not None:
            self._beating.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        closed = await self._session.close()
        if closed and self._registry is not None and self._registry.member:
            self._router.telemetry.emit(GroupLeft(self._group, self._registry.member, "stopped"))

    def changed(self) -> None:
        """Look again."""
        self._stale = True
        self._bell.notify()

    def check(self) -> None:
        """Raise, once, why there are no partitions, or what ended the membership."""
        if self._error is not None:
            error = self._error
            if self._task is not None and not self._task.done():
                self._error = None
            raise error

    # --- news -------------------------------------------------------------------------------------

    def _state(self, state: str) -> None:
        """kazoo's states: CONNECTED, SUSPENDED, LOST."""
        if state == "CONNECTED":
            self._away_since = None
        elif self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
        if state == "LOST":
            self._lost = True
            self._standing.lost = self._standing.lost or bool(self._owned)
        self.changed()

    def _beat(self) -> None:
        """Look whether this loop was held up for so long that the session may be over."""
        loop = asyncio.get_running_loop()
        if loop.time() > self._standing.until:
            self._lost = self._standing.lost = True
            self.changed()
        self._sure()
        self._beating = loop.call_later(self._config.session_timeout_s * BEAT, self._beat)

    def _sure(self) -> None:
        """The session is alive, for all that can be known."""
        last = asyncio.get_running_loop().time() + self._config.session_timeout_s * SURE
        self._standing.until = last if self._owned else math.inf

    def _away_until(self) -> float | None:
        """When the session is taken for ended, if ZooKeeper doesn't come back."""
        if self._away_since is None:
            return None
        return self._away_since + self._config.session_timeout_s * AWAY

    # --- rounds -----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                until = self._away_until()
                if self._lost or (until is not None and until <= loop.time()):
                    await self._let_go()
                if self._away_since is not None:
                    await self._bell.wait(until if self._owned else None)
                elif self._stale:
                    self._stale = False
                    await self._round()
                else:
                    await self._bell.wait()
        except Exception as error:
            _log.error("group %r: the membership has ended", self._group, exc_info=error)
            self._fail(error)
            try:
                await self._assignee.revoke()
            finally:
                if self._registry is not None:
                    await self._unregister(self._registry, "failed")

    async def _let_go(self) -> None:
        """The session is over, or as good as."""
        self._lost = False
        self._stale = True
        if self._owned:
            self._standing.lost = True
            self._owned = {}
            await self._assignee.revoke()

    async def _round(self) -> None:
        registry = self._registry
        assert registry is not None
        if not self._subscription.by_topic:
            if registry.member:
                await self._assignee.revoke()
            await self._unregister(registry, "unsubscribed")
            self._settle()  # `start()` has nothing to wait for any more
            return
        conflict = ""
        for _ in range(self._config.rebalance_max_retries):
            try:
                found = await self._try(registry)
            except KafkaError as error:
                if not error.retriable:
                    raise
                found = error.text
            if found is None:
                self._error = None
                self._settle()
                return
            conflict = found
            self._router.telemetry.emit(GroupJoinFailed(self._group, conflict))
            if not await self._backed_off():
                self._stale = True
                return
        self._stale = True
        self._fail(
            KafkaUnavailableError(
                f"group {self._group!r}: no partitions after rebalance_max_retries="
                f"{self._config.rebalance_max_retries} tries: {conflict}"
            )
        )

    async def _backed_off(self) -> bool:
        """Wait for `rebalance_backoff_ms`; False: the session is in doubt, which can't wait."""
        end = asyncio.get_running_loop().time() + self._config.rebalance_backoff_s
        while self._away_since is None and not self._lost:
            if not await self._bell.wait(end):
                return True
        return False

    async def _unregister(self, registry: Registry, reason: str) -> None:
        """Own nothing and be no member; what ZooKeeper can't be told now is told when it is back,
        since the nodes would stay for as long as the session."""
        nodes = tuple(self._nodes)
        self._owned = {}
        self._standing.lost = False
        self._sure()
        while member := registry.member:
            try:
                await self._in_thread(lambda: registry.leave(nodes))
            except KafkaError as error:
                _log.warning("group %r: %s isn't out of it: %s", self._group, member, error.text)
                if not await self._backed_off():
                    self._stale = True
                    return
            else:
                self._router.telemetry.emit(GroupLeft(self._group, member, reason))
        self._nodes.clear()

    async def _try(self, registry: Registry) -> str | None:
        """One rebalance; None when it worked, else why it didn't."""
        self._stale = False
        number = self._subscription.number
        topics = self._subscription.topics(self._router.metadata.snapshot)
        view = await self._in_thread(lambda: registry.look(topics))
        wanted = decide(self._strategy, view, topics, registry.member)
        if wanted == self._owned and number == self._number:
            return None
        await self._assignee.revoke()
        self._owned = {}
        nodes = tuple(self._nodes)
        await self._in_thread(lambda: registry.release(nodes))
        self._nodes = set(wanted)
        conflict = await self._in_thread(lambda: registry.claim(wanted))
        if conflict is not None:
            self._nodes.clear()
            return conflict
        self._owned = wanted
        self._sure()
        if self._lost or self._away_since is not None or self._subscription.number != number:
            self._stale = True
            return None
        self._number = number
        self._standing.lost = False
        self._router.telemetry.emit(
            GroupJoined(self._group, -1, registry.member, False, tuple(sorted(wanted)))
        )
        await self._assignee.assign(wanted, told=True)
        return None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._settle()
        self._assignee.wake()


def _strategy(config: ConsumerConfig) -> str:
    """Range, as Scala's default; or what `partition_assignment_strategy` names first."""
    given: list[Any] = list(config.assignment_strategies)
    name = getattr(given[0], "name", given[0]) if given else RANGE
    if name not in (RANGE, ROUNDROBIN):
        raise IllegalArgumentError(
            f"partition_assignment_strategy={given!r}: groups in ZooKeeper know range and "
            "roundrobin, and all members must have the same"
        )
    return str(name)
