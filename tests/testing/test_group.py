"""The group coordinator's state machine, with a clock that the test controls."""

from __future__ import annotations

import pytest

from aiokafka08.protocol.requests.groups import (
    GroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.group import GroupKey, Groups, PendingResponse

SESSION_S = 10.0


class Cluster:
    """The groups of a cluster of two brokers, and the time."""

    def __init__(self, line: str = "0.10") -> None:
        self.node: int | None = 0
        self.now = 100.0
        self.groups = Groups(LINES[line], (6.0, 30.0), lambda name: self.node)

    def join(self, member: str = "") -> PendingResponse[JoinGroupResponse]:
        assert self.node is not None
        request = JoinGroupRequest("g", 10_000, member, "consumer", [GroupProtocol("p", b"m")])
        return self.groups.join(self.node, request, "client", "/host", self.now)

    def sync(self, joined: JoinGroupResponse, *others: JoinGroupResponse) -> SyncGroupResponse:
        group = self.groups.find("g", self.now)
        assert group is not None
        given = [MemberAssignment(one.member, b"share") for one in (joined, *others)]
        response = group.sync(
            SyncGroupRequest("g", joined.generation, joined.member, given), self.now
        ).response
        assert response is not None
        return response

    def stable(self) -> JoinGroupResponse:
        joined = self.join().response
        assert joined is not None
        assert self.sync(joined).error_code == 0
        return joined

    def heartbeat(self, joined: JoinGroupResponse) -> int:
        group = self.groups.find("g", self.now)
        return 25 if group is None else group.heartbeat(joined.member, joined.generation, self.now)

    def advance_to(self, now: float) -> set[GroupKey]:
        """Advance the time; expire everything that is due on the way."""
        touched = set()
        while (due := self.groups.next_deadline()) is not None and due <= now:
            self.now = max(due, self.now)
            touched |= self.groups.expire(self.now)
        self.now = now
        return touched


def test_session_ends_at_timeout_after_last_heartbeat() -> None:
    cluster = Cluster()
    joined = cluster.stable()
    assert cluster.groups.next_deadline() == 100 + SESSION_S
    cluster.advance_to(109)
    assert cluster.heartbeat(joined) == 0
    assert cluster.advance_to(118.9) == set()
    assert cluster.advance_to(119) == {GroupKey("g")}
    assert cluster.heartbeat(joined) == 25
    assert cluster.groups.next_deadline() is None


def test_joining_member_does_not_expire_during_rebalance() -> None:
    cluster = Cluster()
    first = cluster.stable()
    cluster.advance_to(105)
    waiting = cluster.join()
    assert waiting.response is None
    cluster.advance_to(109)
    assert cluster.heartbeat(first) == 27
    cluster.advance_to(114)  # the first member ignores the rebalance: 105 + its session timeout
    assert waiting.response is None
    cluster.advance_to(115)
    assert waiting.response is not None
    assert waiting.response.leader == waiting.response.member
    assert [one.member for one in waiting.response.members] == [waiting.response.member]
    assert cluster.heartbeat(first) == 25


@pytest.mark.parametrize("line", ["0.9", "0.10"])
def test_new_coordinator_knows_last_stable_generation(line: str) -> None:
    cluster = Cluster(line)
    first = cluster.stable()
    waiting = cluster.join()
    cluster.node = None
    assert cluster.groups.next_deadline() is None
    cluster.advance_to(500)
    cluster.node = 1
    assert cluster.heartbeat(first) == 0
    assert waiting.response is not None
    assert waiting.response.error_code == 16
    assert cluster.groups.next_deadline() == 500 + SESSION_S


def test_new_coordinator_forgets_group_never_stable() -> None:
    cluster = Cluster()
    joined = cluster.join().response
    assert joined is not None
    cluster.node = 1
    assert cluster.heartbeat(joined) == 25
