"""The membership of a consumer without a group: it reads every partition of its subscription.

Invariant: while the user is subscribed to topics or a pattern, the assignment after each handled
change of the metadata or the subscription is exactly the partitions that the metadata shows for the
subscription. Without such a subscription this module assigns nothing: the consumer's `assign()` and
`unsubscribe()` take effect at once.
"""

from __future__ import annotations

import asyncio

from aiokafka08._core.concurrency.notifier import Notifier
from aiokafka08._core.net.router import Router
from aiokafka08.consumer.membership import Assignee
from aiokafka08.consumer.membership.topic_search import TopicSearch
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import BrokerResponseError, KafkaError
from aiokafka08.structs import TopicPartition


class NoGroup:
    """Assigns all partitions of the subscription to this consumer."""

    def __init__(self, router: Router, subscription: Subscription, assignee: Assignee) -> None:
        self._router = router
        self._subscription = subscription
        self._assignee = assignee
        self._notifier = Notifier()
        self._is_stale = False  # something has changed since the last assignment
        self._task: asyncio.Task[None] | None = None
        self._highest: dict[str, int] = {}  # topic → highest partition that was assigned
        self._subscription_number = -1  # the number of the subscription that `_highest` belongs to

    @property
    def is_joined(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        await self._assign()
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name="aiokafka08 membership"
        )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_change(self) -> None:
        self._is_stale = True
        self._notifier.notify()

    def on_commit_fenced(self, error: BrokerResponseError, generation: int) -> None:
        """Do nothing: there is no generation to join again."""

    def on_call(self) -> None:
        """Do nothing: partitions stay assigned without calls."""

    async def _run(self) -> None:
        search = TopicSearch(self._router)
        try:
            while True:
                unknown = self._subscription.unknown(self._router.metadata.snapshot)
                deadline = search.next_look(unknown)
                if not self._is_stale:
                    await self._notifier.wait(deadline)
                await self._assign()
        except Exception as error:
            self._assignee.membership_failed(error)

    async def _assign(self) -> None:
        self._is_stale = False
        if self._subscription.by_topic:
            is_new = self._subscription.number != self._subscription_number
            if is_new and self._subscription.unknown(self._router.metadata.snapshot):
                try:
                    await self._router.metadata.refresh()
                except KafkaError:
                    pass  # logged by the refresh, which continues in the background
            partitions = self._subscription.partitions(self._router.metadata.snapshot)
            await self._assignee.assign(partitions, self._find_new(partitions))

    def _find_new(self, partitions: frozenset[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that were added to a topic that was read before."""
        number = self._subscription.number
        highest = self._highest if number == self._subscription_number else {}
        # They start at their first message, whatever auto_offset_reset says, because all their
        # messages were written after the subscription began, and "latest" would lose them. A new
        # topic that a pattern matches starts as auto_offset_reset says, as with aiokafka.
        new = {tp for tp in partitions if tp.partition > highest.get(tp.topic, tp.partition)}
        self._subscription_number = number
        self._highest = {}
        for topic, partition in partitions:
            self._highest[topic] = max(partition, self._highest.get(topic, 0))
        return new
