"""What this consumer is to its group's coordinator: what its commits are stamped with.

Written by the membership, read by the offset store. Generation -1 and member "" make a plain
commit, of a consumer that is no member: one that uses `assign()`, or a ZooKeeper group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from aiokafka08.errors import BrokerResponseError

NO_GENERATION = -1
NO_MEMBER = ""


@dataclass(slots=True)
class MemberState:
    """The generation and the member id.

    Attributes:
        lost: the session in ZooKeeper has ended: others may be further by now, and nobody there
            refuses what would set them back.
        until: the loop's time from which on that has to be feared, since nobody has looked: this
            process was stopped, or its loop held up.
        on_fenced: called by `fenced`.
    """

    generation: int = NO_GENERATION
    member: str = NO_MEMBER
    lost: bool = False
    until: float = math.inf
    on_fenced: Callable[[BrokerResponseError, int], object] = lambda error, generation: None

    @property
    def is_member(self) -> bool:
        """Whether the group knows this consumer by a generation."""
        return self.generation >= 0

    def fenced(self, error: BrokerResponseError, generation: int) -> None:
        """A commit stamped with `generation` was refused with 22, 25 or 27: join again."""
        self.on_fenced(error, generation)
