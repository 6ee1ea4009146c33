"""A topic of the source that is deleted and created again, and then has more than was copied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from kazoo.client import KazooClient

from aiokafka08._core.zookeeper.session import MissingChrootError
from aiokafka08._core.zookeeper.topic_states import TopicCreations
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError, BridgeFencedError
from aiokafka08.bridge.sink.sink import BridgeRun, TransactionSink
from aiokafka08.bridge.source.topic_identity import TopicIdentities
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.topic_plan import LEAST_MESSAGE_BYTES
from aiokafka08.errors import (
    KafkaConfigurationError,
    KafkaUnavailableError,
    ZookeeperMismatchError,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster, Hang
from tests.bridge.clusters import (
    Message,
    TargetReader,
    bridge_config,
    bridge_text,
    config_without_zookeeper,
    copy,
    running_bridge,
    write,
)
from tests.bridge.sessions import with_identities
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.support.full import in_full
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

OLD = [Message(b"old", b"%d" % one) for one in range(10)]
NEW = [Message(b"new", b"%d" % one) for one in range(25)]


async def recreate(source: RealCluster, topic: str) -> None:
    """Delete the topic, create it again, and write more than the copy has."""
    await asyncio.to_thread(source.delete_topic, topic)
    await asyncio.to_thread(source.create_topic, topic)
    await write(source, topic, {0: NEW})


async def copy_and_recreate(
    source: RealCluster, target: RealCluster, topic: str, more: str = ""
) -> BridgeConfig:
    """Copy a topic with `OLD`, put one with `NEW` in its place, and return the configuration."""
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic, more)
    await copy(config)
    await recreate(source, topic)
    return config


def recreated(status: CopyStatus, topic: str) -> bool:
    reason = status.stopped.get(TopicPartition(topic, 0), "")
    return f"topic {topic!r}, partition 0: it was deleted and created again" in reason


@pytest.mark.parametrize(
    ("version", "make_config", "kind"),
    [
        ("0.8.2.2", bridge_config, "zookeeper "),
        *in_full(("3.9.1", config_without_zookeeper, "id ")),
    ],
)
async def test_recreated_topic_that_has_grown_is_stopped(
    version: str,
    make_config: Callable[..., BridgeConfig],
    kind: str,
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The others go on; with `skip` the topic is copied from its beginning."""
    source = await asyncio.to_thread(broker_clusters.get, version)
    topic, other = unique_topic("grown"), unique_topic("other")
    for name in (topic, other):
        await asyncio.to_thread(source.create_topic, name)
    await write(source, topic, {0: OLD})
    config = make_config(topic, source, target, f"{topic}|{other}")
    assert (await copy(config)).records == 10
    await recreate(source, topic)
    await write(source, other, {0: OLD})
    for _ in range(2):  # it stays stopped
        status = await copy(config)
        assert recreated(status, topic)
        assert kind in status.stopped[TopicPartition(topic, 0)]
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD}
    assert await asyncio.to_thread(reader.messages, other) == {0: OLD}
    skipping = make_config(topic, source, target, f"{topic}|{other}", '[copy]\non_loss = "skip"\n')
    assert (await copy(skipping)).records == 25
    assert (await copy(config)).records == 0  # the new topic is the known one now
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD + NEW}


@pytest.mark.full
async def test_recreated_topic_stays_stopped_without_zookeeper(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The next start can't read the identities; nothing of the new topic is copied."""
    topic = unique_topic("away")
    config = await copy_and_recreate(source, target, topic)
    assert recreated(await copy(config), topic)

    class Unknown(TopicIdentities):
        async def read(self) -> dict[str, str]:
            return {}

    assert recreated(await copy(config, new_session=with_identities(Unknown)), topic)
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD}


async def test_shorter_topic_is_copied_anew_once(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """With `skip` its messages before the old position are copied, and none of them twice."""
    topic = unique_topic("shorter")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    more = '[copy]\non_loss = "skip"\nrefresh_s = 3\n'
    config = bridge_config(topic, source, target, topic, more)
    async with running_bridge(config) as (status, _):
        await until(lambda: status.records == 10, "all is copied", 60)
        await asyncio.to_thread(source.delete_topic, topic)
        await asyncio.to_thread(source.create_topic, topic)
        await write(source, topic, {0: NEW[:4]})
        await until(lambda: status.records == 14, "the new topic is copied", 60)
        await write(source, topic, {0: NEW[4:7]})
        await until(lambda: status.records >= 17, "the rest is copied", 60)
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD + NEW[:7]}


def described(topic_id: object) -> Future[Any]:
    """Return librdkafka's description of a topic; or its error."""
    found = Future[Any]()
    if isinstance(topic_id, Exception):
        found.set_exception(topic_id)
    else:
        found.set_result(SimpleNamespace(topic_id=topic_id))
    return found


def failed(code: int) -> Exception:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


def describe(
    patch: pytest.MonkeyPatch,
    topics: Callable[[], Mapping[str, Future[Any]]],
    start: Callable[[], object] = dict,
    result_s: float = 30.0,
) -> dict[str, str]:
    """Return the identities of "old" and "new" that come from such an admin client."""

    class Admin:
        def __init__(self, settings: object) -> None:
            start()

        def describe_topics(self, wanted: object, request_timeout: float) -> Any:
            return topics()

    patch.setattr("confluent_kafka.admin.AdminClient", Admin)
    config = parse_config(
        'name = "b"\n[source]\nbootstrap = "localhost:1"\n[target]\nbootstrap = "localhost:1"\n'
        '[topics]\ninclude = ["old", "new"]\n'
    )
    unused: Any = SimpleNamespace()
    identities = TopicIdentities(config, unused, unused, BridgeRun(), result_s=result_s)
    return identities.describe(["old", "new"])


def test_topic_id_of_zeros_is_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers from 2.8 on give it while `inter.broker.protocol.version` is an older one."""
    zeros, one = described(confluent_kafka.Uuid(0, 0)), described(confluent_kafka.Uuid(1, 2))
    assert list(describe(monkeypatch, lambda: {"old": zeros, "new": one})) == ["new"]


def test_topic_that_was_deleted_has_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = described(failed(confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART))
    one = described(confluent_kafka.Uuid(1, 2))
    assert list(describe(monkeypatch, lambda: {"old": gone, "new": one})) == ["new"]


async def test_missing_chroot_of_the_source_ends_the_bridge() -> None:
    """Unlike an outage of ZooKeeper, after which the copy goes on."""
    wrong: KafkaUnavailableError = MissingChrootError(
        "ZooKeeper zk:1 has no chroot /nowhere. Check zookeeper_connect"
    )

    def read(*arguments: object) -> TopicCreations:
        raise wrong

    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as source:
        address = source.bootstrap_servers
        config = parse_config(
            f'name = "b"\n[source]\nbootstrap = "{address}"\nzookeeper = "zk:1/nowhere"\n'
            '[target]\nbootstrap = "localhost:1"\n[topics]\ninclude = ["t"]\n'
        )
        unused: Any = SimpleNamespace()
        identities = TopicIdentities(config, unused, unused, BridgeRun(), read_creations=read)
        text = (
            r"source\.zookeeper: ZooKeeper zk:1 has no chroot /nowhere\. Check source\.zookeeper$"
        )
        with pytest.raises(BridgeError, match=text):
            await identities.read()
        wrong = KafkaUnavailableError("ZooKeeper is away")
        assert await identities.read() == {}


def test_errors_of_topic_descriptions_are_kafka_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that librdkafka raises at once, and a description that never comes."""

    def fails() -> Mapping[str, Future[Any]]:
        raise failed(confluent_kafka.KafkaError._STATE)

    with pytest.raises(KafkaConfigurationError, match=r"source\.properties: "):
        describe(monkeypatch, dict, start=fails)
    with pytest.raises(KafkaUnavailableError, match="topic 'old': "):
        describe(monkeypatch, fails)
    refused = described(failed(confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaUnavailableError, match="topic 'new': "):
        describe(monkeypatch, lambda: {"new": refused})
    with pytest.raises(KafkaUnavailableError, match="topic 'old': no description within 0 s"):
        describe(monkeypatch, lambda: {"old": Future[Any]()}, result_s=0.0)


async def test_topic_recreated_during_the_copy_is_stopped(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    topic = unique_topic("during")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic, "[copy]\nrefresh_s = 0.5\n")
    async with running_bridge(config) as (status, running):
        await until(lambda: status.records == 10, "all is copied", 60)
        await recreate(source, topic)
        await until(lambda: recreated(status, topic) or running.done(), "it is noticed", 60)
    assert recreated(status, topic)


@pytest.mark.full
async def test_interrupted_begin_of_a_recreated_topic_is_repeated(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process is killed after the positions were set back, and before it says so."""
    topic = unique_topic("again")
    skip = '[copy]\non_loss = "skip"\n'
    config = await copy_and_recreate(source, target, topic, skip)

    class KilledError(Exception):
        pass

    async def killed(self: TopicIdentities, identities: Mapping[str, str]) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(TopicIdentities, "_write", killed)
        with pytest.raises(KilledError):
            await copy(config)
    connection = Target(config)
    try:
        positions = await connection.committed(config.position_group, [TopicPartition(topic, 0)])
    finally:
        await connection.close()
    assert positions == {TopicPartition(topic, 0): 0}
    assert (await copy(config)).records == 25
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD + NEW}


@pytest.mark.full
async def test_topic_of_an_older_release_is_taken_as_it_is(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No identity was written at its first copy: the next start writes the present one."""
    topic = unique_topic("older")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic)

    async def nothing(self: TopicIdentities, stored: object) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(TopicIdentities, "start", nothing)
        await copy(config)
    await write(source, topic, {0: OLD})
    assert (await copy(config)).records == 10
    await recreate(source, topic)
    assert recreated(await copy(config), topic)


@asynccontextmanager
async def fenced_start(config: BridgeConfig) -> AsyncIterator[tuple[Target, TransactionSink]]:
    """Yield the target, and a start that hangs behind its claim: a newer one has claimed it too."""
    connection = Target(config)
    older, newer = (TransactionSink(config, connection, BridgeRun()) for _ in range(2))
    try:
        await older.start(LEAST_MESSAGE_BYTES)
        await newer.start(LEAST_MESSAGE_BYTES)
        yield connection, older
    finally:
        await asyncio.gather(older.close(), newer.close())
        await connection.close()


@pytest.mark.full
async def test_fenced_start_sets_no_position_back(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    topic = unique_topic("zombie")
    config = await copy_and_recreate(source, target, topic, '[copy]\non_loss = "skip"\n')
    async with fenced_start(config) as (connection, older):
        stored = await read_stored_runs(config, connection)
        with pytest.raises(BridgeFencedError):
            await TopicIdentities(config, connection, older, BridgeRun()).start(stored)
        positions = await connection.committed(config.position_group, [TopicPartition(topic, 0)])
        runs = await read_stored_runs(config, connection)
    assert positions == {TopicPartition(topic, 0): 10}
    assert len(runs.offset_map(TopicPartition(topic, 0)))


@pytest.mark.full
async def test_fenced_start_writes_no_identity(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """The next start would take what it wrote for what was copied."""
    topic = unique_topic("fenced")
    config = await copy_and_recreate(source, target, topic)
    async with fenced_start(config) as (connection, older):
        before = await connection.read_topic(config.state_topic)
        stored = await read_stored_runs(config, connection)
        with pytest.raises(BridgeFencedError):
            await TopicIdentities(config, connection, older, BridgeRun()).start(stored)
        assert await connection.read_topic(config.state_topic) == before


async def test_source_that_hangs_leaves_identities_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A session begins without them."""
    with EmbeddedCluster(version="0.8.2") as source:
        source.fault(ListOffsetsRequest, then=Hang(), times=None)
        servers = source.bootstrap_servers
        config = parse_config(
            f'name = "b"\n[source]\nbootstrap = "{servers}"\n[target]\nbootstrap = "localhost:1"\n'
            '[topics]\ninclude = ["t"]\n'
        )
        unused: Any = SimpleNamespace()
        identities = TopicIdentities(config, unused, unused, BridgeRun(), timeout_s=0.5)
        async with asyncio.timeout(60):
            assert await identities.read() == {}
    assert "the source doesn't tell releases and topics within 0 s" in caplog.text


async def test_reason_for_unknown_identities_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not by each session of a process, nor at each look; but again once it worked in between."""
    answers = ["hangs", "hangs", "is away", "hangs", "is away", None, "is away"]

    def read(*_: object) -> TopicCreations:
        if (text := answers.pop(0)) is not None:
            raise KafkaUnavailableError(text)
        return TopicCreations("1", {"t": 2})

    run = BridgeRun()
    with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as source:
        config = parse_config(
            f'name = "b"\n[source]\nbootstrap = "{source.bootstrap_servers}"\n'
            'zookeeper = "localhost:2"\n'
            '[target]\nbootstrap = "localhost:1"\n[topics]\ninclude = ["t"]\n'
        )
        while answers:
            unused: Any = SimpleNamespace()
            session = TopicIdentities(config, unused, unused, run, read_creations=read)
            await session.read()
    texts = [one.rpartition(": ")[2] for one in caplog.messages if "created again" in one]
    assert texts == ["hangs", "is away", "is away"]


@pytest.mark.full
async def test_skip_begins_nothing_anew_with_another_zookeeper(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """A wrong chroot has a topic of this name too. With the right one the copy goes on."""
    topic = unique_topic("chroot")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    skip = '[copy]\non_loss = "skip"\n'
    config = bridge_config(topic, source, target, topic, skip)
    await copy(config)
    connect = source.zookeeper_connect
    other = f"{connect.partition('/')[0]}/{topic}"
    await asyncio.to_thread(create_nodes, connect, f"/{topic}/brokers/topics/{topic}")
    text = bridge_text(topic, source, target, topic, skip).replace(connect, other)
    with pytest.raises(ZookeeperMismatchError, match=r"source\.zookeeper_check = \"warn\""):
        await copy(parse_config(text))
    warned = text.replace("[source]", '[source]\nzookeeper_check = "warn"')
    with pytest.raises(BridgeError, match="it isn't the ZooKeeper that the bridge has seen before"):
        await copy(parse_config(warned))
    await write(source, topic, {0: NEW})
    assert (await copy(config)).records == len(NEW)
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD + NEW}


def create_nodes(connect: str, path: str) -> None:
    client = KazooClient(connect)
    client.start()
    try:
        client.ensure_path(path)
    finally:
        client.stop()
        client.close()


@pytest.mark.full
async def test_zookeeper_identity_of_an_older_release_is_kept(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    """It has no creation of the node above the topics."""
    topic = unique_topic("plain")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic)

    class Older(TopicIdentities):
        async def read(self) -> dict[str, str]:
            found = await super().read()
            return {name: one.partition(" below ")[0] for name, one in found.items()}

    assert (await copy(config, new_session=with_identities(Older))).records == 10
    await write(source, topic, {0: NEW})
    assert (await copy(config)).records == len(NEW)
    await recreate(source, topic)
    assert recreated(await copy(config), topic)


def test_kerberized_source_is_copied_without_topic_ids(caplog: pytest.LogCaptureFixture) -> None:
    """The wheel of confluent-kafka, which alone can ask for them, has no Kerberos."""
    config = parse_config(
        'name = "b"\n[source]\nbootstrap = "localhost:1"\n[target]\nbootstrap = "localhost:1"\n'
        '[source.properties]\n"security.protocol" = "SASL_PLAINTEXT"\n'
        '"sasl.kerberos.keytab" = "me.keytab"\n[topics]\ninclude = ["old"]\n'
    )
    unused: Any = SimpleNamespace()
    assert TopicIdentities(config, unused, unused, BridgeRun()).describe(["old"]) == {}
    assert "has no Kerberos, so the source's topic ids aren't read" in caplog.text
