"""Membership in a group that a broker coordinates (0.9 and later).

One task runs the rebalances: revoke all partitions, join, assign partitions if this member leads,
sync, read the assignment, and wait until a rejoin is needed. With `zookeeper_connect`, the first
join waits until the group has no members in ZooKeeper.

Invariant: partitions are read only in a generation that was joined and synced. All of them are
revoked (positions committed, the listener called) before this member joins the next generation. If
a partition is assigned to this member again, reading continues at the committed offset.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka08._core.concurrency.notifier import Notifier
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.node import Lane
from aiokafka08._core.net.router import Router
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.member_state import NO_GENERATION, NO_MEMBER, MemberState
from aiokafka08.consumer.membership import Assignee, end_wait
from aiokafka08.consumer.membership.generation import (
    Generation,
    NextStep,
    join_error,
    next_step,
)
from aiokafka08.consumer.membership.group_leader import assign_members, decode_members
from aiokafka08.consumer.membership.heartbeat import Heartbeat
from aiokafka08.consumer.membership.topic_search import TopicSearch
from aiokafka08.consumer.membership.zookeeper_members import ZookeeperMembers
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolMemberAssignment,
)
from aiokafka08.errors import (
    BrokerResponseError,
    InconsistentGroupProtocolError,
    InvalidTopicError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.requests.groups import (
    DescribeGroupsRequest,
    GroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberAssignment,
    SyncGroupRequest,
)
from aiokafka08.telemetry import GroupJoined, GroupJoinFailed, GroupLeft

LEAVE_TIMEOUT_S: Final = 2.0
"""How long a member waits for the response to LeaveGroup. If the coordinator doesn't receive
LeaveGroup, it evicts the member when the member's session expires."""

_log: Final = logging.getLogger("aiokafka08.consumer")


class _JoinRefusedError(Exception):
    """The coordinator refuses a JoinGroup or SyncGroup with `error`; `step` is what to do next."""

    def __init__(self, step: NextStep, error: BrokerResponseError) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


class BrokerGroup:
    """This consumer's membership in its group.

    `assignors`: by name; the coordinator chooses one that all members have.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        assignors: Mapping[str, AbstractPartitionAssignor],
        router: Router,
        subscription: Subscription,
        assignee: Assignee,
        member_state: MemberState,
        coordinator: CoordinatorLookup,
        zookeeper: ClusterZookeeper | None,
    ) -> None:
        self._config = config
        self._assignors = assignors
        self._router = router
        self._subscription = subscription
        self._assignee = assignee
        self._member_state = member_state
        self._coordinator = coordinator
        self._notifier = Notifier()
        self._member = NO_MEMBER
        self._generation: Generation | None = None  # the one whose partitions are read now
        # The partitions, by topic, that this member has divided among all members as the leader.
        self._assigned: Mapping[str, frozenset[int]] = {}
        self._needs_rejoin = False
        self._is_idle = False  # no read call within `max_poll_interval_ms`
        # The search for members in ZooKeeper; None without ZooKeeper, and once they have left
        self._zookeeper_members: ZookeeperMembers | None = None
        if zookeeper is not None:
            self._zookeeper_members = ZookeeperMembers(
                config, coordinator.group, zookeeper, router.telemetry
            )
        self._task: asyncio.Task[None] | None = None
        self._first_round: asyncio.Future[None] | None = None
        self._start_deadline = math.inf  # loop time until which `start()` waits for the first round
        self._has_failed = False
        self._heartbeat = Heartbeat(
            router,
            config,
            coordinator,
            activity=assignee.activity,
            on_response=self._react,
            on_unsupported=self._on_unsupported,
            on_poll_timeout=self._on_poll_timeout,
        )

    # --- Membership -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join, if there is a subscription, and wait for the first assignment.

        `start_timeout_ms` doesn't limit how long JoinGroup and SyncGroup wait for other members.
        Each of them may take `session_timeout_ms` + `request_timeout_ms`. If the coordinator then
        asks for a rejoin, the deadline is extended by the time that they took.

        Raises:
            BrokerResponseError: the coordinator refuses this member with an error that isn't
                retriable.
            GroupCoordinatorNotAvailableError: no broker has named the coordinator within
                `start_timeout_ms`.
            KafkaTimeoutError: within that time the coordinator couldn't be reached, or refused
                this member again and again; the text has the last error.
            KafkaUnavailableError: the group has members in ZooKeeper.
            ZookeeperMismatchError: `zookeeper_connect` is the ZooKeeper of other brokers.
            UnsupportedVersionError: the brokers have no groups.
        """
        loop = asyncio.get_running_loop()
        self._first_round = loop.create_future()
        if self._subscription.by_topic:
            self._start_deadline = loop.time() + self._router.config.start_timeout_s
        self._task = loop.create_task(self._run(), name="aiokafka08 group")
        if self._subscription.by_topic:
            await self._first_round

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._heartbeat.stop()
        await self._leave("stopped")

    @property
    def is_joined(self) -> bool:
        """See `Membership`; False also if the broker may have ended the session."""
        joined = self._generation is not None and not self._needs_rejoin
        return joined and not self._has_failed and self._heartbeat.is_session_alive

    def on_change(self) -> None:
        """Rejoin if the subscription, its topics or, for the leader, partitions have changed."""
        generation = self._generation
        snapshot = self._router.metadata.snapshot
        if generation is None:
            pass
        elif (
            not self._subscription.by_topic
            or generation.subscription_number != self._subscription.number
            or generation.topics != self._subscription.topics(snapshot)
            or (generation.is_leader and self._assigned != self._partitions(self._assigned))
        ):
            self._needs_rejoin = True
        self._notifier.notify()

    def on_commit_fenced(self, error: BrokerResponseError, generation: int) -> None:
        """Handle the error as in a heartbeat response, if the generation is the current one."""
        current = self._generation
        if current is not None and current.number == generation:
            self._react(current, next_step(error.errno), error.errno)

    def on_call(self) -> None:
        """End idleness: join again."""
        if self._is_idle:
            self._is_idle = False
            self._notifier.notify()

    # --- what heartbeats and commits report -------------------------------------------------------

    def _react(self, generation: Generation, step: NextStep, code: int) -> None:
        if generation is not self._generation:
            return
        if step is NextStep.JOIN_AS_NEW:
            self._member = NO_MEMBER
        if step is NextStep.FAIL:
            self._fail(self._join_error(code))
        elif step in (NextStep.REJOIN, NextStep.JOIN_AS_NEW):
            self._needs_rejoin = True
            self._notifier.notify()

    def _on_unsupported(self, generation: Generation, error: UnsupportedVersionError) -> None:
        if generation is self._generation:
            self._member_state.group_is_gone = True
            self._fail(error)

    def _on_poll_timeout(self) -> None:
        if self._is_idle:  # noticed before, during the rebalance that has just ended
            return
        _log.warning(
            "%s: group %r: no call for records within max_poll_interval_ms=%.0f; leaving the group "
            "until the next call",
            self._router.config.client_id,
            self._coordinator.group,
            self._config.max_poll_interval_s * 1000,
        )
        self._is_idle = self._needs_rejoin = True
        self._notifier.notify()

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        if not self._end_first_round(error):
            self._assignee.membership_failed(error)
        self._notifier.notify()

    @property
    def _is_starting(self) -> bool:
        return self._start_deadline < math.inf

    def _end_first_round(self, error: BaseException | None = None) -> bool:
        """End the wait of `start()`, which raises the error; return whether it waited."""
        self._start_deadline, was_starting = math.inf, self._is_starting
        return was_starting and end_wait(self._first_round, error)

    # --- rebalances -------------------------------------------------------------------------------

    async def _run(self) -> None:
        search = TopicSearch(self._router)
        try:
            while not self._has_failed:
                if self._needs_rejoin or self._generation is None:
                    await self._rebalance()
                else:
                    await self._notifier.wait(search.next_look(self._topics_to_watch()))
        except Exception as error:
            if not (self._is_starting and isinstance(error, KafkaError)):  # `start()` raises it
                is_reported = isinstance(error, KafkaError)  # the next call raises it
                _log.log(
                    logging.WARNING if is_reported else logging.ERROR,
                    "%s: group %r: the membership failed: %s",
                    self._router.config.client_id,
                    self._coordinator.group,
                    error,
                    exc_info=None if is_reported else error,
                )
            self._fail(error)
        finally:
            self._heartbeat.cancel()
        try:
            await self._assignee.revoke()
        finally:
            await self._leave("failed")

    def _topics_to_watch(self) -> Iterable[str]:
        """Return the topics that this member divides; none if it doesn't lead."""
        # In a group that a broker coordinates, only the leader has to notice a new topic before
        # `metadata_max_age_ms` is over. Consumers without a group, and those with a group in
        # ZooKeeper, notice it as early as this leader does.
        return self._assigned if self._generation is not None and self._generation.is_leader else ()

    async def _rebalance(self) -> None:
        rejoins = self._subscription.by_topic and not self._is_idle
        if self._generation is not None or self._subscription.by_topic:
            await self._assignee.revoke(rejoins=rejoins)
        if self._is_idle or not self._subscription.by_topic:
            if rejoins:  # idleness, or the end of the subscription, began during the revoke
                await self._assignee.revoke()
            await self._heartbeat.stop()
            # A commit that begins from now on is sent after LeaveGroup. Without a subscription it
            # mustn't name the member that left.
            self._end_identity()
            await self._leave("idle" if self._is_idle else "unsubscribed")
            self._generation, self._needs_rejoin = None, False
            self._end_identity()
            # A read call or a subscription may have come while LeaveGroup was in flight.
            if self._is_idle or not self._subscription.by_topic:
                self._end_first_round()  # there is no assignment that `start()` could wait for
                await self._notifier.wait()
            return
        self._generation, self._needs_rejoin = None, False
        if not await self._zookeeper_members_have_left():
            return
        assignment, generation = await self._join()
        if self._subscription.number != generation.subscription_number:
            return  # the subscription has changed since: join again
        self._generation = generation
        assignor = self._assignors[generation.protocol]
        assignor.on_assignment(assignment)
        assignor.on_generation_assignment(generation.number)
        # Don't await between setting generation and member and `assign()`, which replaces the
        # former partitions. Another member may own those now, so no commit of this generation may
        # have them.
        self._member_state.generation = generation.number
        self._member_state.member = generation.member
        partitions = [tp for tp in assignment.partitions() if tp.topic in generation.topics]
        self._router.telemetry.emit(
            GroupJoined(
                self._coordinator.group,
                generation.number,
                generation.member,
                generation.is_leader,
                tuple(sorted(partitions)),
            )
        )
        await self._assignee.assign(partitions, always_notify=True)
        self._end_first_round()
        self.on_change()  # metadata or subscription may have changed during the join

    async def _zookeeper_members_have_left(self) -> bool:
        """Wait until the group has no member in ZooKeeper; False if the subscription changes."""
        number, members = self._subscription.number, self._zookeeper_members
        while members is not None and self._subscription.number == number:
            if await members.have_left():
                members = self._zookeeper_members = None
                break
            refusal = members.refusal()
            # Members in ZooKeeper don't end the membership: it goes on when they have left.
            if refusal is not None and not self._end_first_round(refusal):
                self._assignee.report_error(refusal)
            next_look = asyncio.get_running_loop().time() + self._config.rebalance_backoff_s
            while self._subscription.number == number and await self._notifier.wait(next_look):
                pass  # something else has changed
        self._assignee.report_error(None)
        return self._subscription.number == number

    def _end_identity(self) -> None:
        """Let commits belong to no member, if the subscription has ended."""
        if not self._subscription.by_topic:
            self._member_state.generation = NO_GENERATION
            self._member_state.member = NO_MEMBER

    async def _join(self) -> tuple[ConsumerProtocolMemberAssignment, Generation]:
        """Join and sync until both succeed in one generation."""
        config, clock = self._router.config, asyncio.get_running_loop().time
        backoff = config.backoff()
        last: KafkaError | None = None
        was_named = False  # a broker had named the coordinator when `last` occurred
        rejoins = False  # the last attempt ended with the order to join again
        while True:
            await self._refresh_topics()
            node_id: int | None = None
            error: KafkaError
            try:
                node_id = await self._coordinator.node_id(timeout_s=self._attempt_s())
                # Connecting has its own timeout, since JoinGroup may wait long for other members.
                await self._router.connection(node_id, Lane.JOIN, timeout_s=self._attempt_s())
                begin = clock()
                return await self._join_and_sync(node_id)
            except _JoinRefusedError as refused:
                step, error = refused.step, refused.error
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                step, error = NextStep.FIND_COORDINATOR, failure
                if clock() < self._start_deadline:
                    self._router.telemetry.emit(
                        GroupJoinFailed(self._coordinator.group, str(failure))
                    )
            was_rejoin, rejoins = rejoins, step is NextStep.REJOIN
            if rejoins:
                # Another member has joined or left meanwhile. `start()` doesn't limit how long the
                # coordinator waits for other members, only the pauses between the attempts.
                self._start_deadline += clock() - begin
            # An attempt that the deadline cut short says less than the one before it.
            if last is None or clock() < self._start_deadline:
                last, was_named = error, node_id is not None
            if clock() >= self._start_deadline:
                raise self._start_error(last) if was_named else last
            if step is NextStep.JOIN_AS_NEW:
                self._member = NO_MEMBER
            if step is NextStep.FIND_COORDINATOR and node_id is not None:
                self._coordinator.invalidate(node_id)
            if rejoins and not was_rejoin:
                backoff.reset()
                continue  # at once after the first of several in a row, since other members wait
            await asyncio.sleep(min(backoff.next(), max(self._start_deadline - clock(), 0.0)))

    def _attempt_s(self) -> float:
        """Return how many seconds a step of the join may take; fewer while `start()` waits."""
        left_s = max(self._start_deadline - asyncio.get_running_loop().time(), 0.0)
        return min(self._router.config.request_timeout_s, left_s)

    def _start_error(self, last: KafkaError) -> KafkaError:
        limit_ms = self._router.config.start_timeout_s * 1000
        return KafkaTimeoutError(
            f"group {self._coordinator.group!r}: not joined within start_timeout_ms={limit_ms:.0f};"
            f" last error: {last.nested_text(KafkaTimeoutError)}"
            f"{self._coordinator.unreachable_hint()}"
        )

    async def _join_and_sync(
        self, node_id: int
    ) -> tuple[ConsumerProtocolMemberAssignment, Generation]:
        """Send one JoinGroup and its SyncGroup; raise _JoinRefusedError if refused."""
        subscription_number = self._subscription.number
        topics = self._subscription.topics(self._router.metadata.snapshot)
        group = self._coordinator.group
        # A rebalance may last as long as the longest session timeout in the group. No response
        # says how long that is.
        timeout_s = self._config.session_timeout_s + self._router.config.request_timeout_s
        # Version 0 carries no rebalance timeout. The coordinator ends a rebalance after the longest
        # session timeout in the group, and brokers of 0.9 ignore heartbeats while members join
        # (docs/brokers.md 8.13). So `on_partitions_revoked` and the last commit must end within
        # `session_timeout_ms`.
        joined = await self._router.request(
            JoinGroupRequest(
                group,
                round(self._config.session_timeout_s * 1000),
                self._member,
                PROTOCOL_TYPE,
                [
                    GroupProtocol(name, assignor.metadata(sorted(topics)).encode())
                    for name, assignor in self._assignors.items()
                ],
            ),
            node_id=node_id,
            lane=Lane.JOIN,
            timeout_s=timeout_s,
        )
        if joined.error_code:
            raise await self._refusal_error(joined.error_code, node_id)
        if joined.protocol not in self._assignors:
            raise KafkaProtocolError(
                f"group {group!r}: the coordinator chose the strategy {joined.protocol!r}; "
                f"expected one of {', '.join(self._assignors)}"
            )
        self._member = joined.member
        is_leader = joined.leader == joined.member
        generation = Generation(
            joined.generation,
            joined.member,
            joined.protocol,
            is_leader,
            subscription_number,
            topics,
        )
        assignments = await self._assign_members(joined) if is_leader else []
        synced = await self._router.request(
            SyncGroupRequest(group, joined.generation, joined.member, assignments),
            node_id=node_id,
            lane=Lane.JOIN,
            timeout_s=timeout_s,
        )
        if synced.error_code:
            raise await self._refusal_error(synced.error_code, node_id)
        self._heartbeat.start(generation)
        return ConsumerProtocolMemberAssignment.decode(synced.assignment), generation

    async def _assign_members(self, joined: JoinGroupResponse) -> list[MemberAssignment]:
        """Refresh the metadata of all members' topics and compute the members' assignments."""
        members = decode_members(
            self._router.config.client_id, self._coordinator.group, joined.members
        )
        topics = []
        metadata = self._router.metadata
        for topic in sorted({name for member in members.values() for name in member.subscription}):
            try:
                metadata.add_topics([topic])
                topics.append(topic)
            except InvalidTopicError as error:
                _log.warning(
                    "%s: group %r: topic not assigned: %s",
                    self._router.config.client_id,
                    self._coordinator.group,
                    error,
                )
        # The session runs, and no heartbeat extends it before the assignment is sent.
        limit_s = min(self._attempt_s(), self._config.session_timeout_s / 2)
        try:
            await metadata.refresh(limit_s)
        except (KafkaError, TimeoutError) as error:
            # Retried in the background; `on_change` compares the result.
            _log.info(
                "%s: group %r: assigning with old metadata: %s",
                self._router.config.client_id,
                self._coordinator.group,
                error if isinstance(error, KafkaError) else f"no response within {limit_s:.1f} s",
            )
        self._assigned = self._partitions(topics)
        return assign_members(self._assignors[joined.protocol], members, self._assigned)

    def _partitions(self, topics: Iterable[str]) -> dict[str, frozenset[int]]:
        snapshot = self._router.metadata.snapshot
        return {topic: frozenset(snapshot.partitions(topic)) for topic in topics}

    async def _refresh_topics(self) -> None:
        """Refresh the metadata if it may lack topics of the subscription."""
        if self._subscription.unknown(self._router.metadata.snapshot) or (
            self._router.metadata.all_topics
        ):
            try:
                # JoinGroup carries names of topics, so a pattern must be expanded before the join.
                await self._router.metadata.refresh(self._attempt_s())
            except (KafkaError, TimeoutError):
                pass  # logged by the refresh, which continues in the background

    async def _refusal_error(self, code: int, node_id: int) -> Exception:
        step = next_step(code)
        if step is not NextStep.FAIL:
            return _JoinRefusedError(step, self._join_error(code))
        if code != InconsistentGroupProtocolError.errno:
            return self._join_error(code)
        # The code doesn't tell a group of another kind from one with other strategies.
        group = self._coordinator.group
        try:
            described = await self._router.request(DescribeGroupsRequest([group]), node_id=node_id)
        except KafkaError:
            return self._join_error(code)
        types = [one.protocol_type for one in described.groups if one.group == group]
        return self._join_error(code, *filter(None, types))

    def _join_error(self, code: int, protocol_type: str = PROTOCOL_TYPE) -> BrokerResponseError:
        error = join_error(
            code,
            self._coordinator.group,
            self._assignors,
            self._config.session_timeout_s,
            protocol_type,
        )
        return self._router.config.named(error)

    async def _leave(self, reason: str) -> None:
        """Send LeaveGroup, so that the other members don't wait for the session to expire."""
        member, self._member = self._member, NO_MEMBER
        if not member:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                node_id = await self._coordinator.node_id(timeout_s=LEAVE_TIMEOUT_S)
                await self._router.request(
                    LeaveGroupRequest(self._coordinator.group, member),
                    node_id=node_id,
                    timeout_s=LEAVE_TIMEOUT_S,
                )
        except (KafkaError, TimeoutError) as error:
            text = str(error) or f"no response within {LEAVE_TIMEOUT_S:.0f} s"
            reason = f"{reason}; LeaveGroup failed: {text}"
        self._router.telemetry.emit(GroupLeft(self._coordinator.group, member, reason))
