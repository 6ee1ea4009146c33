"""`TopicIdentities`: notice topics of the source that were deleted and created again.

If the log is shorter than the position, the topic was recreated (`source_reader`). If the log has
grown past the position, the topic's identity decides: the id of the ZooKeeper transaction that
created the topic, or else the topic id of brokers from 2.8 on. Without either, nothing is noticed.

Invariant: to copy a topic from its beginning again, the bridge first sets the positions to 0, then
writes the topic's new identity, then copies messages. So if the process is killed in between, the
next one does the same again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.security import parse_security
from aiokafka08._core.zookeeper.topic_states import TopicCreations, read_topic_creations
from aiokafka08._wording import partition_text
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import StoredRuns
from aiokafka08.bridge.copy.run_formats import RunsKey, encode_runs_key
from aiokafka08.bridge.errors import BridgeError
from aiokafka08.bridge.sink.claims import state_document
from aiokafka08.bridge.sink.sink import BridgeRun, TransactionSink
from aiokafka08.bridge.source.source_clients import source_admin, source_router, source_settings
from aiokafka08.bridge.source.source_release import known_releases, release_numbers
from aiokafka08.bridge.target.target_cluster import Target, import_confluent
from aiokafka08.errors import (
    KafkaConfigurationError,
    KafkaError,
    KafkaProtocolError,
    KafkaUnavailableError,
)
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

# A record of the state topic has this prefix and the topic's name as its key, and JSON as its
# value. The new identity of a recreated topic is stored too, so that the topic stays stopped in
# a session that can't read that identity.
_KEY: Final = b"topic:"
_TIMEOUT_S: Final = 30.0
# librdkafka's own timeout is `_TIMEOUT_S`; this is how long it may take to report.
_RESULT_S: Final = _TIMEOUT_S + 5.0
_FIRST_WITH_IDS: Final = (2, 8)
# Separates the creation of the topic from the creation of its parent node, /brokers/topics. In
# another ZooKeeper (a wrong chroot, or one that was set up again) each topic looks recreated, so
# positions aren't set to 0 if the parent node has changed.
_IN: Final = " below "
# 16 zero bytes: brokers return this id while `inter.broker.protocol.version` is below 2.8.
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


class _Identity(NamedTuple):
    """The identity of the topic that was copied, and that of a topic that has replaced it."""

    copied: str
    recreated: str | None = None


class TopicRecreatedError(KafkaError):
    """A topic was deleted and created again while it was copied: a new session must begin."""


class TopicIdentities:
    """The topics of the source as this session knows them.

    Args:
        config: the file of the bridge.
        target: the connection.
        sink: sets positions back.
        run: this start of the process.
        timeout_s: how long the source may take.
        result_s: how long librdkafka may take to report the source's response.
        read_creations: reads the creations of topics in ZooKeeper.

    Attributes:
        begun_anew: Partitions of the source whose positions `start` has set to 0.
    """

    def __init__(
        self,
        config: BridgeConfig,
        target: Target,
        sink: TransactionSink,
        run: BridgeRun,
        *,
        timeout_s: float = _TIMEOUT_S,
        result_s: float = _RESULT_S,
        read_creations: Callable[..., TopicCreations] = read_topic_creations,
    ) -> None:
        self._timeout_s, self._result_s = timeout_s, result_s
        self._read_creations = read_creations
        self._config, self._target, self._sink, self._run = config, target, sink, run
        self._known: dict[str, _Identity] = {}
        self._has_ids: bool | None = None
        # The positions of these partitions aren't read back: a target before 2.5 may return the
        # former positions until it has written the markers of the transaction that set them to 0.
        self.begun_anew: set[TopicPartition] = set()

    async def start(self, stored: StoredRuns) -> None:
        """Compare the topics with those that were copied, and write new identities.

        Recreated topics aren't copied, and `reason()` says why. With `on_loss="skip"` their
        positions are set to 0 instead, and their runs are removed from `stored`. Call it when older
        starts are fenced, and before the workers of the sink run.

        Raises:
            BridgeFencedError: a newer start has claimed the bridge.
            BridgeError: the file names another ZooKeeper, with `on_loss="skip"`.
            KafkaConfigurationError: the file names ZooKeeper, and kazoo isn't installed.
            ZookeeperMismatchError: `source.zookeeper` is the ZooKeeper of other brokers.
            TargetError: the target doesn't respond.
            KafkaProtocolError: a stored identity can't be read.
        """
        known = _decoded(await self._target.read_topic(self._config.state_topic))
        now = await self.read()
        identities = {
            topic: _compared(known.get(topic), identity) for topic, identity in now.items()
        }
        changed = [
            topic for topic, identity in identities.items() if identity.recreated is not None
        ]
        if changed and self._config.copy.on_loss == "skip":
            self._check_parent({topic: (known[topic].copied, now[topic]) for topic in changed})
            await self._begin_anew(changed, stored)
            identities |= {topic: _Identity(now[topic]) for topic in changed}
        self._known = known | identities
        await self._write(
            {t: identity for t, identity in identities.items() if known.get(t) != identity}
        )

    def reason(self, tp: TopicPartition) -> str | None:
        """Return why a partition isn't copied; None if its topic is the one that was copied."""
        known = self._known.get(tp.topic)
        if known is None or known.recreated is None:
            return None
        return f"{partition_text(tp)}: {_reason(known)}"

    async def refresh(self) -> None:
        """Compare the topics with those of the last call, and write new identities.

        Raises:
            BridgeFencedError: a newer start has claimed the bridge, so nothing is written.
            TopicRecreatedError: a topic was created again.
            TargetError: the target doesn't respond.
        """
        now = await self.read()
        identities = {
            topic: _compared(self._known.get(topic), identity) for topic, identity in now.items()
        }
        changed = {
            topic: identity
            for topic, identity in identities.items()
            if self._known.get(topic) != identity
        }
        await self._write(changed)
        self._known |= changed
        for topic, identity in changed.items():
            if identity.recreated is not None:
                raise TopicRecreatedError(f"topic {topic!r}: {_reason(identity)}")

    def _check_parent(self, changed: Mapping[str, tuple[str, str]]) -> None:
        """Verify that topics were created again in the known ZooKeeper.

        Args:
            changed: by topic, the identity that was copied, and the one now.
        """
        others = [
            topic
            for topic, (copied, now) in changed.items()
            if _IN in copied and copied.partition(_IN)[2] != now.partition(_IN)[2]
        ]
        if others:
            raise BridgeError(
                f"source.zookeeper = {self._config.source.zookeeper!r}: it isn't the ZooKeeper "
                f"that the bridge has seen before (a wrong chroot, or one that was built anew), so "
                f"{len(others)} topics look as if they were created again, such as {others[0]!r}. "
                'Nothing is copied with copy.on_loss = "skip". Correct source.zookeeper; or see '
                "'Moving to a cluster of today' in the documentation, \"A topic that was created "
                'again"'
            )

    async def _begin_anew(self, topics: Collection[str], stored: StoredRuns) -> None:
        """Set the positions of topics to 0, and remove the offset runs of the deleted topics."""
        counts = await self._target.partition_counts()
        names = {topic: self._config.topics.target_name(topic) for topic in topics}
        tps = [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(counts.get(names[topic], 0))
        ]
        if not tps:
            return
        pairs = {tp: TopicPartition(names[tp.topic], tp.partition) for tp in tps}
        stale = {
            tp: [encode_runs_key(RunsKey(*tp, source)) for source in stored.pop(tp)] for tp in tps
        }
        await self._sink.begin_anew(pairs, stale)
        self.begun_anew |= pairs.keys()
        for topic in topics:
            _log.warning(
                "%s: topic %r was deleted and created again at the source; it is copied from its "
                "beginning, behind the messages that %r has",
                self._config.client_id, topic, names[topic],
            )  # fmt: skip

    async def _write(self, identities: Mapping[str, _Identity]) -> None:
        if not identities:
            return
        # Not in a transaction, because only the workers may use the transactional producers while
        # they run. So the claims are checked first. A fenced start that hangs between the check and
        # the write puts its identities after those of the newer start. That matters only if the
        # topic was created again meanwhile: the next start then finds it recreated once more, and
        # stops it or copies it once more. No message is lost.
        await self._sink.check_owner()
        records = []
        for topic, identity in sorted(identities.items()):
            document = {"version": 0, "identity": identity.copied}
            if identity.recreated is not None:
                document["recreated"] = identity.recreated
            records.append((_KEY + topic.encode(), json.dumps(document).encode()))
        await self._target.write_all(self._config.state_topic, records)

    # --- the source -------------------------------------------------------------------------------

    async def read(self) -> dict[str, str]:
        """Return the identities of the topics that are copied; none if they can't be read now.

        The process logs each reason once, until the identities were read.

        Raises:
            BridgeError: the chroot doesn't exist in the source's ZooKeeper.
            KafkaConfigurationError: `source.zookeeper` is the ZooKeeper of other brokers, or kazoo
                isn't installed.
        """
        try:
            identities = await self._read_now()
        except (BridgeError, KafkaConfigurationError):
            raise
        except KafkaError as error:
            if error.text not in self._run.identities_unknown:
                self._run.identities_unknown.add(error.text)
                _log.warning(
                    "%s: whether topics were created again isn't known now: %s",
                    self._config.client_id, error.text,
                )  # fmt: skip
            return {}
        self._run.identities_unknown.clear()
        return identities

    async def _read_now(self) -> dict[str, str]:
        source = self._config.source
        if source.zookeeper is not None:
            async with source_router(self._config) as router:
                zookeeper = ClusterZookeeper(
                    router,
                    source.zookeeper,
                    source.zookeeper_check,
                    parse_security(source.zookeeper_options, source.zookeeper),
                )
                parent, created = await zookeeper.run(
                    lambda: environment.run_in_thread(
                        self._read_creations,
                        zookeeper,
                        self._timeout_s,
                        self._config.topics.includes,
                    ),
                    self._timeout_s,
                )
            return {
                topic: f"zookeeper {creation}{_IN}{parent}" for topic, creation in created.items()
            }
        return await self._read_ids()

    async def _read_ids(self) -> dict[str, str]:
        """Return the topic ids of brokers from 2.8 on, which librdkafka reads; 0.8 has none."""
        if self._has_ids is False:
            return {}
        try:
            async with asyncio.timeout(self._timeout_s), source_admin(self._config) as admin:
                if self._has_ids is None:
                    await admin.describe_cluster()
                    self._has_ids = _have_ids((await admin.ping_brokers()).values())
                topics = filter(self._config.topics.includes, await admin.list_topics())
                names = list(topics) if self._has_ids else []
        except TimeoutError:
            text = f"the source doesn't tell releases and topics within {self._timeout_s:.0f} s"
            raise KafkaUnavailableError(text) from None
        return await environment.run_in_thread(self.describe, names)

    def describe(self, topics: list[str]) -> dict[str, str]:
        """Return the topic ids; blocks."""
        if not topics:
            return {}
        confluent = import_confluent()
        try:
            admin: Any = confluent.admin.AdminClient(source_settings(self._config))
        except confluent.KafkaException as error:
            text = error.args[0].str()
            if "No provider for SASL mechanism GSSAPI" in text:
                _log.warning(
                    "%s: this build of confluent-kafka has no Kerberos, so the source's topic ids "
                    "aren't read: a topic that is deleted and created again isn't noticed by them",
                    self._config.client_id,
                )
                self._has_ids = False
                return {}
            raise KafkaConfigurationError(f"source.properties: {text}") from None
        identities = {}
        topic = topics[0]
        try:
            wanted = confluent.TopicCollection(topics)
            described = admin.describe_topics(wanted, request_timeout=self._timeout_s)
            for topic, future in described.items():
                identity = _topic_id(future, self._result_s)
                if identity is not None and identity != _NO_ID:
                    identities[topic] = f"id {identity}"
        except confluent.KafkaException as error:
            raise KafkaUnavailableError(f"topic {topic!r}: {error.args[0].str()}") from None
        except TimeoutError:
            text = f"topic {topic!r}: no description within {self._result_s:.0f} s"
            raise KafkaUnavailableError(text) from None
        return identities


def _topic_id(described: Any, result_s: float) -> str | None:
    """Wait for a topic's description, and return its id; None if the topic doesn't exist."""
    confluent = import_confluent()
    try:
        return str(described.result(result_s).topic_id)
    except confluent.KafkaException as error:
        if error.args[0].code() != confluent.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def _have_ids(versions: Iterable[BrokerVersion | KafkaError]) -> bool | None:
    """Return whether all brokers are of 2.8 or later; None if one doesn't respond."""
    results = list(versions)
    releases = known_releases(results)
    if not results or len(releases) < len(results):
        return None
    return all(release_numbers(release) >= _FIRST_WITH_IDS for release in releases)


def _compared(known: _Identity | None, now: str) -> _Identity:
    """Return the identity to store for a topic that has the identity `now`."""
    # A first identity, or one of another kind: the file names ZooKeeper now, or no longer does.
    if known is None or known.copied.split()[0] != now.split()[0]:
        return _Identity(now)
    # An older release has written ZooKeeper's identities without the parent node.
    if known.copied == now.partition(_IN)[0]:
        return _Identity(now)
    return _Identity(known.copied, None if known.copied == now else now)


def _reason(known: _Identity) -> str:
    return (
        f"it was deleted and created again at the source ({known.copied} is now {known.recreated}),"
        ' so its offsets are of other messages. copy.on_loss = "skip" copies the topic from its '
        "beginning, behind the messages that the target has"
    )


def _decoded(records: Iterable[Any]) -> dict[str, _Identity]:
    """Return the identities in the records of the state topic, in the order of the log."""
    identities: dict[str, _Identity] = {}
    for record in records:
        if record.key is None or record.value is None or not record.key.startswith(_KEY):
            continue
        try:
            document = state_document(record.value)
            identity = _Identity(document.get("identity", ""), document.get("recreated"))
            for text in filter(lambda each: each is not None, identity):
                if not isinstance(text, str) or not text.strip():
                    raise ValueError(f"identity {text!r}")
            identities[record.key.removeprefix(_KEY).decode()] = identity
        except ValueError as error:
            raise KafkaProtocolError(
                f"offset {record.offset} of the state topic can't be read ({error}); expected "
                "version 0. Run the release that wrote it, or a newer one"
            ) from None
    return identities
