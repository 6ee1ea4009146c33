"""A group that a broker coordinates (0.9 and later): join, be given partitions, and do it again.

One task goes round: give the partitions back, join, divide them if this member leads, sync, take
what is given, wait until something asks for the next round: a heartbeat or a commit that was
refused, another subscription, at the leader new partitions. Law: partitions are read only in a
generation that was joined and synced, and all are given back (positions committed, the listener
told) before this member joins the next one; what is kept over a rebalance is read on from the
committed offset, as with Java's and aiokafka's consumers.

JoinGroup 0 knows one timeout: a rebalance waits for each member for as long as the longest session
of the group. So `on_partitions_revoked` and the last commit together have to end within
`session_timeout_ms`; `rebalance_timeout_ms` isn't sent. Who takes no messages for
`max_poll_interval_ms` leaves the group, and joins again with the next call that takes some.

What answers mean is in `generation`, what a leader does in `leader`, heartbeats are in `heart`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from aiokafka08.concurrency.notifier import Notifier
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.member_state import NO_GENERATION, NO_MEMBER, MemberState
from aiokafka08.consumer.membership import Assignee
from aiokafka08.consumer.membership.generation import Generation, Next, after, refusal
from aiokafka08.consumer.membership.group_leader import divide, make_assignors, read_members
from aiokafka08.consumer.membership.heartbeat import Heartbeat
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.coordinator.protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolMemberAssignment,
)
from aiokafka08.errors import (
    BrokerResponseError,
    GroupCoordinatorNotAvailableError,
    InvalidTopicError,
    KafkaError,
    KafkaProtocolError,
)
from aiokafka08.net.coordinator import Coordinator
from aiokafka08.net.node import Lane
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import (
    GroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberAssignment,
    SyncGroupRequest,
)
from aiokafka08.telemetry import GroupJoined, GroupJoinFailed, GroupLeft

LEAVE_S = 2.0
"""How long `stop()` waits for the answer to LeaveGroup: without it the session runs out."""

_log = logging.getLogger("aiokafka08.consumer")


class BrokerGroup:
    """This consumer's membership in its group.

    Args:
        standing: is kept up to date for commits. A generation that is lost stays in it until the
            next one comes, so that commits of its positions are refused.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        router: Router,
        subscription: Subscription,
        assignee: Assignee,
        standing: MemberState,
        coordinator: Coordinator,
    ) -> None:
        self._config = config
        self._router = router
        self._subscription = subscription
        self._assignee = assignee
        self._standing = standing
        self._coordinator = coordinator
        self._assignors = make_assignors(config.assignment_strategies)
        self._bell = Notifier()
        self._member = NO_MEMBER
        self._generation: Generation | None = None  # of the partitions that are read now
        self._divided: Mapping[str, frozenset[int]] = {}  # what the leader has divided
        self._due = False  # a round is asked for
        self._idle = False
        self._task: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None  # the first round has ended
        self._error: BaseException | None = None
        self._heart = Heartbeat(
            router,
            config,
            coordinator,
            activity=assignee.activity,
            on_news=self._heard,
            on_idle=self._went_idle,
        )
        standing.on_fenced = self._fenced

    # --- the seam ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join, where there is a subscription, and wait for the first assignment.

        Raises:
            BrokerResponseError: the group refuses this member for good; says why. Or no coordinator
                was named within `request_timeout_ms`.
            UnsupportedVersionError: the brokers have no groups.
        """
        loop = asyncio.get_running_loop()
        self._settled = loop.create_future()
        self._task = loop.create_task(self._follow(), name="aiokafka08 group")
        if self._subscription.by_topic:
            await self._settled
            self.check()

    async def stop(self) -> None:
        """Leave the group."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._heart.stop()
        await self._leave("stopped")

    def changed(self) -> None:
        """Look whether that asks for another round."""
        generation = self._generation
        snapshot = self._router.metadata.snapshot
        if generation is None:
            pass
        elif (
            not self._subscription.by_topic
            or generation.subscribed != self._subscription.number
            or generation.topics != self._subscription.topics(snapshot)
            or (generation.leader and self._divided != self._partitions(self._divided))
        ):
            self._due = True
        self._bell.notify()

    def check(self) -> None:
        """Raise what ended the membership."""
        if self._error is not None:
            raise self._error
        if self._idle:
            self._idle = False
            self._bell.notify()

    # --- news -------------------------------------------------------------------------------------

    def _heard(self, generation: Generation, what: Next, code: int) -> None:
        """A heartbeat of that generation was answered, or a commit."""
        if generation is not self._generation:
            return
        if what is Next.JOIN_ANEW:
            self._member = NO_MEMBER
        if what is Next.GIVE_UP:
            self._fail(self._refusal(code))
        elif what in (Next.REJOIN, Next.JOIN_ANEW):
            self._due = True
            self._bell.notify()

    def _fenced(self, error: BrokerResponseError, number: int) -> None:
        generation = self._generation
        if generation is not None and generation.number == number:
            self._heard(generation, after(error.errno), error.errno)

    def _went_idle(self) -> None:
        _log.warning(
            "group %r: no message was taken for max_poll_interval_ms=%.0f: leaving the group until "
            "the next call that takes some",
            self._coordinator.group,
            self._config.max_poll_interval_s * 1000,
        )
        self._idle = self._due = True
        self._bell.notify()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._assignee.wake()
        self._settle()
        self._bell.notify()

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    # --- rounds -----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            while self._error is None:
                if self._due or self._generation is None:
                    await self._round()
                else:
                    await self._bell.wait()
        except Exception as error:
            _log.error(
                "group %r: the membership has ended", self._coordinator.group, exc_info=error
            )
            self._fail(error)
        finally:
            self._heart.end()
        try:
            await self._assignee.revoke()
        finally:
            await self._leave("failed")

    async def _round(self) -> None:
        """From one generation to the next, or out of the group."""
        if self._generation is not None:
            await self._assignee.revoke()
        if self._idle or not self._subscription.by_topic:
            await self._heart.stop()
            await self._leave("idle" if self._idle else "unsubscribed")
            self._generation, self._due = None, False
            if not self._subscription.by_topic:
                self._standing.generation, self._standing.member = NO_GENERATION, NO_MEMBER
            if self._idle or not self._subscription.by_topic:
                self._settle()  # `start()` has nothing to wait for any more
                await self._bell.wait()
            return
        self._generation, self._due = None, False
        assignment, generation = await self._join()
        if self._subscription.number != generation.subscribed:
            return  # to something else meanwhile: once more
        self._generation = generation
        assignor = self._assignors[generation.protocol]
        assignor.on_assignment(assignment)
        assignor.on_generation_assignment(generation.number)
        partitions = [tp for tp in assignment.partitions() if tp.topic in generation.topics]
        self._router.telemetry.emit(
            GroupJoined(
                self._coordinator.group,
                generation.number,
                generation.member,
                generation.leader,
                tuple(sorted(partitions)),
            )
        )
        await self._assignee.assign(partitions, told=True)
        self._settle()
        self.changed()  # what changed while it was joined

    async def _join(self) -> tuple[ConsumerProtocolMemberAssignment, Generation]:
        """Join and sync, until that works."""
        config = self._router.config
        backoff = config.backoff()
        while True:
            await self._know_topics()
            node_id: int | None = None
            try:
                node_id = await self._coordinator.node_id()
                what, result = await self._try_join(node_id)
            except KafkaError as error:
                if not error.retriable or self._is_hopeless(error):
                    raise
                self._router.telemetry.emit(GroupJoinFailed(self._coordinator.group, error.text))
                what, result = Next.LOOK_UP, None
            if result is not None:
                return result
            if what is Next.JOIN_ANEW:
                self._member = NO_MEMBER
            if what is Next.LOOK_UP and node_id is not None:
                self._coordinator.forget(node_id)
            if what is Next.REJOIN:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next())

    def _is_hopeless(self, error: KafkaError) -> bool:
        """Whether `start()` waits in vain: nobody has named a coordinator in all its time."""
        starts = self._settled is not None and not self._settled.done()
        return starts and isinstance(error, GroupCoordinatorNotAvailableError)

    async def _try_join(
        self, node_id: int
    ) -> tuple[Next, tuple[ConsumerProtocolMemberAssignment, Generation] | None]:
        """One JoinGroup and its SyncGroup."""
        subscribed = self._subscription.number
        topics = self._subscription.topics(self._router.metadata.snapshot)
        group = self._coordinator.group
        # A rebalance may wait for the longest session in the group, which nobody tells.
        patience_s = self._config.session_timeout_s + self._router.config.request_timeout_s
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
            timeout_s=patience_s,
        )
        if joined.error_code:
            return self._refused(joined.error_code), None
        if joined.protocol not in self._assignors:
            raise KafkaProtocolError(
                f"group {group!r}: the coordinator chose the strategy {joined.protocol!r}, which "
                "this member hasn't offered"
            )
        self._member = joined.member
        leads = joined.leader == joined.member
        generation = Generation(
            joined.generation, joined.member, joined.protocol, leads, subscribed, topics
        )
        assignments = await self._divide(joined) if leads else []
        synced = await self._router.request(
            SyncGroupRequest(group, joined.generation, joined.member, assignments),
            node_id=node_id,
            lane=Lane.JOIN,
            timeout_s=patience_s,
        )
        if synced.error_code:
            return self._refused(synced.error_code), None
        self._standing.generation, self._standing.member = joined.generation, joined.member
        self._heart.begin(generation)
        return Next.GO_ON, (
            ConsumerProtocolMemberAssignment.decode(synced.assignment),
            generation,
        )

    async def _divide(self, joined: JoinGroupResponse) -> list[MemberAssignment]:
        """The leader's assignments, by the latest metadata of all that members want."""
        members = read_members(self._coordinator.group, joined.members)
        topics = frozenset(topic for one in members.values() for topic in one.subscription)
        metadata = self._router.metadata
        for topic in topics:
            try:
                metadata.add_topics([topic])
            except InvalidTopicError as error:
                _log.warning("group %r: nobody gets %s", self._coordinator.group, error)
        try:
            await metadata.refresh()
        except KafkaError as error:  # it goes on in the background, and `changed` will tell
            _log.info("group %r: dividing by old metadata: %s", self._coordinator.group, error)
        self._divided = self._partitions(topics)
        return divide(self._assignors[joined.protocol], members, self._divided)

    def _partitions(
        self, topics: Mapping[str, object] | frozenset[str]
    ) -> dict[str, frozenset[int]]:
        snapshot = self._router.metadata.snapshot
        return {topic: frozenset(snapshot.partitions(topic)) for topic in topics}

    async def _know_topics(self) -> None:
        """Have metadata of what is subscribed to: a pattern's topics are told to the leader."""
        if self._subscription.unknown(self._router.metadata.snapshot) or (
            self._router.metadata.all_topics
        ):
            try:
                await self._router.metadata.refresh()
            except KafkaError:
                pass  # told by the refresh; it goes on in the background

    def _refused(self, code: int) -> Next:
        what = after(code)
        if what is Next.GIVE_UP:
            raise self._refusal(code)
        return what

    def _refusal(self, code: int) -> BrokerResponseError:
        return refusal(
            code, self._coordinator.group, list(self._assignors), self._config.session_timeout_s
        )

    async def _leave(self, reason: str) -> None:
        """Tell the group, so that it needn't wait for the session to end."""
        member, self._member = self._member, NO_MEMBER
        if not member:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                node_id = await self._coordinator.node_id(timeout_s=LEAVE_S)
                await self._router.request(
                    LeaveGroupRequest(self._coordinator.group, member),
                    node_id=node_id,
                    timeout_s=LEAVE_S,
                )
        except (KafkaError, TimeoutError) as error:
            reason = f"{reason}; the coordinator wasn't told: {error}"
        self._router.telemetry.emit(GroupLeft(self._coordinator.group, member, reason))
