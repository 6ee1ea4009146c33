"""`ClusterSampler`: read a `ClusterSample` of a cluster.

Invariant: an error is raised only if no broker responds, or if an option is wrong. Any other
failure leaves a gap in the sample, and a text in its `errors`. Nothing is changed, and no topic is
requested by name. Loops over all topics or partitions yield to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

from aiokafka08._core.concurrency.loop_yield import in_chunks, in_steps
from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._core.net.config import address_text
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08._core.zookeeper.nodes import remedy_of
from aiokafka08._core.zookeeper.session import MissingChrootError
from aiokafka08._core.zookeeper.topic_states import TopicNode
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08._wording import some_of
from aiokafka08.admin import AIOKafkaAdminClient, BrokerDescription, TopicDescription
from aiokafka08.admin.group_lag import (
    GroupStore,
    LogBounds,
    RefusedLogBounds,
    StoredGroup,
    StoredOffsets,
)
from aiokafka08.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaUnavailableError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
)
from aiokafka08.structs import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
_Versions = Mapping[int, BrokerVersion | KafkaError]

_NO_GROUPS: Final = (
    "groups in ZooKeeper aren't read, and there are none in Kafka. Give zookeeper_connect="
    "'host:2181/chroot'"
)
_READ_GROUPS: Final = "Read on topic '__consumer_offsets'"
_NO_BOUNDS: Final = LogBounds(None, None)

_REFUSED: Final = "the brokers that are named as leaders of {} respond that they aren't"
_UNREACHABLE: Final = "the leaders of {} don't respond"
_SILENT: Final = "no leader returns the offsets of {}"

# How many groups in ZooKeeper one call reads. Few, because a call's thread can't be cancelled.
_AT_ONCE: Final = 8


_IN_ZOOKEEPER: Final = " in ZooKeeper"
_CHECK_CHROOT: Final = "Check zookeeper_connect"
_CHECK_ZOOKEEPER: Final = (
    "Check zookeeper_connect, and that ZooKeeper runs there. Nothing was looked at that needs it"
)


def accept_all(name: str) -> bool:
    """Accept any name: the default filter."""
    return True


def _unread_text(subjects: Iterable[str], error: KafkaError) -> str:
    names = [subject.removesuffix(_IN_ZOOKEEPER) for subject in sorted(subjects)]
    return f"{' and '.join(names)}{_IN_ZOOKEEPER} not read: {error.text}"


class _Gaps:
    """The failed reads of a sample; see `ClusterSample.errors`, `remedies` and `rights`."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.remedies: dict[str, str] = {}
        self.rights: dict[str, str] = {}
        self.hints: list[str] = []
        # By the text of a connection or chroot error of ZooKeeper: the subjects that it affects.
        self._unread: dict[str, list[str]] = {}

    def add_unread(self, error: KafkaError, subject: str) -> None:
        """Add why a subject wasn't read; subjects with the same reason are one text."""
        is_of_all = isinstance(error, KafkaConnectionError | MissingChrootError)
        if not is_of_all or not subject.endswith(_IN_ZOOKEEPER):
            self.add(error, f"{subject} not read")
            return
        subjects = self._unread.setdefault(error.text, [])
        if subjects:
            before = _unread_text(subjects, error)
            self.texts.remove(before)
            del self.remedies[before]
        subjects.append(subject)
        text = _unread_text(subjects, error)
        self.texts.append(text)
        is_chroot = isinstance(error, MissingChrootError)
        self.remedies[text] = _CHECK_CHROOT if is_chroot else _CHECK_ZOOKEEPER

    def add(self, error: KafkaError, subject: str = "", group: str | None = None) -> None:
        """Add an error about `subject`, such as "groups", and about `group` if that is given."""
        text = f"{subject}: {error.text}" if subject else error.text
        self.texts.append(text)
        if (remedy := remedy_of(error)) is not None:
            self.remedies[text] = remedy
        if isinstance(error, GroupAuthorizationFailedError):
            on = "the group" if group is None else f"group {group!r}"
            self.rights[text] = f"Describe on {on}"
        elif isinstance(error, TopicAuthorizationFailedError):
            is_of_groups = any(topic in error.text for topic in INTERNAL_TOPICS)
            self.rights[text] = _READ_GROUPS if is_of_groups else "Describe on the topic"
        elif isinstance(error, ClusterAuthorizationFailedError):
            self.rights[text] = "Describe on the cluster"


class ClusterSampler:
    """Take samples of one cluster.

    Args:
        admin: a started client.
        has_zookeeper: whether the client has a `zookeeper_connect`, so that topics are also read
            from ZooKeeper.
        topics: returns whether a topic is wanted (default: all).
        groups: returns whether a group is wanted (default: all).
    """

    def __init__(
        self,
        admin: AIOKafkaAdminClient,
        *,
        has_zookeeper: bool,
        topics: Callable[[str], bool] = accept_all,
        groups: Callable[[str], bool] = accept_all,
    ) -> None:
        self._admin = admin
        self._has_zookeeper = has_zookeeper
        self._topics = topics
        self._groups = groups

    async def sample(self) -> ClusterSample:
        """Return a sample.

        Raises:
            NoBrokersAvailable: no broker responds.
            KafkaConfigurationError: an option is wrong.
        """
        with self._admin.same_metadata():
            return await self._sample()

    async def _sample(self) -> ClusterSample:
        # Metadata first, because it names the topics to read.
        cluster = await self._admin.describe_cluster()
        brokers, controller = cluster["brokers"], cluster["controller_id"]
        described = await self._admin.describe_topics()
        topics = [
            topic
            async for some in in_chunks(described)
            for topic in some
            if self._topics(topic["topic"])
        ]
        tps = None  # all
        if len(topics) < len(described):
            tps = [
                TopicPartition(topic["topic"], partition["partition"])
                async for topic in in_steps(topics, _partition_count)
                for partition in topic["partitions"]
            ]
        gaps = _Gaps()
        # Read the rest at the same time. The groups wait for the versions only if they need them.
        pinging = asyncio.create_task(self._admin.ping_brokers())
        versions, bounds, nodes, groups = await asyncio.gather(
            pinging,
            _or_gap(gaps, "offsets of the logs", {}, self._admin.list_log_bounds, tps),
            _or_gap(gaps, "topics in ZooKeeper", {}, self._topic_nodes, described, gaps),
            _or_gap(gaps, "groups", (), self._read_groups, described, pinging, gaps),
        )
        explained = _broker_gaps(versions)
        live = _live_with_stale_isrs(versions)
        samples: dict[str, TopicSample] = {}
        silent: dict[str, list[str]] = {_REFUSED: [], _UNREACHABLE: [], _SILENT: []}
        async for topic in in_steps(topics, _partition_count):
            name = topic["topic"]
            sample = samples[name] = _topic(topic, bounds, nodes.get(name), live)
            for number, partition in sample.partitions.items():
                if partition.end is not None and partition.start is not None:
                    continue
                if partition.leader is not None:
                    is_dead = isinstance(versions.get(partition.leader), KafkaError)
                    why = _UNREACHABLE if is_dead else _SILENT
                    silent[_REFUSED if partition.is_refused else why].append(f"{name}/{number}")
        for why, names in silent.items():
            if names:
                # The samples show a dead broker and a refusal too, but not why a log is silent.
                text = why.format(some_of(names))
                (gaps.texts if why == _SILENT else explained).append(text)
        return ClusterSample(
            {
                broker["node_id"]: _broker(broker, versions.get(broker["node_id"]))
                for broker in brokers
            },
            samples,
            groups,
            has_zookeeper=bool(nodes),
            errors=(*gaps.texts, *explained),
            remedies=gaps.remedies,
            rights=gaps.rights,
            explained=frozenset(explained),
            hints=tuple(gaps.hints),
            controller=controller if controller >= 0 else None,
        )

    async def _topic_nodes(
        self, described: Sequence[TopicDescription], gaps: _Gaps
    ) -> dict[str, TopicNode]:
        if not self._has_zookeeper:
            return {}
        nodes, errors = await self._admin.describe_cluster_nodes()
        for error in errors:
            gaps.add(error)
        for topic, node in nodes.items():
            for error in node.errors:
                if self._topics(topic):
                    gaps.add(error)
        if described and not nodes:
            raise KafkaUnavailableError(
                "it has none, the brokers have some. Check that zookeeper_connect is the "
                "ZooKeeper, and the chroot, of the cluster"
            )
        return nodes

    async def _read_groups(
        self, topics: Iterable[TopicDescription], pinging: Awaitable[_Versions], gaps: _Gaps
    ) -> tuple[GroupSample, ...]:
        if not _has_offsets_topic(topics):
            are_hidden = await self._are_groups_hidden(await pinging, gaps)
            if not self._has_zookeeper:
                if not are_hidden:
                    gaps.hints.append(_NO_GROUPS)
                return ()
        (in_kafka, _), (in_zookeeper, is_zookeeper_read) = await asyncio.gather(
            self._listed("kafka", gaps), self._listed("zookeeper", gaps)
        )
        listed = sorted(in_kafka + in_zookeeper)
        stored, found = await asyncio.gather(
            self._stored_offsets(listed),
            _or_gap(gaps, "members of groups", None, self._admin.describe_stored_groups, listed),
        )
        described = found or []
        descriptions = {
            (group.group, group.store): group.description
            for group in described
            if group.description is not None
        }
        # Brokers of 0.8 describe no group. So a group in Kafka that is neither described nor in
        # ZooKeeper has no members.
        without: set[str] = set()
        if is_zookeeper_read and found is not None:
            without = {group.group for group in in_kafka}
            without -= {*(one.group for one in described), *(one.group for one in in_zookeeper)}
        for one in described:
            for error in (*([] if one.error is None else [one.error]), *one.errors):
                gaps.add(error, f"members of group {one.group!r} in {one.store}", one.group)
        samples = []
        for group in stored:
            for error in group.all_errors():
                gaps.add(error, f"offsets of group {group.group!r} in {group.store}", group.group)
            if group.error is not None:
                continue
            committed = {tp: offset.offset for tp, offset in group.offsets.items()}
            description = descriptions.get((group.group, group.store))
            names: tuple[str, ...] | None = () if group.group in without else None
            if description is not None:
                names = tuple(member.member_id for member in description.members)
            samples.append(GroupSample(group.group, group.store, names, committed, description))
        return tuple(samples)

    async def _are_groups_hidden(self, versions: _Versions, gaps: _Gaps) -> bool:
        """Return whether an authorizer hides the offsets topic of groups; if so, add a gap."""
        known = [version for version in versions.values() if not isinstance(version, KafkaError)]
        groups: list[tuple[str, str]] = []
        # Ask only if no broker is of 0.8: such a broker would log an error.
        if known and all(version.line >= BrokerLine.V0_9 for version in known):
            groups = await _or_gap(gaps, "groups in Kafka", [], self._admin.list_consumer_groups)
        if groups:
            text = (
                "the brokers list groups, but hide the topic '__consumer_offsets' from the client"
            )
            gaps.texts.append(text)
            gaps.rights[text] = _READ_GROUPS
        return bool(groups)

    async def _listed(self, store: GroupStore, gaps: _Gaps) -> tuple[list[StoredGroup], bool]:
        """Return the wanted groups of a store, and whether the whole store was read.

        A failure is added to the gaps, so that the other store is still read.
        """
        name = {"kafka": "Kafka", "zookeeper": "ZooKeeper"}[store]
        listing = await _or_gap(
            gaps, f"groups in {name}", None, self._admin.list_groups_of_store, store
        )
        if listing is None:
            return [], False
        for error in listing.errors:
            gaps.add(error)
        if listing.left_out is not None and not self._has_zookeeper:
            gaps.hints.append(listing.left_out)
        groups = [group for group in listing.groups if self._groups(group.group)]
        return groups, listing.left_out is None and not listing.errors

    async def _stored_offsets(self, groups: Sequence[StoredGroup]) -> list[StoredOffsets]:
        """Return the committed offsets of groups; groups in ZooKeeper are read a few at a time."""
        in_zookeeper = [group for group in groups if group.store == "zookeeper"]
        in_kafka = [group for group in groups if group.store == "kafka"]
        stored = await self._admin.list_stored_offsets(in_kafka)
        for at in range(0, len(in_zookeeper), _AT_ONCE):
            stored += await self._admin.list_stored_offsets(in_zookeeper[at : at + _AT_ONCE])
        return stored


async def _or_gap(
    gaps: _Gaps,
    subject: str,
    default: T,
    call: Callable[P, Awaitable[T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Await a call; if it fails, return `default` and add the reason to the gaps."""
    # Create the coroutine only here. If callers passed it, a cancelled sample might not await it.
    try:
        return await call(*args, **kwargs)
    except KafkaConfigurationError:
        raise
    except KafkaError as error:
        gaps.add_unread(error, subject)
        return default


def _partition_count(topic: TopicDescription) -> int:
    return len(topic["partitions"])


def _has_offsets_topic(topics: Iterable[TopicDescription]) -> bool:
    """Return whether there may be groups in Kafka."""
    return any(topic["topic"] in INTERNAL_TOPICS for topic in topics)


def _broker(
    described: BrokerDescription, version: BrokerVersion | KafkaError | None
) -> BrokerSample:
    node_id = described["node_id"]
    address = address_text((described["host"], described["port"]))
    if isinstance(version, KafkaError):
        return BrokerSample(node_id, address, error=version.text)
    return BrokerSample(node_id, address, version)


def _live_with_stale_isrs(versions: _Versions) -> set[int]:
    """Return the responding brokers if one is of 0.8, where ISRs may be stale; else none."""
    known = {
        node_id: version
        for node_id, version in versions.items()
        if not isinstance(version, KafkaError)
    }
    is_old = any(version.line < BrokerLine.V0_9 for version in known.values())
    return set(known) if is_old else set()


def _topic(
    described: TopicDescription,
    bounds: Mapping[TopicPartition, LogBounds],
    node: TopicNode | None,
    live: Collection[int],
) -> TopicSample:
    """Return a topic's sample; `live` is the result of `_live_with_stale_isrs()`."""
    partitions = {}
    name = described["topic"]
    for partition in described["partitions"]:
        number, leader = partition["partition"], partition["leader"]
        log = bounds.get(TopicPartition(name, number), _NO_BOUNDS)
        stored = None if node is None else node.partitions.get(number)
        perhaps: tuple[int, ...] = ()
        if live and leader >= 0 and (stored is None or stored.isr is None):
            replicas = partition["replicas"] if stored is None else stored.replicas
            missing = set(replicas) - set(partition["isr"])
            perhaps = tuple(sorted(missing & set(live)))
        partitions[number] = PartitionSample(
            leader if leader >= 0 else None,
            tuple(partition["replicas"]),
            tuple(partition["isr"]),
            partition["error_code"] == ReplicaNotAvailableError.errno,
            None if stored is None else stored.replicas,
            None if stored is None else stored.isr,
            log.start,
            log.end,
            isinstance(log, RefusedLogBounds),
            perhaps,
        )
    if node is None:
        return TopicSample(partitions)
    return TopicSample(partitions, node.config, node.is_marked, node.moving)


def _broker_gaps(versions: _Versions) -> list[str]:
    return [
        f"broker {node_id}: {version.text}"
        for node_id, version in versions.items()
        if isinstance(version, KafkaError)
    ]
