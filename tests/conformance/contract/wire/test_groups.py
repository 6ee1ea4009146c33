"""Group membership: generations, sessions, error codes (docs/brokers.md 8.13)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.requests.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberAssignment,
    SyncGroupRequest,
)
from aiokafka08.testing.broker_lines import SupportedVersions
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import commit, find_coordinator
from tests.conformance.contract.wire.target import Target
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name

_NOTHING = SupportedVersions(range(0))
groups = on_lines(lambda line: api.ApiKey.JOIN_GROUP in line.apis)

SESSION_MS = 6000
SHORT_MS = 1000
"""The shortest session timeout that these brokers accept."""

Connect = Callable[[], WireClient]


@pytest.fixture
def connect(target: Target) -> Iterator[Connect]:
    """A function that opens connections to the one broker."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(WireClient(target.address(0), timeout=15))


@pytest.fixture
def group(wire: WireClient) -> str:
    name = unique_name("g")
    assert find_coordinator(wire, name).error_code == 0
    # A real broker is named as coordinator a moment before it acts as one.
    until_code(lambda: heartbeat(wire, name, 1, "nobody"), 25)
    return name


def join_request(
    group: str,
    member: str = "",
    metadata: bytes = b"about me",
    protocols: tuple[str, ...] = ("p",),
    session_ms: int = SESSION_MS,
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    named = [GroupProtocol(name, metadata) for name in protocols]
    return JoinGroupRequest(group, session_ms, member, protocol_type, named)


def join(wire: WireClient, group: str, member: str = "", **options: Any) -> JoinGroupResponse:
    response: JoinGroupResponse = wire.request(join_request(group, member, **options))
    return response


@on_lines(lambda line: 1 in line.apis.get(api.ApiKey.JOIN_GROUP, _NOTHING).known)
def test_rebalance_timeout_of_join_group_v1(
    target: Target, wire: WireClient, group: str, connect: Connect
) -> None:
    """A member may take longer to join again than its session; the second one waits for it."""
    first, second = connect(), connect()
    request = join_request(group, session_ms=SHORT_MS)
    request.rebalance_timeout_ms = 3 * SHORT_MS
    joined = first.request(request, 1)
    assert (joined.error_code, joined.generation) == (0, 1)
    sync(first, group, joined, {joined.member: b""})
    began = time.monotonic()
    second.send(request, 1)
    while time.monotonic() < began + 1.5 * SHORT_MS / 1000:  # the first one's session goes on
        assert beat(wire, group, joined) in (0, 27)
        time.sleep(0.2)
    again = join_request(group, joined.member, session_ms=SHORT_MS)
    again.rebalance_timeout_ms = 3 * SHORT_MS
    rejoined = first.request(again, 1)
    other = second.receive(JoinGroupRequest, 1)
    assert (rejoined.generation, other.generation) == (2, 2)
    assert rejoined.leader == other.leader == joined.member


@on_lines(lambda line: 1 in line.apis.get(api.ApiKey.JOIN_GROUP, _NOTHING).known)
def test_rebalance_ends_at_the_rebalance_timeout(
    target: Target, wire: WireClient, group: str, connect: Connect
) -> None:
    first, second = connect(), connect()
    request = join_request(group, session_ms=10 * SHORT_MS)
    request.rebalance_timeout_ms = SHORT_MS
    joined = first.request(request, 1)
    sync(first, group, joined, {joined.member: b""})
    began = time.monotonic()
    other = second.request(request, 1)
    assert 0.8 * SHORT_MS <= (time.monotonic() - began) * 1000 < 8 * SHORT_MS
    assert [one.member for one in other.members] == [other.member]
    assert beat(wire, group, joined) == 25


def sync_request(
    group: str, joined: JoinGroupResponse, given: dict[str, bytes] | None = None
) -> SyncGroupRequest:
    assignments = [MemberAssignment(name, what) for name, what in (given or {}).items()]
    return SyncGroupRequest(group, joined.generation, joined.member, assignments)


def sync(
    wire: WireClient,
    group: str,
    joined: JoinGroupResponse,
    given: dict[str, bytes] | None = None,
) -> tuple[int, bytes]:
    response = wire.request(sync_request(group, joined, given))
    return response.error_code, bytes(response.assignment)


def heartbeat(wire: WireClient, group: str, generation: int, member: str) -> int:
    code: int = wire.request(HeartbeatRequest(group, generation, member)).error_code
    return code


def beat(wire: WireClient, group: str, joined: JoinGroupResponse) -> int:
    return heartbeat(wire, group, joined.generation, joined.member)


def leave(wire: WireClient, group: str, member: str) -> int:
    code: int = wire.request(LeaveGroupRequest(group, member)).error_code
    return code


def describe(wire: WireClient, group: str) -> DescribedGroup:
    [described] = wire.request(DescribeGroupsRequest([group])).groups
    assert isinstance(described, DescribedGroup)
    assert described.group == group
    return described


def stable(wire: WireClient, group: str, **options: Any) -> JoinGroupResponse:
    """A stable group of one member."""
    joined = join(wire, group, **options)
    assert joined.error_code == 0
    assert sync(wire, group, joined, {joined.member: b"all"}) == (0, b"all")
    return joined


def until_code(send_request: Callable[[], int], code: int) -> None:
    deadline = time.monotonic() + 10
    while (got := send_request()) != code:
        assert time.monotonic() < deadline, f"{got} and never {code}"
        time.sleep(0.02)


def pair(
    connect: Connect, group: str
) -> tuple[WireClient, JoinGroupResponse, WireClient, JoinGroupResponse]:
    """A stable group of two members, the leader first."""
    one, two = connect(), connect()
    first = stable(one, group)
    two.send(join_request(group, metadata=b"two"))
    until_code(lambda: beat(one, group, first), 27)
    leader = join(one, group, first.member)
    follower = two.receive(JoinGroupRequest)
    two.send(sync_request(group, follower))
    assert sync(one, group, leader, {leader.member: b"1", follower.member: b"2"}) == (0, b"1")
    response = two.receive(SyncGroupRequest)
    assert (response.error_code, bytes(response.assignment)) == (0, b"2")
    return one, leader, two, follower


# --- generations ----------------------------------------------------------------------------------


@groups
def test_first_member_becomes_leader(wire: WireClient, group: str) -> None:
    joined = join(wire, group)
    assert (joined.error_code, joined.generation, joined.protocol) == (0, 1, "p")
    assert joined.leader == joined.member
    assert joined.member.startswith("peer-")
    [member] = joined.members
    assert (member.member, bytes(member.metadata)) == (joined.member, b"about me")
    assert sync(wire, group, joined, {joined.member: b"mine"}) == (0, b"mine")
    assert sync(wire, group, joined) == (0, b"mine")
    assert beat(wire, group, joined) == 0


@groups
def test_second_member_triggers_rebalance(connect: Connect, group: str) -> None:
    one, leader, two, follower = pair(connect, group)
    assert leader.generation == follower.generation == 2
    assert leader.leader == follower.leader == leader.member
    assert {member.member for member in leader.members} == {leader.member, follower.member}
    assert {bytes(member.metadata) for member in leader.members} == {b"about me", b"two"}
    assert follower.members == []
    assert beat(one, group, leader) == beat(two, group, follower) == 0


@groups
def test_member_left_out_by_leader_gets_empty_assignment(connect: Connect, group: str) -> None:
    one, leader, two, follower = pair(connect, group)
    one.send(join_request(group, leader.member))  # a JoinGroup of the leader triggers a rebalance
    until_code(lambda: beat(two, group, follower), 27)
    follower = join(two, group, follower.member)
    leader = one.receive(JoinGroupRequest)
    assert leader.generation == follower.generation == 3
    two.send(sync_request(group, follower))
    assert sync(one, group, leader, {leader.member: b"1"}) == (0, b"1")
    response = two.receive(SyncGroupRequest)
    assert (response.error_code, bytes(response.assignment)) == (0, b"")


@groups
def test_leaving_member_triggers_rebalance(connect: Connect, group: str) -> None:
    one, leader, two, follower = pair(connect, group)
    assert leave(one, group, leader.member) == 0
    assert leave(one, group, leader.member) == 25
    assert beat(two, group, follower) == 27
    alone = join(two, group, follower.member)
    assert (alone.generation, alone.leader) == (3, follower.member)
    assert len(alone.members) == 1


@groups
def test_group_after_last_member_left(target: Target, wire: WireClient, group: str) -> None:
    joined = stable(wire, group)
    assert leave(wire, group, joined.member) == 0
    state = "Empty" if target.line.empty_groups_stay else "Dead"
    assert describe(wire, group).state == state
    assert beat(wire, group, joined) == 25
    assert sync(wire, group, joined)[0] == 25
    assert join(wire, group).generation == (3 if target.line.empty_groups_stay else 1)


# --- joining --------------------------------------------------------------------------------------


@groups
def test_unchanged_follower_rejoins_same_generation(connect: Connect, group: str) -> None:
    one, leader, two, follower = pair(connect, group)
    again = join(two, group, follower.member, metadata=b"two")
    assert (again.error_code, again.generation, again.members) == (0, 2, [])
    assert beat(one, group, leader) == 0


@groups
def test_changed_follower_triggers_rebalance(connect: Connect, group: str) -> None:
    one, leader, two, follower = pair(connect, group)
    two.send(join_request(group, follower.member, metadata=b"changed"))
    until_code(lambda: beat(one, group, leader), 27)
    leader = join(one, group, leader.member)
    assert {bytes(member.metadata) for member in leader.members} == {b"about me", b"changed"}
    assert two.receive(JoinGroupRequest).generation == 3


@groups
def test_member_that_missed_join_response_gets_it_again(wire: WireClient, group: str) -> None:
    joined = join(wire, group)
    again = join(wire, group, joined.member)
    assert again == joined


@groups
def test_protocol_shared_by_all_with_most_votes_wins(connect: Connect, group: str) -> None:
    one, two = connect(), connect()
    first = stable(one, group, protocols=("a", "b", "c"))
    two.send(join_request(group, protocols=("b", "c")))
    until_code(lambda: beat(one, group, first), 27)
    leader = join(one, group, first.member, protocols=("a", "b", "c"))
    assert leader.protocol == two.receive(JoinGroupRequest).protocol == "b"


@groups
def test_invalid_join_requests_fail(wire: WireClient, connect: Connect, group: str) -> None:
    nothing: tuple[str, str, list[object]] = ("", "", [])
    for response, code in (
        (join(wire, ""), 24),
        (join(wire, group, session_ms=1), 26),
        (join(wire, group, session_ms=10**9), 26),
        (join(wire, group, "nobody"), 25),
    ):
        assert (response.error_code, response.generation) == (code, 0)
        assert (response.protocol, response.leader, response.members) == nothing
    stable(wire, group)
    other = connect()
    assert join(other, group, protocols=("other",)).error_code == 23
    assert join(other, group, protocol_type="other").error_code == 23
    assert join(other, group, "nobody").error_code == 25


@groups
def test_member_that_does_not_rejoin_is_evicted(connect: Connect, group: str) -> None:
    one, two = connect(), connect()
    first = stable(one, group, session_ms=SHORT_MS)
    joined = join(two, group, session_ms=SHORT_MS)
    assert [member.member for member in joined.members] == [joined.member]
    assert joined.leader == joined.member
    assert join(one, group, first.member).error_code == 25


# --- sessions -------------------------------------------------------------------------------------


@groups
def test_session_expires_without_heartbeats(wire: WireClient, group: str) -> None:
    joined = stable(wire, group, session_ms=SHORT_MS)
    deadline = time.monotonic() + 15
    while describe(wire, group).state == "Stable":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert beat(wire, group, joined) == 25


@groups
def test_leader_that_never_syncs_is_evicted(connect: Connect, group: str) -> None:
    one, two = connect(), connect()
    first = stable(one, group, session_ms=SHORT_MS)
    two.send(join_request(group))
    until_code(lambda: beat(one, group, first), 27)
    leader = join(one, group, first.member, session_ms=SHORT_MS)
    follower = two.receive(JoinGroupRequest)
    assert leader.leader == leader.member
    assert sync(two, group, follower)[0] == 27
    alone = join(two, group, follower.member)
    assert alone.leader == follower.member


# --- fencing --------------------------------------------------------------------------------------


@groups
def test_unknown_members_and_generations_fail(wire: WireClient, group: str) -> None:
    assert heartbeat(wire, group, 1, "nobody") == 25
    assert leave(wire, group, "nobody") == 25
    joined = stable(wire, group)
    assert heartbeat(wire, group, joined.generation, "nobody") == 25
    assert heartbeat(wire, group, joined.generation + 1, joined.member) == 22
    assert leave(wire, group, "nobody") == 25
    assert wire.request(SyncGroupRequest(group, 1, "nobody", [])).error_code == 25
    assert wire.request(SyncGroupRequest(group, 9, joined.member, [])).error_code == 22


@groups
def test_heartbeat_before_sync(target: Target, wire: WireClient, group: str) -> None:
    joined = join(wire, group)
    assert beat(wire, group, joined) == 27
    stranger = 25 if target.line.heartbeat_checks_member_first else 27
    assert heartbeat(wire, group, joined.generation, "nobody") == stranger


@groups
def test_commits_check_member_and_generation(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    joined = join(wire, group)

    def code(generation: int, member: str, version: int) -> int:
        return commit(wire, group, topic, 5, generation=generation, member=member, version=version)

    for version in (1, 2):
        assert code(joined.generation, joined.member, version) == 27
        assert code(joined.generation, "nobody", version) == 27
    sync(wire, group, joined)
    for version in (1, 2):
        assert code(joined.generation, joined.member, version) == 0
        assert code(joined.generation, "nobody", version) == 25
        assert code(joined.generation + 1, joined.member, version) == 22
        assert code(-1, "", version) == 25
    leave(wire, group, joined.member)
    assert code(-1, "", 1) == 0
    # On 0.10 the empty group doesn't know the member; on 0.9 there is no group.
    assert code(joined.generation, joined.member, 1) == (
        25 if target.line.empty_groups_stay else 22
    )


@groups
def test_commits_succeed_during_rebalance(connect: Connect, topic: str, group: str) -> None:
    one, two = connect(), connect()
    first = stable(one, group)
    two.send(join_request(group))
    until_code(lambda: beat(one, group, first), 27)
    code = commit(one, group, topic, 5, generation=first.generation, member=first.member, version=2)
    assert code == 0
    join(one, group, first.member)


# --- DescribeGroups, ListGroups -------------------------------------------------------------------


@groups
def test_groups_are_described(connect: Connect, wire: WireClient, group: str) -> None:
    assert describe(wire, group) == DescribedGroup(0, group, "Dead", "", "", [])
    joined = join(wire, group)
    described = describe(wire, group)
    assert (described.state, described.protocol_type, described.protocol) == (
        "AwaitingSync",
        "consumer",
        "",
    )
    [member] = described.members
    assert (member.member, member.client_id, member.client_host) == (
        joined.member,
        "peer",
        "/127.0.0.1",
    )
    assert (bytes(member.metadata), bytes(member.assignment)) == (b"", b"")
    sync(wire, group, joined, {joined.member: b"mine"})
    described = describe(wire, group)
    assert (described.state, described.protocol) == ("Stable", "p")
    [member] = described.members
    assert (bytes(member.metadata), bytes(member.assignment)) == (b"about me", b"mine")
    two = connect()
    two.send(join_request(group))
    until_code(lambda: beat(wire, group, joined), 27)
    described = describe(wire, group)
    assert (described.state, described.protocol, len(described.members)) == (
        "PreparingRebalance",
        "",
        2,
    )


@groups
def test_groups_are_listed(target: Target, wire: WireClient, topic: str, group: str) -> None:
    def listed() -> dict[str, str]:
        response = wire.request(ListGroupsRequest())
        assert response.error_code == 0
        return {one.group: one.protocol_type for one in response.groups}

    assert group not in listed()
    joined = stable(wire, group)
    assert listed()[group] == "consumer"
    leave(wire, group, joined.member)
    assert (group in listed()) == target.line.empty_groups_stay
    committing = unique_name("g")
    assert commit(wire, committing, topic, 5, version=1) == 0
    expected = "" if target.line.commits_make_groups else None
    assert listed().get(committing) == expected
    state = "Empty" if target.line.commits_make_groups else "Dead"
    assert describe(wire, committing).state == state
