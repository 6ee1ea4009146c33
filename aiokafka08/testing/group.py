"""The brokers' side of consumer groups (0.9, 0.10): members, generations, sessions, rebalances.

Pure: every call takes `now`, seconds of a clock that never goes back, and who has to wait gets a
`Ticket` whose answer is set by a later call. Law: a generation has one leader and one protocol, and
nobody is answered for a generation that isn't the group's; a member that waits can't expire. When
another broker becomes coordinator it knows what was stored, the last stable generation, and
whoever waited at the old one is answered 16. What groups commit is in `state`.
"""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from aiokafka08.protocol.api import (
    DescribedGroup,
    DescribedMember,
    GroupProtocol,
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    ListedGroup,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka08.testing.broker_lines import Line

A = TypeVar("A")

NOT_COORDINATOR, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP = 16, 22, 23, 24
UNKNOWN_MEMBER, INVALID_SESSION_TIMEOUT, REBALANCING = 25, 26, 27


class GroupKey(NamedTuple):
    """What those who wait for a group wait for."""

    group: str


class State(enum.Enum):
    """The states, by the names that DescribeGroups gives them; a group that is gone is "Dead"."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    AWAITING_SYNC = "AwaitingSync"
    STABLE = "Stable"


@dataclass(slots=True)
class Ticket(Generic[A]):
    """The answer to a request, as soon as there is one."""

    answer: A | None = None


@dataclass(slots=True)
class Member:
    """A member; it expires at `expires` unless it waits for an answer."""

    name: str
    client_id: str
    client_host: str
    session_s: float
    protocols: list[GroupProtocol]
    expires: float = 0.0
    assignment: bytes = b""
    joining: Ticket[JoinGroupResponse] | None = None
    syncing: Ticket[SyncGroupResponse] | None = None

    def metadata(self, protocol: str) -> bytes:
        """What it has said about itself for a protocol."""
        return next((bytes(one.metadata) for one in self.protocols if one.name == protocol), b"")


@dataclass(slots=True)
class Group:
    """One group, at one coordinator."""

    name: str
    line: Line
    node: int
    protocol_type: str = ""
    state: State = State.EMPTY
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    join_deadline: float = 0.0
    stored: Group | None = None

    # --- requests ---------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client_id: str, client_host: str, now: float
    ) -> Ticket[JoinGroupResponse]:
        """JoinGroup; `request` has passed `Groups`' checks."""
        if self.members and (
            self.protocol_type != request.protocol_type or not self._common(request.protocols)
        ):
            return Ticket(join_error(INCONSISTENT_PROTOCOL, request.member))
        member = self.members.get(request.member)
        if member is None:
            if request.member:
                return Ticket(join_error(UNKNOWN_MEMBER, request.member))
            member = self._add(request, client_id, client_host)
        elif self._needs_no_rebalance(member, request):
            return Ticket(self._joined(member))
        else:
            member.protocols = _kept(request.protocols)
        ticket = member.joining = Ticket()
        self._rebalance(now)
        return ticket

    def sync(self, request: SyncGroupRequest, now: float) -> Ticket[SyncGroupResponse]:
        """SyncGroup: the leader brings the assignment, the others wait for it."""
        member = self.members.get(request.member)
        if member is None:
            return Ticket(SyncGroupResponse(UNKNOWN_MEMBER, b""))
        if request.generation != self.generation:
            return Ticket(SyncGroupResponse(ILLEGAL_GENERATION, b""))
        if self.state is State.PREPARING:
            return Ticket(SyncGroupResponse(REBALANCING, b""))
        if self.state is State.STABLE:
            member.expires = now + member.session_s
            return Ticket(SyncGroupResponse(0, member.assignment))
        ticket = member.syncing = Ticket()
        if member.name == self.leader:
            given = {one.member: bytes(one.assignment) for one in request.assignments}
            for one in self.members.values():
                one.assignment = given.get(one.name, b"")
            self.state = State.STABLE
            self._answer_syncs(0, now)
            self._store()
        return ticket

    def heartbeat(self, name: str, generation: int, now: float) -> int:
        """Heartbeat's error code."""
        member = self.members.get(name)
        if not self.line.heartbeat_checks_member_first and self.state is not State.STABLE:
            return REBALANCING
        if member is None:
            return UNKNOWN_MEMBER
        if self.state is State.AWAITING_SYNC:
            return REBALANCING
        if generation != self.generation:
            return ILLEGAL_GENERATION
        member.expires = now + member.session_s
        return 0 if self.state is State.STABLE else REBALANCING

    def leave(self, name: str, now: float) -> int:
        """LeaveGroup's error code."""
        if name not in self.members:
            return UNKNOWN_MEMBER
        self._remove(name, now)
        return 0

    def check_commit(self, name: str, generation: int, now: float) -> int:
        """The error code of a commit by this member in this generation."""
        if self.state is State.EMPTY and generation < 0:
            return 0
        if self.state is State.AWAITING_SYNC:
            return REBALANCING
        member = self.members.get(name)
        if member is None:
            return UNKNOWN_MEMBER
        if generation != self.generation:
            return ILLEGAL_GENERATION
        if self.line.commit_is_heartbeat:
            member.expires = now + member.session_s
        return 0

    def described(self) -> DescribedGroup:
        """What DescribeGroups says: metadata and assignments of a stable group only."""
        stable = self.state is State.STABLE
        members = [
            DescribedMember(
                one.name,
                one.client_id,
                one.client_host,
                one.metadata(self.protocol) if stable else b"",
                one.assignment if stable else b"",
            )
            for one in self.members.values()
        ]
        protocol = self.protocol if stable else ""
        return DescribedGroup(0, self.name, self.state.value, self.protocol_type, protocol, members)

    # --- time and coordinators --------------------------------------------------------------------

    def due(self) -> float | None:
        """When `expire` has something to do next."""
        times = [one.expires for one in self.members.values() if not _waits(one)]
        if self.state is State.PREPARING:
            times.append(self.join_deadline)
        return min(times, default=None)

    def expire(self, now: float) -> None:
        """Put out members whose session is over, or that haven't joined again in time."""
        for member in list(self.members.values()):
            if member.expires <= now and not _waits(member):
                self._remove(member.name, now)
        if self.state is State.PREPARING and self.join_deadline <= now:
            for member in list(self.members.values()):
                if member.joining is None:
                    self._drop(member.name)
            self._complete_join(now)

    def moved(self, node: int, now: float) -> Group | None:
        """The group as the coordinator `node` finds it; None if nothing was stored of it."""
        for member in self.members.values():
            if member.joining is not None:
                member.joining.answer = join_error(NOT_COORDINATOR, member.name)
            if member.syncing is not None:
                member.syncing.answer = SyncGroupResponse(NOT_COORDINATOR, b"")
        found = self.stored
        if found is not None:
            found.node = node
            for member in found.members.values():
                member.expires = now + member.session_s
            found._store()
        return found

    # --- inside -----------------------------------------------------------------------------------

    def _needs_no_rebalance(self, member: Member, request: JoinGroupRequest) -> bool:
        """Whether a member that joins again only missed the answer, or asks too often."""
        if self.state is State.PREPARING or member.protocols != _kept(request.protocols):
            return False
        return self.state is State.AWAITING_SYNC or member.name != self.leader

    def _common(self, protocols: Collection[GroupProtocol]) -> set[str]:
        """The names that all members and these have in common."""
        names = {one.name for one in protocols}
        for member in self.members.values():
            names &= {one.name for one in member.protocols}
        return names

    def _add(self, request: JoinGroupRequest, client_id: str, client_host: str) -> Member:
        member = Member(
            f"{client_id}-{uuid.uuid4()}",
            client_id,
            client_host,
            request.session_timeout_ms / 1000,
            _kept(request.protocols),
        )
        self.protocol_type = request.protocol_type
        self.leader = self.leader or member.name
        self.members[member.name] = member
        return member

    def _rebalance(self, now: float) -> None:
        if self.state is not State.PREPARING:
            if self.state is State.AWAITING_SYNC:
                self._answer_syncs(REBALANCING, now)
            self.state = State.PREPARING
            # In JoinGroup 0 the session timeout is also the time that a rebalance may take.
            longest = max((one.session_s for one in self.members.values()), default=0.0)
            self.join_deadline = now + longest
        if all(one.joining is not None for one in self.members.values()):
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        self.generation += 1
        if not self.members:
            self.state, self.protocol = State.EMPTY, ""
            self._store()
            return
        self.state = State.AWAITING_SYNC
        self.protocol = self._voted()
        for member in self.members.values():
            assert member.joining is not None
            member.joining.answer = self._joined(member)
            member.joining = None
            member.expires = now + member.session_s

    def _voted(self) -> str:
        """Each member votes for the first of its protocols that all have."""
        common = self._common(next(iter(self.members.values())).protocols)
        votes = Counter(
            next(one.name for one in member.protocols if one.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _joined(self, member: Member) -> JoinGroupResponse:
        members = [
            JoinedMember(one.name, one.metadata(self.protocol)) for one in self.members.values()
        ]
        return JoinGroupResponse(
            0,
            self.generation,
            self.protocol,
            self.leader,
            member.name,
            members if member.name == self.leader else [],
        )

    def _answer_syncs(self, code: int, now: float) -> None:
        for member in self.members.values():
            if member.syncing is not None:
                assignment = b"" if code else member.assignment
                member.syncing.answer = SyncGroupResponse(code, assignment)
                member.syncing = None
                member.expires = now + member.session_s
            if code:
                member.assignment = b""

    def _drop(self, name: str) -> None:
        del self.members[name]
        if self.leader == name:
            self.leader = next(iter(self.members), "")

    def _remove(self, name: str, now: float) -> None:
        self._drop(name)
        if self.state is not State.EMPTY:
            self._rebalance(now)

    def _store(self) -> None:
        members = {
            member.name: replace(member, joining=None, syncing=None)
            for member in self.members.values()
        }
        self.stored = replace(self, members=members, stored=None)


class Groups:
    """All groups of a cluster.

    Args:
        session_bounds_s: the session timeouts that are allowed.
        coordinator: a group's coordinator now, None without one.
    """

    def __init__(
        self,
        line: Line,
        session_bounds_s: tuple[float, float],
        coordinator: Callable[[str], int | None],
    ) -> None:
        self._line = line
        self._session_bounds_s = session_bounds_s
        self._coordinator = coordinator
        self._groups: dict[str, Group] = {}

    def find(self, name: str, now: float) -> Group | None:
        """A group as its coordinator of now knows it."""
        group, node = self._groups.get(name), self._coordinator(name)
        if group is None or node in (None, group.node):
            return group
        assert node is not None
        moved = group.moved(node, now)
        if moved is None:
            del self._groups[name]
        else:
            self._groups[name] = moved
        return moved

    def join(
        self, node: int, request: JoinGroupRequest, client_id: str, client_host: str, now: float
    ) -> Ticket[JoinGroupResponse]:
        """JoinGroup at the coordinator `node`."""
        if not request.group:
            return Ticket(join_error(INVALID_GROUP, request.member))
        shortest, longest = self._session_bounds_s
        if not shortest <= request.session_timeout_ms / 1000 <= longest:
            return Ticket(join_error(INVALID_SESSION_TIMEOUT, request.member))
        group = self.find(request.group, now)
        if group is None:
            if request.member:
                return Ticket(join_error(UNKNOWN_MEMBER, request.member))
            group = self._groups[request.group] = Group(request.group, self._line, node)
        return group.join(request, client_id, client_host, now)

    def leave(self, name: str, member: str, now: float) -> int:
        """LeaveGroup's error code."""
        group = self.find(name, now)
        code = UNKNOWN_MEMBER if group is None else group.leave(member, now)
        self._forget_empty()
        return code

    def names(self, node: int, now: float) -> list[ListedGroup]:
        """The groups that `node` coordinates."""
        found = (self.find(name, now) for name in list(self._groups))
        return [
            ListedGroup(one.name, one.protocol_type)
            for one in found
            if one is not None and one.node == node
        ]

    def due(self) -> float | None:
        """When `expire` has something to do next."""
        times = [
            group.due()
            for group in self._groups.values()
            if self._coordinator(group.name) is not None
        ]
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> set[GroupKey]:
        """Let the time be `now`; the groups in which somebody may have an answer."""
        touched = set()
        for name in list(self._groups):
            if self._coordinator(name) is None:
                continue
            before = self._groups[name]
            group = self.find(name, now)
            due = None if group is None else group.due()
            if group is not None and due is not None and due <= now:
                group.expire(now)
            elif group is before:
                continue
            touched.add(GroupKey(name))
        self._forget_empty()
        return touched

    def _forget_empty(self) -> None:
        if not self._line.empty_groups_stay:
            for group in list(self._groups.values()):
                if not group.members:
                    del self._groups[group.name]


def join_error(code: int, member: str) -> JoinGroupResponse:
    """JoinGroup's answer that is only an error."""
    return JoinGroupResponse(code, 0, "", "", member, [])


def _kept(protocols: Collection[GroupProtocol]) -> list[GroupProtocol]:
    """Without the frame that they came in."""
    return [GroupProtocol(one.name, bytes(one.metadata)) for one in protocols]


def _waits(member: Member) -> bool:
    return member.joining is not None or member.syncing is not None
