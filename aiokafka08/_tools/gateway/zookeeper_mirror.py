"""`ZookeeperMirror`: keep a ZooKeeper current for the clients that find brokers and topics there.

It asks the target cluster for all topics every few seconds, and has `cluster_writer` write what
clients of the gateway would see: the addresses of its listeners, and the topics that are allowed.

Invariants: a topic is removed only if it was missing for `interval_s`. At most half of the topics
are removed at a time, because topics that the gateway may not describe are missing too. An error is
logged once, and the work is tried again; clients that don't use ZooKeeper aren't affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from aiokafka08 import environment
from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.limited_log import one_line
from aiokafka08._core.net.config import Address, address_text
from aiokafka08._core.zookeeper import cluster_writer
from aiokafka08._core.zookeeper.cluster_writer import ClusterWriter, Plan, WrittenCluster
from aiokafka08._core.zookeeper.session import require_kazoo
from aiokafka08._tools.gateway.addresses import AddressOf
from aiokafka08._tools.gateway.messages import Values
from aiokafka08._tools.gateway.options import GatewayOptions
from aiokafka08._tools.gateway.peers import Peers
from aiokafka08._tools.gateway.target_client import TargetClient, ask_first, brokers_of
from aiokafka08._wording import some_of
from aiokafka08.errors import KafkaError, KafkaProtocolError

_log: Final = logging.getLogger("aiokafka08.gateway")

_NAMED: Final = 5
_MAX_ERRORS: Final = 20
_COMPARED_EACH: Final = 12
"""One in this many passes reads all nodes, because tools may have changed them."""


class ZookeeperMirror:
    """See the module.

    Args:
        options: the options of the gateway.
        address_of: the addresses that clients use.
        peers: returns the brokers that stand for other gateways.
        interval_s: the seconds between two requests to the target.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(
        self, options: GatewayOptions, address_of: AddressOf, peers: Peers, interval_s: float = 5.0
    ) -> None:
        require_kazoo()
        self._options = options
        self._address_of = address_of
        self._peers = peers
        self._interval_s = interval_s
        # The topics as they were written last
        self._topics: Mapping[str, Mapping[int, cluster_writer.WrittenPartition]] = {}
        self._missing: dict[str, float] = {}  # by topic: when the target's list first lacked it
        self._too_many: set[str] = set()  # the missing topics that the last warning has named
        self._began: float | None = None  # when the first pass began
        self._passes = 0
        self._known: dict[int, Address] = {}
        self._said = ""
        self._errors: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._writer = new_writer(options, self._wake)
        self._tasks = TaskSet()

    def start(self) -> None:
        """Begin; `stop` ends it."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """End the mirroring, and remove the brokers' nodes."""
        await self._tasks.cancel()
        await environment.run_in_thread(self._writer.close)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._is_due.set)

    async def _run(self) -> None:
        while True:
            self._is_due.clear()
            try:
                await self._update()
            except KafkaError as error:
                self._failed(error.text)
            except Exception as error:
                self._failed(f"ZooKeeper isn't kept current: internal error: {error!r}", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._is_due.wait()

    async def _update(self) -> None:
        metadata = await ask_metadata(self._options, self._known.values())
        self._known = brokers_of(metadata)
        found = written_cluster(self._options, metadata, self._address_of, self._peers)
        now = environment.monotonic()
        missing = self._topics.keys() - found.topics.keys()
        self._missing = {name: self._missing.get(name, now) for name in missing}
        gone = {name for name in missing if now - self._missing[name] >= self._interval_s}
        stays = len(gone) > len(self._topics) / 2
        kept = missing if stays else missing - gone
        topics = {name: self._topics[name] for name in kept} | dict(found.topics)
        state = replace(found, topics=topics)
        self._topics = topics
        self._began = now if self._began is None else self._began
        removes = now - self._began >= self._interval_s
        compares = self._passes % _COMPARED_EACH == 0
        self._passes += 1
        # A thread can't be cancelled: `stop` waits until it has ended.
        write = partial(self._writer.write, state, removes=removes, compares=compares)
        writing = asyncio.ensure_future(environment.run_in_thread(write))
        try:
            plan = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])  # its error mustn't replace this CancelledError
            if (error := writing.exception()) and not isinstance(error, KafkaError):
                _log.error("ZooKeeper: internal error: %r", error, exc_info=error)
            raise
        text = _summary(self._options, state, plan)
        if text != self._said or self._errors:
            self._said = text
            self._errors.clear()
            _log.info("%s", text)
        if stays and not gone <= self._too_many:
            _log.error(
                "ZooKeeper %s: topics stay that the target doesn't list any more, more than half "
                "of all: %s. The gateway may have lost the right to describe them. If they were "
                "deleted, restart it", self._options.zookeeper, some_of(sorted(gone), _NAMED),
            )  # fmt: skip
        self._too_many = gone if stays else set()

    def _failed(self, text: str, error: Exception | None = None) -> None:
        """Log each error once until a pass succeeds."""
        if text not in self._errors and len(self._errors) < _MAX_ERRORS:
            self._errors.add(text)
            text, every_s = one_line(text), self._interval_s
            _log.error("%s. Trying again every %g s", text, every_s, exc_info=error)


def new_writer(options: GatewayOptions, wake: Callable[[], object] = lambda: None) -> ClusterWriter:
    """Return the writer of a gateway."""
    assert options.zookeeper is not None
    own, others = address_text(options.own_address), list(map(address_text, options.peers))
    return ClusterWriter(options.zookeeper, own, others, wake)


async def why_unusable(options: GatewayOptions) -> str | None:
    """Return why ZooKeeper can't be written now; None if it can, or the gateway uses none.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """
    if options.zookeeper is None:
        return None
    require_kazoo()
    with contextlib.closing(new_writer(options)) as writer:
        try:
            await environment.run_in_thread(lambda: writer.plan(WrittenCluster({}, {})))
        except KafkaError as error:
            return error.text.removesuffix(". Check zookeeper_connect")
    return None


async def ask_metadata(options: GatewayOptions, others: Iterable[Address] = ()) -> Values:
    """Return the response to Metadata of all topics, from the first broker that knows the cluster.

    Raises:
        KafkaConnectionError: see `ask_first`.
    """

    async def ask(client: TargetClient) -> Values:
        # Version 0 doesn't say which topics are internal.
        answer = await client.metadata(least=1)
        # A broker that has just started names no brokers or controller, and knows no topics.
        if not answer["Brokers"] or answer["ControllerId"] < 0:
            raise KafkaProtocolError("knows no controller")
        return answer

    addresses = dict.fromkeys([*options.network.bootstrap, *others])
    return await ask_first(addresses, options.network, "ZooKeeper isn't kept current", ask)


def written_cluster(
    options: GatewayOptions, metadata: Values, address_of: AddressOf, peers: Peers
) -> WrittenCluster:
    """Return the contents of ZooKeeper's nodes: the cluster as clients of the gateway see it.

    Internal topics are left out. Consumers of 0.8.0 and 0.8.1 with a pattern would read them.
    """
    found = {node: address_of(node, *where) for node, where in brokers_of(metadata).items()}
    brokers = {node: address for node, address in found.items() if address[1]}
    brokers = {**peers(), **brokers}  # after `address_of`, which adds ids that `peers` avoids
    topics = {
        one["Name"]: {part["PartitionIndex"]: _partition(part) for part in one["Partitions"]}
        for one in metadata["Topics"]
        if one["Partitions"] and not one["IsInternal"]
        if options.access.accepts("topic", one["Name"])
    }
    return WrittenCluster(brokers, topics, metadata.get("ClusterId"))


def _partition(part: Values) -> cluster_writer.WrittenPartition:
    epoch, replicas = max(part.get("LeaderEpoch", 0), 0), part["ReplicaNodes"]
    return cluster_writer.WrittenPartition(part["LeaderId"], epoch, replicas, part["IsrNodes"])


def _summary(options: GatewayOptions, state: WrittenCluster, plan: Plan) -> str:
    text = f"ZooKeeper {options.zookeeper}: "
    if plan.owner == address_text(options.own_address):
        return f"{text}an earlier session of this gateway hasn't ended; waiting for its end"
    if plan.owner is not None:
        return f"{text}gateway {plan.owner} writes there; this one waits until it has gone"
    brokers = some_of(sorted(state.brokers), _NAMED)
    text += f"keeping brokers {brokers} and {len(state.topics)} topics"
    if left := [name for name in plan.left if not name.startswith("__")]:
        text += f"; topics that the target doesn't have stay: {some_of(left, _NAMED)}"
    return text
