"""The mutable state of this consumer as a member of its group: generation, member id, session.

Three modules hold a generation, and they stay apart on purpose:

- `MemberState` (here) is mutable. The membership writes it, `consumer.commits` reads it.
- `offset_store.CommitIdentity` is an immutable copy of generation and member id. A commit takes it
  together with its positions. If it read the shared state when it is sent, a commit that waited
  through a rebalance would go out under the new generation, and the broker couldn't fence it.
- `membership.generation` holds pure decisions: what a member does next after an error code.

Invariant: after a generation is lost, its number stays here until the next one is joined, so that
the broker refuses commits of its positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NO_GENERATION = -1
NO_MEMBER = ""


@dataclass(slots=True)
class MemberState:
    """Generation, member id and session of one consumer.

    Generation -1 and member "" make a plain commit: the consumer uses `assign()`, or its group is
    in ZooKeeper.

    Attributes:
        generation: the generation that was joined last.
        member: the member id that the coordinator gave.
        session_lost: True if the ZooKeeper session has ended. Other members may have read further
            by now, and ZooKeeper doesn't refuse a commit that sets them back.
        session_deadline: loop time after which the ZooKeeper session may have expired unnoticed,
            because the process was stopped or the event loop was blocked.
    """

    generation: int = NO_GENERATION
    member: str = NO_MEMBER
    session_lost: bool = False
    session_deadline: float = math.inf
