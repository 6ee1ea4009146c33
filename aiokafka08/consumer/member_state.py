"""The mutable state of this consumer as a member of its group: generation, member id, session.

Invariant: after a generation is lost, its number stays here until the next one is joined and
synced, so that the broker refuses commits of positions from the lost generation. Only the end of
the subscription sets it back to -1. A commit takes an immutable copy (`CommitIdentity`) when it is
called: with the state at the time of sending, old positions would carry the new generation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


@dataclass(slots=True)
class MemberState:
    """Generation, member id and session of one consumer.

    -1 and "" belong to a consumer that uses `assign()`, or whose group is in ZooKeeper.
    """

    generation: int = NO_GENERATION  # the generation that was joined last
    member: str = NO_MEMBER  # the member id that the coordinator gave
    # True if the ZooKeeper session has ended. Other members may have read further by now, and
    # ZooKeeper doesn't refuse a commit that sets them back.
    session_lost: bool = False
    # True if the brokers were downgraded to a release without groups. None of them refuses a commit
    # of this member, and members in ZooKeeper may have read further.
    group_is_gone: bool = False
    # Loop time after which the ZooKeeper session may have expired unnoticed, because the network
    # was lost, the process stopped or the event loop blocked
    session_deadline: float = math.inf
