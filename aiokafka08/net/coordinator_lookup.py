"""Find the broker that coordinates a consumer group, and remember it.

The consumer, its offset store and the admin client share one `CoordinatorLookup` per group. The
coordinator may be a broker that no metadata has named, so the lookup registers its address at the
router.

Invariant: at most one lookup runs at a time. Its result holds until `invalidate()` is called with
that node id.
"""

from __future__ import annotations

import asyncio

from aiokafka08.errors import (
    GroupCoordinatorNotAvailableError,
    IllegalArgumentError,
    KafkaError,
    KafkaProtocolError,
    broker_error,
)
from aiokafka08.net.retry import retry
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import GroupCoordinatorRequest, GroupCoordinatorResponse

PATIENCE_S = 5.0
"""How long one broker may take to name the coordinator."""


def check_group_id(group: object) -> str:
    """`group`, if it can be the name of a group.

    Raises:
        IllegalArgumentError: it can't.
    """
    if isinstance(group, str) and group:
        try:
            if len(group.encode()) <= 0x7FFF:
                return group
        except UnicodeEncodeError:
            pass
    text = repr(group)
    raise IllegalArgumentError(
        f"group_id={text if len(text) <= 100 else text[:99] + '…'}: allowed is a text, not empty, "
        "of at most 32767 bytes in UTF-8"
    )


class CoordinatorLookup:
    """Knows the coordinator of one group.

    Args:
        router: the way to the brokers.
        group: the group's name.
        node_id: who it is, where that is known already.
    """

    def __init__(self, router: Router, group: str, node_id: int | None = None) -> None:
        self.group = group
        self._router = router
        self._node_id = node_id
        self._lock = asyncio.Lock()

    async def node_id(self, *, timeout_s: float | None = None) -> int:
        """The coordinator's node id, which `Router.request` takes; looked up if need be.

        The first lookup on a cluster makes it create its offsets topic, and takes a moment.

        Args:
            timeout_s: seconds, `request_timeout_ms` by default.

        Raises:
            GroupCoordinatorNotAvailableError: none was named in time; says what was seen last.
            UnsupportedVersionError: the brokers' line has no coordinators (before 0.8.2).
            BrokerResponseError: the brokers refuse the group.
            IllegalStateError: the client was stopped.
        """
        if self._node_id is not None:
            return self._node_id
        limit_s = self._router.config.request_timeout_s if timeout_s is None else timeout_s
        deadline = asyncio.get_running_loop().time() + limit_s

        def timed_out(last: KafkaError | None) -> KafkaError:
            return GroupCoordinatorNotAvailableError(
                f"no coordinator of group {self.group!r} within {limit_s * 1000:.0f} ms"
                + (f"; last seen: {last}" if last is not None else "")
                + _hint(last)
            )

        try:
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
        except TimeoutError:
            raise timed_out(None) from None
        try:
            if self._node_id is None:
                self._node_id = await retry(
                    self._look_up,
                    deadline=deadline,
                    backoff=self._router.config.backoff(at_least_s=0.01),
                    timed_out=timed_out,
                    attempt_s=PATIENCE_S,
                )
            return self._node_id
        finally:
            self._lock.release()

    def invalidate(self, node_id: int) -> None:
        """That node isn't the coordinator (code 15 or 16), or doesn't answer: look it up anew."""
        if self._node_id == node_id:
            self._node_id = None

    async def _look_up(self, timeout_s: float) -> int | KafkaError:
        """One question: the node id, or what may pass."""
        answer = await self._router.request(
            GroupCoordinatorRequest(self.group), timeout_s=timeout_s
        )
        if answer.error_code:
            return broker_error(answer.error_code, f"the coordinator of group {self.group!r}")
        _check(answer)
        self._router.register_broker(answer.node_id, (answer.host, answer.port))
        return answer.node_id


def _check(answer: GroupCoordinatorResponse) -> None:
    if answer.node_id < 0 or not answer.host or not 0 < answer.port < 65536:
        raise KafkaProtocolError(
            f"a broker names as coordinator: node {answer.node_id} at {answer.host!r}, port "
            f"{answer.port}"
        )


def _hint(seen: KafkaError | None) -> str:
    if not isinstance(seen, GroupCoordinatorNotAvailableError) or seen.errno != 15:
        return ""
    # docs/brokers.md 8.9
    return (
        ". A cluster of 0.8.2 brokers without any topic never names one: create a topic; else the "
        "brokers may be unable to create the topic __consumer_offsets (see their logs)"
    )
