"""Where committed offsets live: the seam. Each kind is a file of its own; `choose` names them.

On top of `net`, below consumer and admin, which both read and write the offsets of groups. What is
committed when is the consumer's business (`consumer.commits`). Law: "nothing is committed" is None,
in whichever way the broker says it; a partition that an answer leaves out is an error, never a
success (docs/brokers.md 8.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from aiokafka08.structs import OffsetAndMetadata, TopicPartition


class CommitIdentity(NamedTuple):
    """Who commits: brokers from 0.9 on refuse a group's offsets from others than its members.

    Generation -1 and member "" make a plain commit, by somebody who is no member.
    """

    generation: int = -1
    member: str = ""


class OffsetStore(Protocol):
    """Reads and writes the committed offsets of one group."""

    async def start(self) -> None:
        """Get ready to work; the router has been started.

        Raises:
            UnsupportedVersionError: the brokers' line can't do it; says what can.
        """

    async def stop(self) -> None:
        """Let go of everything; safe to call twice."""

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; None (or left out) where nothing is. Asked for starting positions.

        Args:
            timeout_s: seconds, `request_timeout_ms` by default.

        Raises:
            KafkaError: with `retriable` where trying again may help.
        """

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        stamp: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit all of these.

        Raises:
            CommitFailedError: the group has moved on without the member of this stamp.
            KafkaError: names the partitions that were not committed.
        """

    def check(self) -> None:
        """Raise what `commit` and a user's `committed` would raise, if there is no store."""
