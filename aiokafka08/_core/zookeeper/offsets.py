"""Read and write a group's committed offsets as ZooKeeper nodes, without going through a broker.

The Scala consumer and the brokers (OffsetCommit 0) write the same nodes in the same format.

Invariants: a node is written only if it still has the version that `find_versions` or `read` found,
or that the last write left. So a write that takes effect late, after its caller has given up, never
overwrites what another client has written since. Once `open` has returned, `read`, `find_versions`
and `write` end within their `timeout_s`, also while ZooKeeper can't be reached.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08 import environment
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.nodes import decode_node, refused
from aiokafka08._core.zookeeper.results import result_of, results_of, wait_for_last
from aiokafka08._core.zookeeper.session import (
    ZookeeperSession,
    check_node_name,
    require_kazoo,
    translate_errors,
)
from aiokafka08.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
)
from aiokafka08.structs import LAST_OFFSET, TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

_NUMBER: Final = re.compile(rb"\s*-?[0-9]{1,19}\s*")

SESSION_TIMEOUT_S: Final = 6.0
"""The Scala consumer's default for zookeeper.session.timeout.ms. No node here is ephemeral, so an
expired session loses nothing."""


class OffsetNodes:
    """The offset nodes of one group, read and written in one ZooKeeper session.

    Belongs to the event loop; kazoo blocks, so each call runs in a thread.
    """

    def __init__(self, zookeeper: ClusterZookeeper, group: str) -> None:
        require_kazoo()
        self._zookeeper = zookeeper
        self._connect = zookeeper.shown
        self._group = group
        self._session = ZookeeperSession(zookeeper, "aiokafka08.consumer.kazoo")
        self._requests: dict[asyncio.Future[Any], None] = {}  # the calls that run in threads
        # The versions of the partitions' nodes; None: there is no node
        self._versions: dict[TopicPartition, int | None] = {}

    async def open(self, timeout_s: float) -> None:
        """Open the session.

        Raises:
            IllegalArgumentError: the group's name can't be the name of a node.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: the chroot doesn't exist.
            ZookeeperMismatchError: it is the ZooKeeper of other brokers.
        """
        check_node_name("group_id", self._group)
        await self._session.open(min(timeout_s, SESSION_TIMEOUT_S))

    async def close(self) -> None:
        """Close the session, and wait for the threads of cancelled calls; safe to call twice."""
        await self._session.close()
        if self._requests:  # without a session they soon end
            await asyncio.wait(self._requests)

    async def read(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int | KafkaError | None]:
        """Return each partition's offset or error; None without a node or for a negative offset.

        Raises:
            KafkaTimeoutError: ZooKeeper didn't respond within `timeout_s`.
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: ZooKeeper refuses.
        """
        nodes = await self._run(
            lambda client, deadline: self._read(client, partitions, deadline), timeout_s
        )
        offsets: dict[TopicPartition, int | KafkaError | None] = {}
        for tp in partitions:
            node = nodes.get(tp)
            if isinstance(node, KafkaError):
                offsets[tp] = node
                continue
            if node is None:
                offsets[tp] = self._versions[tp] = None
                continue
            data, stat = node
            self._versions[tp] = stat.version
            offsets[tp] = decode_offset(self._connect, self._path(tp), data)
        return offsets

    async def find_versions(self, partitions: Collection[TopicPartition], timeout_s: float) -> None:
        """Find out the unknown versions of these nodes; raises as `read`."""
        unknown = [tp for tp in partitions if tp not in self._versions]
        if unknown:
            stats = await self._run(
                lambda client, deadline: results_of(
                    {tp: client.exists_async(self._path(tp)) for tp in unknown}, deadline
                ),
                timeout_s,
            )
            for tp, stat in stats.items():
                self._versions[tp] = None if stat is None else stat.version

    async def write(
        self, offsets: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, KafkaError]:
        """Write these offsets, except to nodes whose version has changed since it was found.

        Returns the error of each partition that wasn't written; a changed version is such an
        error. Raises KafkaConnectionError if ZooKeeper can't be reached.
        """
        # The versions of nodes that aren't written count as unknown from now on.
        versions = {tp: self._versions.pop(tp, None) for tp in offsets}
        written, failed = await self._run(
            lambda client, deadline: self._write(client, offsets, versions, deadline), timeout_s
        )
        self._versions |= written
        return failed

    # --- in a thread ------------------------------------------------------------------------------

    async def _run(self, work: Callable[[KazooClient, float], T], timeout_s: float) -> T:
        client = await self._session.client()
        if client is None:
            raise IllegalStateError(
                f"offsets of group {self._group!r} in ZooKeeper: the session isn't open"
            )
        deadline = environment.monotonic() + timeout_s

        def run() -> T:
            from kazoo.exceptions import NoAuthError

            with translate_errors(self._connect):
                self._session.verify(client, max(deadline - environment.monotonic(), 0.001))
                try:
                    return work(client, deadline)
                except NoAuthError:
                    raise refused(self._connect, f"/consumers/{self._group}/offsets") from None

        async def run_in_thread() -> T:
            request = asyncio.ensure_future(environment.run_in_thread(run))
            self._requests[request] = None
            request.add_done_callback(self._forget)
            await asyncio.wait([request])  # a cancelled call leaves the thread to `close`
            return request.result()

        return await self._zookeeper.run(run_in_thread, timeout_s)

    def _forget(self, request: asyncio.Future[Any]) -> None:
        del self._requests[request]
        request.exception()  # or asyncio would log it, if the call was cancelled

    def _read(
        self, client: KazooClient, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, tuple[bytes, Any] | KafkaError]:
        """Return data and stat of each node that exists, or the error if its ACL refuses."""
        from kazoo.exceptions import NoAuthError, NoNodeError

        requests = {tp: client.get_async(self._path(tp)) for tp in partitions}
        wait_for_last(requests, deadline)
        nodes: dict[TopicPartition, tuple[bytes, Any] | KafkaError] = {}
        for tp, request in requests.items():
            try:
                nodes[tp] = result_of(request, deadline)
            except NoNodeError:
                pass
            except NoAuthError:
                nodes[tp] = refused(self._connect, self._path(tp))
        return nodes

    def _write(
        self,
        client: KazooClient,
        offsets: Mapping[TopicPartition, int],
        versions: Mapping[TopicPartition, int | None],
        deadline: float,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
        """Return the new versions of the nodes that are written, and the errors of the others."""
        from kazoo.exceptions import (
            BadVersionError,
            KazooException,
            NoAuthError,
            NodeExistsError,
            NoNodeError,
        )

        def send(tp: TopicPartition) -> Any:
            path, value, version = self._path(tp), b"%d" % offsets[tp], versions[tp]
            if version is None:
                return client.create_async(path, value, makepath=True)
            return client.set_async(path, value, version=version)

        # Write one node of each topic first, because it creates the parent nodes, which each of the
        # other requests would try to create too.
        firsts = {tp.topic: tp for tp in offsets if versions[tp] is None}
        requests = {tp: send(tp) for tp in firsts.values()}
        wait_for_last(requests, deadline)
        requests |= {tp: send(tp) for tp in offsets if tp not in requests}
        wait_for_last(requests, deadline)
        written: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        for tp, request in requests.items():
            try:
                result = result_of(request, deadline)
            except (BadVersionError, NodeExistsError, NoNodeError):
                failed[tp] = KafkaUnavailableError("another client has written the node meanwhile")
            except NoAuthError:
                failed[tp] = refused(self._connect, self._path(tp))
            except KazooException as error:
                failed[tp] = KafkaUnavailableError(f"{type(error).__name__} {error}".rstrip())
            except KafkaTimeoutError as error:
                failed[tp] = error
            else:
                written[tp] = 0 if versions[tp] is None else result.version
        return written, failed

    def _path(self, tp: TopicPartition) -> str:
        return f"/consumers/{self._group}/offsets/{tp.topic}/{tp.partition}"


def decode_offset(connect: str, path: str, data: bytes) -> int | KafkaError | None:
    """Return the offset in a node's data, or the error about a node that holds something else.

    Return None for a negative offset, which counts as no offset; brokers accept and write negative
    ones (docs/brokers.md 8.4).
    """
    return decode_node(connect, path, data, _offset, "an offset")


def _offset(data: bytes) -> int | None:
    if not _NUMBER.fullmatch(data) or int(data) > LAST_OFFSET:
        raise ValueError("no offset")
    offset = int(data)
    return offset if offset >= 0 else None
