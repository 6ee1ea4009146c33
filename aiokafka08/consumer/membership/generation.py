"""What a group's answers mean to a member: pure decisions, told by error code.

Which requests are sent, and when, is `broker`'s and `heart`'s business.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aiokafka08.errors import (
    Action,
    BrokerResponseError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
    action_for,
    broker_error,
)


class Next(enum.Enum):
    """What a member does after an answer."""

    GO_ON = "it worked"
    TRY_AGAIN = "the same again, a little later"
    LOOK_UP = "look the coordinator up, then the same again"
    REJOIN = "join again as the member it is"
    JOIN_ANEW = "join as a new member: the group has forgotten this one"
    GIVE_UP = "trying again can't help"


_BY_ACTION = {
    Action.NONE: Next.GO_ON,
    Action.COORDINATOR: Next.LOOK_UP,
    Action.REJOIN: Next.REJOIN,
    Action.FINAL: Next.GIVE_UP,
}


def after(code: int) -> Next:
    """What follows from an error code of JoinGroup, SyncGroup or Heartbeat."""
    if code == UnknownMemberIdError.errno:
        return Next.JOIN_ANEW
    return _BY_ACTION.get(action_for(code), Next.TRY_AGAIN)


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that this member has joined.

    Attributes:
        number: the generation's.
        leader: whether this member divides the partitions.
        subscribed: the number of the subscription that it was joined with.
        topics: what the subscription meant then.
    """

    number: int
    member: str
    protocol: str
    leader: bool
    subscribed: int
    topics: frozenset[str]


def refusal(
    code: int, group: str, protocol_names: list[str], session_timeout_s: float
) -> BrokerResponseError:
    """The error that a user is told when a group can't be joined."""
    error = broker_error(code, f"group {group!r}")
    if isinstance(error, InconsistentGroupProtocolError):
        return InconsistentGroupProtocolError(
            f"{error.text}. This one offers {', '.join(protocol_names)}: give "
            "partition_assignment_strategy one that all members of the group have"
        )
    if isinstance(error, InvalidSessionTimeoutError):
        return InvalidSessionTimeoutError(
            f"{error.text}: session_timeout_ms={session_timeout_s * 1000:.0f}; allowed is what the "
            "broker's group.min.session.timeout.ms and group.max.session.timeout.ms say (by "
            "default 6000 to 30000 on 0.9, to 300000 on 0.10)"
        )
    return error
