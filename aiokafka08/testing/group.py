"""Consumer groups as brokers coordinate them: members, generations, sessions, rebalances.

For the lines 0.9 and 0.10. No I/O and no clock: the methods get `now`, the seconds of a monotonic
clock. A request that has to wait gets a `PendingResponse`, whose `response` a later call sets.

Invariants: a generation has one leader and one protocol. A coordinator's JoinGroup response has the
group's current generation if its error code is 0, else generation 0 (-1 after a failure); no other
response has a generation. A member with a pending response doesn't expire.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from aiokafka08 import environment
from aiokafka08.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)
from aiokafka08.protocol.requests.groups import (
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
from aiokafka08.testing.broker_lines import LineRules

A = TypeVar("A")


class GroupKey(NamedTuple):
    """The key in `ClusterState.changed` for a change of a group."""

    group: str


class GroupState(enum.Enum):
    """The states of a group, with their names in DescribeGroups; a missing group is "Dead"."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    AWAITING_SYNC = "AwaitingSync"
    STABLE = "Stable"


@dataclass(slots=True)
class PendingResponse(Generic[A]):
    """The response to a request that may have to wait; None until a later call sets it."""

    response: A | None = None


@dataclass(slots=True)
class Member:
    """A member; it expires at `expires` unless one of its responses is pending."""

    name: str
    client_id: str
    client_host: str
    session_s: float
    # How long a rebalance may wait for it; in JoinGroup v0 that is the session timeout.
    rebalance_s: float
    protocols: list[GroupProtocol]
    expires: float = 0.0
    assignment: bytes = b""
    joining: PendingResponse[JoinGroupResponse] | None = None
    syncing: PendingResponse[SyncGroupResponse] | None = None

    def metadata(self, protocol: str) -> bytes:
        """Return the metadata that the member sent for a protocol."""
        return next((bytes(item.metadata) for item in self.protocols if item.name == protocol), b"")


@dataclass(slots=True)
class Group:
    """One group, at the coordinator `node`."""

    name: str
    line: LineRules
    node: int
    protocol_type: str = ""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    # The latest end of a rebalance: members that haven't joined again by then are dropped.
    join_deadline: float = 0.0
    # The group as a new coordinator finds it in the offsets topic: a copy from the last time that
    # the leader sent an assignment, or the last member left.
    stored: Group | None = None

    # --- requests ---------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client_id: str, client_host: str, now: float
    ) -> PendingResponse[JoinGroupResponse]:
        """Handle JoinGroup, after the checks of `Groups.join`."""
        if self.members and (
            self.protocol_type != request.protocol_type or not self._common(request.protocols)
        ):
            return PendingResponse(join_error(InconsistentGroupProtocolError.errno, request.member))
        member = self.members.get(request.member)
        if member is None:
            if request.member:
                return PendingResponse(join_error(UnknownMemberIdError.errno, request.member))
            member = self._add(request, client_id, client_host)
            if not request.protocols:
                return self._stall(member)
        elif self._needs_no_rebalance(member, request):
            return PendingResponse(self._join_response(member))
        else:
            member.protocols = _copy_protocols(request.protocols)
        pending = member.joining = PendingResponse()
        self._rebalance(now)
        return pending

    def _stall(self, member: Member) -> PendingResponse[JoinGroupResponse]:
        """Handle a first member without protocols: no protocol can be elected, so brokers fail."""
        # The member stays as if it were still joining, so no other member can ever join.
        self.state = GroupState.PREPARING
        self.generation += 1
        self.join_deadline = math.inf
        member.joining = PendingResponse()
        return PendingResponse(JoinGroupResponse(UnknownError.errno, -1, "", "", "", []))

    def sync(self, request: SyncGroupRequest, now: float) -> PendingResponse[SyncGroupResponse]:
        """Handle SyncGroup: the leader sends the assignment, the other members wait for it."""
        member = self.members.get(request.member)
        if member is None:
            return PendingResponse(SyncGroupResponse(UnknownMemberIdError.errno, b""))
        if request.generation != self.generation:
            return PendingResponse(SyncGroupResponse(IllegalGenerationError.errno, b""))
        if self.state is GroupState.PREPARING:
            return PendingResponse(SyncGroupResponse(RebalanceInProgressError.errno, b""))
        if self.state is GroupState.STABLE:
            member.expires = now + member.session_s
            return PendingResponse(SyncGroupResponse(0, member.assignment))
        pending = member.syncing = PendingResponse()
        if member.name == self.leader:
            assigned = {
                assignment.member: bytes(assignment.assignment)
                for assignment in request.assignments
            }
            for assignee in self.members.values():
                assignee.assignment = assigned.get(assignee.name, b"")
            self.state = GroupState.STABLE
            self._complete_syncs(0, now)
            self._store()
        return pending

    def heartbeat(self, name: str, generation: int, now: float) -> int:
        """Handle Heartbeat; return its error code."""
        member = self.members.get(name)
        if not self.line.heartbeat_checks_member_first and self.state is not GroupState.STABLE:
            return RebalanceInProgressError.errno
        if member is None:
            return UnknownMemberIdError.errno
        if self.state is GroupState.AWAITING_SYNC:
            return RebalanceInProgressError.errno
        if generation != self.generation:
            return IllegalGenerationError.errno
        member.expires = now + member.session_s
        return 0 if self.state is GroupState.STABLE else RebalanceInProgressError.errno

    def leave(self, name: str, now: float) -> int:
        """Handle LeaveGroup; return its error code."""
        if name not in self.members:
            return UnknownMemberIdError.errno
        self._remove(name, now)
        return 0

    def check_commit(self, name: str, generation: int, now: float) -> int:
        """Return the error code for a commit by this member in this generation."""
        if self.state is GroupState.EMPTY and generation < 0:
            return 0
        if self.state is GroupState.AWAITING_SYNC:
            return RebalanceInProgressError.errno
        member = self.members.get(name)
        if member is None:
            return UnknownMemberIdError.errno
        if generation != self.generation:
            return IllegalGenerationError.errno
        if self.line.commit_is_heartbeat:
            member.expires = now + member.session_s
        return 0

    def described(self) -> DescribedGroup:
        """Return the group for DescribeGroups; only a stable group has metadata and assignments."""
        stable = self.state is GroupState.STABLE
        members = [
            DescribedMember(
                member.name,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol) if stable else b"",
                member.assignment if stable else b"",
            )
            for member in self.members.values()
        ]
        protocol = self.protocol if stable else ""
        return DescribedGroup(0, self.name, self.state.value, self.protocol_type, protocol, members)

    # --- time and coordinators --------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `expire` is next due; None if nothing can expire."""
        times = [member.expires for member in self.members.values() if not _awaits_response(member)]
        if self.state is GroupState.PREPARING and self.join_deadline < math.inf:
            times.append(self.join_deadline)
        return min(times, default=None)

    def expire(self, now: float) -> None:
        """Evict members whose session is over, and those that haven't joined again in time."""
        for member in list(self.members.values()):
            if member.expires <= now and not _awaits_response(member):
                self._remove(member.name, now)
        if self.state is GroupState.PREPARING and self.join_deadline <= now:
            for member in list(self.members.values()):
                if member.joining is None:
                    self._drop(member.name)
            self._complete_join(now)

    def at_new_coordinator(self, node: int, now: float) -> Group | None:
        """Return the group as a new coordinator finds it; None if it was never stored.

        Pending responses of the old coordinator become NotCoordinatorForGroup.
        """
        for member in self.members.values():
            if member.joining is not None:
                member.joining.response = join_error(NotCoordinatorForGroupError.errno, member.name)
            if member.syncing is not None:
                member.syncing.response = SyncGroupResponse(NotCoordinatorForGroupError.errno, b"")
        stored = self.stored
        if stored is not None:
            stored.node = node
            for member in stored.members.values():
                member.expires = now + member.session_s
            stored._store()
        return stored

    # --- rebalances -------------------------------------------------------------------------------

    def _needs_no_rebalance(self, member: Member, request: JoinGroupRequest) -> bool:
        """Return whether a member's repeated JoinGroup leaves the generation as it is."""
        # Its protocols must be the same as before. It may have missed the response to its
        # JoinGroup, so it gets that response again: while the members wait for the assignment, any
        # member does, and in a stable group any member except the leader.
        if self.state is GroupState.PREPARING or member.protocols != _copy_protocols(
            request.protocols
        ):
            return False
        return self.state is GroupState.AWAITING_SYNC or member.name != self.leader

    def _common(self, protocols: Collection[GroupProtocol]) -> set[str]:
        """Return the protocol names that all members and `protocols` share."""
        names = {protocol.name for protocol in protocols}
        for member in self.members.values():
            names &= {protocol.name for protocol in member.protocols}
        return names

    def _add(self, request: JoinGroupRequest, client_id: str, client_host: str) -> Member:
        member = Member(
            f"{client_id}-{environment.unique_id()}",
            client_id,
            client_host,
            request.session_timeout_ms / 1000,
            (
                request.session_timeout_ms
                if request.rebalance_timeout_ms < 0
                else request.rebalance_timeout_ms
            )
            / 1000,
            _copy_protocols(request.protocols),
        )
        self.protocol_type = request.protocol_type
        self.leader = self.leader or member.name
        self.members[member.name] = member
        return member

    def _rebalance(self, now: float) -> None:
        if self.state is not GroupState.PREPARING:
            if self.state is GroupState.AWAITING_SYNC:
                self._complete_syncs(RebalanceInProgressError.errno, now)
            self.state = GroupState.PREPARING
            longest = max((member.rebalance_s for member in self.members.values()), default=0.0)
            self.join_deadline = now + longest
        if all(member.joining is not None for member in self.members.values()):
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        self.generation += 1
        if not self.members:
            self.state, self.protocol = GroupState.EMPTY, ""
            self._store()
            return
        self.state = GroupState.AWAITING_SYNC
        self.protocol = self._elect_protocol()
        for member in self.members.values():
            assert member.joining is not None
            member.joining.response = self._join_response(member)
            member.joining = None
            member.expires = now + member.session_s

    def _elect_protocol(self) -> str:
        """Return the protocol with most votes: each member votes for its first shared one."""
        common = self._common(next(iter(self.members.values())).protocols)
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _join_response(self, member: Member) -> JoinGroupResponse:
        members = [
            JoinedMember(joined.name, joined.metadata(self.protocol))
            for joined in self.members.values()
        ]
        return JoinGroupResponse(
            0,
            self.generation,
            self.protocol,
            self.leader,
            member.name,
            members if member.name == self.leader else [],
        )

    def _complete_syncs(self, code: int, now: float) -> None:
        for member in self.members.values():
            if member.syncing is not None:
                assignment = b"" if code else member.assignment
                member.syncing.response = SyncGroupResponse(code, assignment)
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
        if self.state is not GroupState.EMPTY:
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
        session_bounds_s: the shortest and the longest session timeout of a member.
        coordinator: returns a group's current coordinator; None without one.
    """

    def __init__(
        self,
        line: LineRules,
        session_bounds_s: tuple[float, float],
        coordinator: Callable[[str], int | None],
    ) -> None:
        self._line = line
        self._session_bounds_s = session_bounds_s
        self._coordinator = coordinator
        self._groups: dict[str, Group] = {}

    def change_line(self, line: LineRules, session_bounds_s: tuple[float, float]) -> None:
        """Change the line of the brokers, all of which are down.

        Each group's next coordinator finds it as it was stored.
        """
        self._line, self._session_bounds_s = line, session_bounds_s
        for group in self._groups.values():
            group.node = -1  # any coordinator is a new one
            for instance in (group, group.stored):
                if instance is not None:
                    instance.line = line

    def find(self, name: str, now: float) -> Group | None:
        """Return a group as its current coordinator knows it; None if it doesn't exist."""
        group, node = self._groups.get(name), self._coordinator(name)
        if group is None or node in (None, group.node):
            return group
        assert node is not None
        moved = group.at_new_coordinator(node, now)
        if moved is None:
            del self._groups[name]
        else:
            self._groups[name] = moved
        return moved

    def join(
        self, node: int, request: JoinGroupRequest, client_id: str, client_host: str, now: float
    ) -> PendingResponse[JoinGroupResponse]:
        """Handle JoinGroup at the coordinator `node`."""
        if not request.group:
            return PendingResponse(join_error(InvalidGroupIdError.errno, request.member))
        shortest, longest = self._session_bounds_s
        if not shortest <= request.session_timeout_ms / 1000 <= longest:
            return PendingResponse(join_error(InvalidSessionTimeoutError.errno, request.member))
        group = self.find(request.group, now)
        if group is None:
            if request.member:
                return PendingResponse(join_error(UnknownMemberIdError.errno, request.member))
            group = self._groups[request.group] = Group(request.group, self._line, node)
        return group.join(request, client_id, client_host, now)

    def leave(self, name: str, member: str, now: float) -> int:
        """Handle LeaveGroup; return its error code."""
        group = self.find(name, now)
        code = UnknownMemberIdError.errno if group is None else group.leave(member, now)
        self._forget_empty()
        return code

    def coordinated_by(self, node: int, now: float) -> list[ListedGroup]:
        """Return the groups that `node` coordinates."""
        groups = (self.find(name, now) for name in list(self._groups))
        return [
            ListedGroup(group.name, group.protocol_type)
            for group in groups
            if group is not None and group.node == node
        ]

    def next_deadline(self) -> float | None:
        """Return when `expire` is next due; None if nothing can expire."""
        times = [
            group.next_deadline()
            for group in self._groups.values()
            if self._coordinator(group.name) is not None
        ]
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> set[GroupKey]:
        """Evict members and end rebalances that are due at `now`; return the keys of changed
        groups.

        Some of the groups' pending responses may be set now.
        """
        changed = set()
        for name in list(self._groups):
            if self._coordinator(name) is None:
                continue
            before = self._groups[name]
            group = self.find(name, now)
            deadline = None if group is None else group.next_deadline()
            if group is not None and deadline is not None and deadline <= now:
                group.expire(now)
            elif group is before:
                continue
            changed.add(GroupKey(name))
        self._forget_empty()
        return changed

    def _forget_empty(self) -> None:
        if not self._line.empty_groups_stay:
            for group in list(self._groups.values()):
                if not group.members:
                    del self._groups[group.name]


def join_error(code: int, member: str) -> JoinGroupResponse:
    """Return a JoinGroup response with an error code and nothing else."""
    return JoinGroupResponse(code, 0, "", "", member, [])


def _copy_protocols(protocols: Collection[GroupProtocol]) -> list[GroupProtocol]:
    """Copy the protocols, so that they don't keep the received frame alive."""
    return [GroupProtocol(protocol.name, bytes(protocol.metadata)) for protocol in protocols]


def _awaits_response(member: Member) -> bool:
    return member.joining is not None or member.syncing is not None
