"""Pure decisions of a group member: what it does after each error code of the coordinator.

Invariant: `next_step` depends on the error code only. It follows the actions in `errors`, except
for UnknownMemberId (25): the member then joins again without its member id.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aiokafka08.coordinator.protocol import PROTOCOL_TYPE
from aiokafka08.errors import (
    Action,
    BrokerResponseError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
    action_for,
    broker_error,
)


class NextStep(enum.Enum):
    """What a member does after a response."""

    CONTINUE = "the request succeeded"
    RETRY = "send the same request again after a pause"
    FIND_COORDINATOR = "look the coordinator up, then send the same request again"
    REJOIN = "join again with the same member id"
    JOIN_AS_NEW = "join without a member id: the group has forgotten this member"
    FAIL = "raise the error: a retry can't help"


_BY_ACTION: Final = {
    Action.NONE: NextStep.CONTINUE,
    Action.COORDINATOR: NextStep.FIND_COORDINATOR,
    Action.REJOIN: NextStep.REJOIN,
    Action.FINAL: NextStep.FAIL,
}


def next_step(code: int) -> NextStep:
    """Return what follows from an error code of JoinGroup, SyncGroup, Heartbeat or OffsetCommit."""
    if code == UnknownMemberIdError.errno:
        return NextStep.JOIN_AS_NEW
    return _BY_ACTION.get(action_for(code), NextStep.RETRY)


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of the group that this member has joined."""

    number: int  # the generation's number, which the coordinator counts up
    member: str  # the id of this member
    protocol: str  # the name of the assignor that the coordinator chose
    is_leader: bool  # True if this member assigns the partitions
    subscription_number: int  # `Subscription.number` when the member joined
    topics: frozenset[str]  # the topics of that subscription at that time


def join_error(
    code: int,
    group: str,
    assignor_names: Iterable[str],
    session_timeout_s: float,
    protocol_type: str = PROTOCOL_TYPE,
) -> BrokerResponseError:
    """Return the error for a user whose consumer can't be a member of the group.

    `protocol_type`: the kind of the group as far as it is known; "consumer" for consumer groups.
    """
    error = broker_error(code, f"group {group!r}")
    if isinstance(error, InconsistentGroupProtocolError) and protocol_type != PROTOCOL_TYPE:
        return InconsistentGroupProtocolError(
            f"group {group!r}: its members aren't consumers, their protocol type is "
            f"{protocol_type!r} (Kafka Connect has 'connect'). Choose another group_id"
        )
    if isinstance(error, InconsistentGroupProtocolError):
        return InconsistentGroupProtocolError(
            f"{error.text}. This consumer offers {', '.join(assignor_names)}; add an assignor that "
            "all members of the group have to partition_assignment_strategy"
        )
    if isinstance(error, InvalidSessionTimeoutError):
        return InvalidSessionTimeoutError(
            f"{error.text}: session_timeout_ms={session_timeout_s * 1000:.0f}; expected a value "
            "between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms "
            "(by default 6000 to 30000 on 0.9, to 300000 on 0.10)"
        )
    return error
