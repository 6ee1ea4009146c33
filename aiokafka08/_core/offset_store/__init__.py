"""Read and write the committed offsets of a group, in Kafka or in ZooKeeper.

`OffsetStore` is the interface; each kind of store has a module, and `choose` picks one when the
router has started.

Invariant: brokers have several codes for "no offset is committed"; for each of them `fetch` returns
None for the partition, or leaves it out. A partition that is missing from a broker's response is an
error, never a success (docs/brokers.md 8.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from aiokafka08.errors import KafkaError
from aiokafka08.structs import OffsetAndMetadata, TopicPartition


class CommitIdentity(NamedTuple):
    """The generation and the member id that are sent with one commit.

    Brokers from 0.9 on accept offsets of a live group only from its members. Generation -1 and
    member "" make a commit outside of any membership.
    """

    generation: int = -1
    member: str = ""


class OffsetStore(Protocol):
    """The committed offsets of one group."""

    async def start(self) -> None:
        """Open what the store needs; the router has been started before.

        Raises IllegalArgumentError if the store can't have a group of this name, KafkaError if it
        can't be reached.
        """

    async def stop(self) -> None:
        """Close what `start` has opened; safe to call twice."""

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition; None, or no entry, if there is none.

        Raises KafkaError if the offset of a partition can't be read within `timeout_s`; `retriable`
        says whether to try again.
        """

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """As `fetch`, but an offset that can't be read has its error as the value."""

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit all these offsets.

        Raises:
            CommitFailedError: the generation of `identity` has ended. If a broker refused the
                commit, `__cause__` is the broker's error.
            KafkaError: some partitions were not committed; the error names them.
        """
