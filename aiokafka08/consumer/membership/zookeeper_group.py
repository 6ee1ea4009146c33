"""Membership in a ZooKeeper group, compatible with the Scala high-level consumer of 0.8.

Invariant: a partition is read only while the current ZooKeeper session owns its node. When the
session has ended or may have ended, the member drops all partitions and commits nothing more for
them (`MemberState.session_lost`), because other members may have read further. The session may have
ended if the last request that ZooKeeper has answered was sent more than `SAFE_PART` of the session
timeout ago. kazoo's threads change nothing here; they call into the loop by `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from aiokafka08 import environment
from aiokafka08._core.concurrency.notifier import Notifier
from aiokafka08._core.net.router import Router
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.scala_registry import ScalaRegistry
from aiokafka08._core.zookeeper.session import ZookeeperSession
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Assignee, end_wait
from aiokafka08.consumer.membership.scala_assignment import assign_to_member, scala_strategy
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import BrokerResponseError, KafkaError, KafkaUnavailableError
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import GroupJoined, GroupJoinFailed, GroupLeft

P = ParamSpec("P")
T = TypeVar("T")

SAFE_PART: Final = 5 / 6
"""How long the session is certainly alive after the sending of a request that ZooKeeper has
answered, as a part of the session timeout. ZooKeeper counts the timeout from the last request
received. The rest is left for requests that are in flight when the partitions are dropped."""
PROBE_PART: Final = 1 / 6
"""The part of the session timeout between two probes (requests sent only to get a response).
So the event loop may be blocked, or the network down, for at least two thirds of the timeout."""

_log: Final = logging.getLogger("aiokafka08.consumer")


class ZookeeperGroup:
    """This consumer's membership in a ZooKeeper group."""

    def __init__(
        self,
        config: ConsumerConfig,
        router: Router,
        subscription: Subscription,
        assignee: Assignee,
        member_state: MemberState,
        zookeeper: ClusterZookeeper,
    ) -> None:
        self._group = config.group_id or ""
        self._strategy = scala_strategy(config.assignment_strategies)
        self._config = config
        self._router = router
        self._subscription = subscription
        self._assignee = assignee
        self._member_state = member_state
        self._zookeeper = zookeeper
        self._notifier = Notifier()
        self._session = ZookeeperSession(
            zookeeper, "aiokafka08.consumer.kazoo", self._threadsafe(self._on_session_state)
        )
        self._registry: ScalaRegistry | None = None
        self._owned: dict[TopicPartition, str] = {}  # partitions that are read → their threads
        self._claimed: set[TopicPartition] = set()  # partitions that may have a node of this member
        self._subscription_number = -1  # the subscription that `_owned` was computed for
        self._is_connected = True
        self._answered_at = 0.0  # loop time at which the last answered request was sent
        self._session_ended = False  # True from the end of a session until `_drop_partitions`
        self._probing: asyncio.Task[None] | None = None
        self._is_settled = False  # the partitions of the last rebalance are owned and read
        self._is_stale = True  # the group, the topics or the subscription may have changed
        self._task: asyncio.Task[None] | None = None
        self._request: asyncio.Task[Any] | None = None
        self._first_round: asyncio.Future[None] | None = None
        self._is_starting = False  # `start()` waits for the first round

    # --- Membership -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the session; with a subscription, wait for the first assignment.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: the chroot doesn't exist; or other members didn't release
                partitions.
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
        """
        loop = asyncio.get_running_loop()
        self._first_round = loop.create_future()
        client = await self._session.open(self._config.session_timeout_s)
        self._registry = ScalaRegistry(
            client,
            self._zookeeper.shown,
            self._group,
            self._config.session_timeout_s,
            self._threadsafe(self.on_change),
            self._router.config.client_id,
            self._session.verify,
        )
        self._probing = loop.create_task(
            self._probe_session(self._registry), name="aiokafka08 zookeeper probe"
        )
        self._is_starting = self._subscription.by_topic
        self._task = loop.create_task(self._run(), name="aiokafka08 zookeeper group")
        if self._is_starting:
            await self._first_round

    async def stop(self) -> None:
        """End the session; ZooKeeper deletes the member's nodes with it."""
        tasks = [task for task in (self._probing, self._task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = await self._session.close()
        if self._request is not None:  # it can't be cancelled; without a session it soon ends
            await asyncio.gather(self._request, return_exceptions=True)
        if closed and self._registry is not None and self._registry.member:
            self._router.telemetry.emit(GroupLeft(self._group, self._registry.member, "stopped"))

    @property
    def is_joined(self) -> bool:
        """See `Membership`: the session lives, and owns the assigned partitions."""
        return self._is_settled and self._is_connected and not self._session_ended

    def on_change(self) -> None:
        self._is_stale = True
        self._notifier.notify()

    def on_commit_fenced(self, error: BrokerResponseError, generation: int) -> None:
        """Do nothing: groups in ZooKeeper have no generations."""

    def on_call(self) -> None:
        """Do nothing: a member in ZooKeeper stays one without calls."""

    # --- the session ------------------------------------------------------------------------------

    def _on_session_state(self, state: str) -> None:
        self._is_connected = state == "CONNECTED"
        if state == "LOST":
            self._session_ended = True
            self._member_state.session_lost |= bool(self._owned)
        self.on_change()

    async def _probe_session(self, registry: ScalaRegistry) -> None:
        """While registered, send requests whose responses show that the session lives."""
        loop = asyncio.get_running_loop()
        while True:
            sent_at = loop.time()
            if registry.member:
                answered: asyncio.Future[bool] = loop.create_future()
                registry.probe(self._threadsafe(partial(_set_result, answered)))
                # Send no further request without a response: kazoo counts each request as a
                # heartbeat, so it wouldn't notice that the network is lost.
                if await answered:
                    self._extend_session_deadline(sent_at)
            next_at = sent_at + self._config.session_timeout_s * PROBE_PART
            await asyncio.sleep(next_at - loop.time())

    def _extend_session_deadline(self, sent_at: float) -> None:
        """Note that ZooKeeper has answered a request that was sent at this loop time."""
        self._answered_at = max(self._answered_at, sent_at)
        deadline = self._answered_at + self._config.session_timeout_s * SAFE_PART
        self._member_state.session_deadline = deadline if self._owned else math.inf

    def _deadline(self) -> float | None:
        """Return the loop time from which the session counts as ended; None if nothing is owned."""
        return self._member_state.session_deadline if self._owned else None

    def _is_overdue(self) -> bool:
        deadline = self._deadline()
        return deadline is not None and deadline <= asyncio.get_running_loop().time()

    # --- rebalances -------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                if self._session_ended or self._is_overdue():
                    self._session_ended = False
                    await self._drop_partitions()
                if self._is_connected and self._is_stale:
                    self._is_stale = False
                    await self._rebalance()
                else:
                    await self._notifier.wait(self._deadline())
        except Exception as error:
            if not (self._is_starting and isinstance(error, KafkaError)):  # `start()` raises it
                is_reported = isinstance(error, KafkaError)  # the next call raises it
                _log.log(
                    logging.WARNING if is_reported else logging.ERROR,
                    "%s: group %r: the membership failed: %s",
                    self._router.config.client_id,
                    self._group,
                    error,
                    exc_info=None if is_reported else error,
                )
            if not self._end_first_round(error):
                self._assignee.membership_failed(error)
            try:
                await self._assignee.revoke()
            finally:
                if self._registry is not None:
                    await self._unregister(self._registry, "failed")

    async def _drop_partitions(self) -> None:
        """Stop reading, without another commit: the session has ended or may have."""
        self._is_stale = True
        if self._owned:
            self._member_state.session_lost = True
            self._is_settled = False
            self._owned = {}
            await self._assignee.revoke()

    async def _rebalance(self) -> None:
        """Try at most `rebalance_max_retries` times to own this member's partitions."""
        registry = self._registry
        assert registry is not None
        if not self._subscription.by_topic:
            if registry.member:
                await self._assignee.revoke()
            await self._unregister(registry, "unsubscribed")
            self._end_first_round()  # there is no assignment that `start()` could wait for
            return
        reason = ""
        for _ in range(self._config.rebalance_max_retries):
            try:
                failure = await self._try_rebalance(registry)
            except KafkaError as error:
                if not error.retriable:
                    raise
                failure = error.nested_text(KafkaUnavailableError)
            if failure is None:
                self._assignee.report_error(None)
                self._end_first_round()
                return
            reason = failure
            self._router.telemetry.emit(GroupJoinFailed(self._group, reason))
            if not await self._back_off():
                self._is_stale = True
                return
        self._is_stale = True
        given_up = KafkaUnavailableError(
            f"group {self._group!r}: no partitions after rebalance_max_retries="
            f"{self._config.rebalance_max_retries} tries: {reason}"
        )
        if not self._end_first_round(given_up):
            self._assignee.report_error(given_up)

    async def _try_rebalance(self, registry: ScalaRegistry) -> str | None:
        """Run one rebalance; return None if it succeeded, otherwise the reason."""
        self._is_stale = False
        number = self._subscription.number
        topics = self._subscription.topics(self._router.metadata.snapshot)
        snapshot = await self._zookeeper.run(
            lambda: self._in_thread(registry.register_and_read, topics),
            self._config.session_timeout_s,
        )
        wanted = assign_to_member(self._strategy, snapshot, topics, registry.member)
        is_current = wanted == self._owned and number == self._subscription_number
        if is_current and self._claimed == set(wanted):
            self._is_settled = True
            return None
        self._is_settled = False
        await self._assignee.revoke()
        self._owned = {}
        claimed = sorted(self._claimed)
        await self._in_thread(registry.release, claimed)
        self._claimed = set(wanted)
        claimed_at = asyncio.get_running_loop().time()
        # Another member may not have released a partition yet. Then no new node of this member is
        # left, and the caller retries.
        conflict = await self._in_thread(registry.claim, wanted)
        if conflict is not None:
            self._claimed.clear()
            return conflict
        is_session_doubtful = self._session_ended or not self._is_connected
        if is_session_doubtful or self._subscription.number != number:
            self._is_stale = True  # the next rebalance releases these partitions, or claims them
            return None
        self._owned = wanted
        self._extend_session_deadline(claimed_at)
        self._subscription_number = number
        self._member_state.session_lost = False
        self._router.telemetry.emit(
            GroupJoined(self._group, -1, registry.member, False, tuple(sorted(wanted)))
        )
        await self._assignee.assign(wanted, always_notify=True)
        self._is_settled = True
        return None

    async def _back_off(self) -> bool:
        """Wait for `rebalance_backoff_ms`; return False as soon as the session is doubtful."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._config.rebalance_backoff_s
        while self._is_connected and not self._session_ended and not self._is_overdue():
            deadline = self._deadline()
            await self._notifier.wait(end if deadline is None else min(end, deadline))
            if loop.time() >= end:
                return True
        return False

    async def _in_thread(
        self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Make requests to ZooKeeper in a thread, which `stop()` waits for."""
        loop = asyncio.get_running_loop()
        request = loop.create_task(
            environment.run_in_thread(function, *arguments, **options),
            name="aiokafka08 zookeeper request",
        )
        self._request = request
        while not request.done():
            deadline = self._deadline()
            timeout = None if deadline is None else max(deadline - loop.time(), 0)
            await asyncio.wait([request], timeout=timeout)
            # The session may have ended while the request waits.
            if self._is_overdue():
                await self._drop_partitions()
        return request.result()

    async def _unregister(self, registry: ScalaRegistry, reason: str) -> None:
        """Release everything and leave the group."""
        claimed = sorted(self._claimed)
        self._owned = {}
        self._is_settled = False
        self._member_state.session_lost = False
        self._member_state.session_deadline = math.inf
        while member := registry.member:
            try:
                await self._in_thread(registry.leave, claimed)
            except KafkaError as error:
                _log.warning(
                    "%s: group %r: %s not unregistered: %s",
                    self._router.config.client_id,
                    self._group,
                    member,
                    error,
                )
                # Retry while ZooKeeper can't be reached, because the nodes would stay until the
                # session ends.
                if not await self._back_off():
                    self._is_stale = True
                    return
            else:
                self._router.telemetry.emit(GroupLeft(self._group, member, reason))
        self._claimed.clear()

    # --- small parts ------------------------------------------------------------------------------

    def _threadsafe(self, callback: Callable[..., None]) -> Callable[..., object]:
        """Return a function that other threads call to run the callback in the consumer's loop."""
        loop = asyncio.get_running_loop()
        return lambda *args: loop.call_soon_threadsafe(callback, *args)

    def _end_first_round(self, error: BaseException | None = None) -> bool:
        """End the wait of `start()`; return True if it was waiting, so that it raises the error."""
        was_starting, self._is_starting = self._is_starting, False
        return was_starting and end_wait(self._first_round, error)


def _set_result(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():  # cancelled by `stop()`
        future.set_result(value)
