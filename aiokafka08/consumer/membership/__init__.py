"""Group membership: decide which partitions of a subscription this consumer reads.

Each kind of `Membership` has a module: `no_group` (all partitions), `broker_group` (brokers from
0.9 on coordinate the group) and `zookeeper_group` (groups of 0.8). The consumer's `engine` is the
`Assignee`.

Invariant: a member of a group revokes all partitions before it joins the next generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from aiokafka08.errors import BrokerResponseError, KafkaError
from aiokafka08.structs import TopicPartition


class Assignee(Protocol):
    """Reads the partitions that a membership assigns.

    A read call is the user's `getone()`, `getmany()`, `getmany_arrow()` or a step of `async for`.
    """

    async def revoke(self, *, rejoins: bool = False) -> None:
        """Stop reading all partitions.

        From the call on, the consumer returns no more records. It commits the positions if auto
        commit is on, then it calls the listener, even if there are no partitions. A second call
        before the next `assign` doesn't call the listener again. When `revoke` returns, no commit
        of these partitions is pending any more.

        `rejoins`: the member joins again, and the broker fences commits of its last generation.
        Until the next `assign`, the user sees the partitions as assigned and may commit them.
        """

    async def assign(
        self,
        partitions: Collection[TopicPartition],
        new_partitions: Collection[TopicPartition] = (),
        *,
        always_notify: bool = False,
    ) -> None:
        """Read exactly these partitions and call the listener about the change.

        Partitions that are assigned again keep their positions and buffers; the others are revoked.

        Args:
            new_partitions: partitions that were created while the subscription was active; they are
                read from their first message.
            always_notify: call the listener even if nothing has changed.
        """

    def activity(self) -> int | None:
        """Return a number that changes with each read call and record; None while a call waits."""

    def membership_failed(self, error: BaseException) -> None:
        """Let each call from now on raise the error that has ended the membership."""

    def report_error(self, error: KafkaError | None) -> None:
        """Let the next call raise an error after which the membership goes on.

        None takes back an error that no call has raised yet: the membership has succeeded.
        """


class Membership(Protocol):
    """Decides which partitions of the subscription this consumer reads."""

    @property
    def is_joined(self) -> bool:
        """Whether this consumer reads its last assignment; needs no running event loop."""

    async def start(self) -> None:
        """Start; with a subscription, return after the first assignment."""

    async def stop(self) -> None:
        """Leave the group; safe to call twice."""

    def on_change(self) -> None:
        """React to a change of the subscription or of the cluster metadata."""

    def on_commit_fenced(self, error: BrokerResponseError, generation: int) -> None:
        """React to a commit that the broker refused because its generation has ended."""

    def on_call(self) -> None:
        """React to a call of the user, which shows that the program is active."""


def end_wait(waiting: asyncio.Future[None] | None, error: BaseException | None) -> bool:
    """End a wait, by an error if there is one; return whether it was still pending."""
    if waiting is None or waiting.done():
        return False
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
    return True
