"""The mutable state of this consumer as a member of its group: generation, member id, session.

The membership writes it, `consumer.commits` reads it. Two other modules deal with generations, and
are separate on purpose:

- `_core.offset_store.CommitIdentity` is an immutable copy of generation and member id. A commit
  takes the copy when `Committer.commit` is called, because it may wait through a rebalance before
  it is sent. With the state at the time of sending, the old positions would carry the new
  generation, and the broker couldn't fence the commit.
- `membership.generation` has no state. It decides what a member does next after an error code.

Invariant: after a generation is lost, its number stays here until the next one is joined and
synced, so that the broker refuses commits of positions from the lost generation. Only the end of
the subscription sets it back to -1.
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

    Generation -1 and member "" are those of a consumer whose commits belong to no membership: it
    uses `assign()`, or its group is in ZooKeeper.

    Attributes:
        generation: the generation that was joined last.
        member: the member id that the coordinator gave.
        session_lost: True if the ZooKeeper session has ended. Other members may have read further
            by now, and ZooKeeper doesn't refuse a commit that sets them back.
        group_is_gone: True if the brokers were set back to a release without groups. None of them
            refuses a commit of this member, and members in ZooKeeper may have read further.
        session_deadline: loop time after which the ZooKeeper session may have expired unnoticed,
            because the network was lost, the process stopped or the event loop blocked.
    """

    generation: int = NO_GENERATION
    member: str = NO_MEMBER
    session_lost: bool = False
    group_is_gone: bool = False
    session_deadline: float = math.inf
