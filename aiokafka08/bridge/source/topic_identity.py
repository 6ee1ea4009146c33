"""`TopicIdentities`: notice topics of the source that were deleted and created again.

A log that is shorter than the position shows by itself that it isn't the one that was copied
(`source_reader`). One that has grown past the position doesn't: then only the topic's identity
tells. This is the id of the ZooKeeper transaction that created the topic, if the bridge's file
names ZooKeeper, or else the topic id that brokers from 2.8 on give. Without either, nothing is
noticed. In another ZooKeeper (a wrong chroot, or one that was built anew) each topic looks as if it
was created again:
so the identity has the creation of the node above the topics, too, and no topic begins anew if that
has changed.

The identities are in the bridge's state topic: key `topic:` and the name, value JSON, with the new
identity of a topic that was created again, so it stays stopped where it can't be read. A topic
without one (an older release has copied it) gets the present one; so does a topic whose identity is
of another kind, since the file names ZooKeeper now, or no longer does.

Invariant: the identity of a topic that begins anew is written after its positions were set to 0,
and before a message of it is copied. So a process that is killed in between begins anew again.

Identities aren't written in a transaction, since a running worker owns its producer. So a start
that a newer one has fenced looks at the claims first, and writes nothing. If it hangs between the
look and the write, its identities come behind those of the newer start. That matters only if the
topic was created again meanwhile: then the next start finds it created again once more, and stops
its partitions, or with `on_loss="skip"` copies it once more. No message is lost by that.
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

_KEY: Final = b"topic:"
_TIMEOUT_S: Final = 30.0
_RESULT_S: Final = _TIMEOUT_S + 5.0
"""How long librdkafka may take to report; it was told `_TIMEOUT_S`."""
_FIRST_WITH_IDS: Final = (2, 8)
_IN: Final = " below "
"""In front of the creation of the node above the topics."""
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers give while `inter.broker.protocol.version` is below 2.8: 16 zero bytes."""


class _Identity(NamedTuple):
    """The identity of the topic that was copied; and of the one that has taken its place."""

    copied: str
    recreated: str | None = None


class TopicRecreatedError(KafkaError):
    """A topic was deleted and created again while it was copied: the session must begin anew."""


class TopicIdentities:
    """The topics of the source as this session knows them.

    Args:
        config: the file of the bridge.
        target: the connection.
        sink: sets positions back.
        run: this start of the process.
        timeout_s: how long the source may take.
        result_s: how long librdkafka may take to report what the source says.
        read_creations: reads the creations of topics in ZooKeeper.

    Attributes:
        begun_anew: Partitions of the source whose positions `start` has set to 0. Don't read them
            back: a target before 2.5 may return the former position, until it has written the
            markers of the transaction that set them.
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
        self.begun_anew: set[TopicPartition] = set()

    async def start(self, stored: StoredRuns) -> None:
        """Compare the topics with those that were copied, and write new identities.

        For recreated topics there is a `reason`, also where none can be read now; with
        `on_loss="skip"` their positions are 0 instead, and they have no runs in `stored` any more.
        Call it when older starts are fenced, and before the workers of the sink run.

        Args:
            stored: the offsets topic.

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
        return f"topic {tp.topic!r}, partition {tp.partition}: {_reason(known)}"

    async def refresh(self) -> None:
        """Compare the topics with those of the last call, and write what is new.

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
        """Verify that topics were created again in the ZooKeeper that is known.

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
                "'Run the bridge' in the documentation, \"A topic that was created again\""
            )

    async def _begin_anew(self, topics: Collection[str], stored: StoredRuns) -> None:
        """Set the positions of topics to 0, and remove their runs: these are of other messages."""
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

        The process logs each reason once, until a look has worked.

        Raises:
            BridgeError: the source's ZooKeeper hasn't the chroot.
            KafkaConfigurationError: it isn't the ZooKeeper of the source's brokers.
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
        """Return the topic ids of brokers from 2.8 on. librdkafka asks: 0.8's protocol has none."""
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
    """Return what is known of a topic that has an identity now; one of another kind replaces it.

    An older release wrote identities of ZooKeeper without the node above.
    """
    if known is None or known.copied.split()[0] != now.split()[0]:
        return _Identity(now)
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
