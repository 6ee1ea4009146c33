"""Topics that the target creates because an old client names them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import HOST, RawClient, ScriptedBroker, connected, first_port
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.support.waiting import eventually

METADATA, DESCRIBE_CONFIGS = 3, 32
SETTING = "auto.create.topics.enable"


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


class CreatingBroker(ScriptedBroker):
    """Knows no topic, and has the setting, or refuses to tell it.

    Attributes:
        asked: the APIs of the requests.
    """

    def __init__(self, setting: str | None) -> None:
        super().__init__(self._respond)
        self.setting = setting
        self.asked: list[int] = []

    def _respond(self, frame: bytes) -> bytes:
        key, version = struct.unpack_from(">hh", frame)
        self.asked.append(key)
        if key == DESCRIBE_CONFIGS:
            assert text("0") in frame
            return frame[4:8] + bytes(4) + b"\0\0\0\1" + self._config()
        node = bytes(4) + text(HOST) + self.port.to_bytes(4, "big")
        node += b"\xff\xff" if version else b""
        extra = (text("id") if version >= 2 else b"") + (bytes(4) if version else b"")
        throttle = bytes(4) if version >= 3 else b""
        names = ("new",) if frame.endswith(text("new")) else ()
        topics = b"".join(
            b"\0\3" + text(name) + (b"\0" if version else b"") + bytes(4) for name in names
        )
        body = b"\0\0\0\1" + node + extra + len(names).to_bytes(4, "big") + topics
        return frame[4:8] + throttle + body

    def _config(self) -> bytes:
        if self.setting is None:
            return b"\0\x1f" + b"\xff\xff" + b"\4" + text("0") + bytes(4)
        value = text(SETTING) + text(self.setting) + b"\0\5\0" + bytes(4)
        return b"\0\0" + b"\xff\xff" + b"\4" + text("0") + b"\0\0\0\1" + value


def metadata(version: int, *names: str) -> bytes:
    topics = len(names).to_bytes(4, "big") + b"".join(map(text, names))
    if not names and version:
        topics = b"\xff\xff\xff\xff"
    return struct.pack(">hhih", METADATA, version, 7, 7) + b"old one" + topics


def codes(frame: bytes) -> int:
    """Return the error of the only topic, which stands before its name."""
    at = frame.index(text("new"))
    return int.from_bytes(frame[at - 2 : at], "big")


@pytest.mark.fast
@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("setting", ["true", "false", None])
async def test_topic_to_come_has_no_leader_yet(version: int, setting: str | None) -> None:
    is_old = version < 3
    async with (
        CreatingBroker(setting) as broker,
        connected(broker.address) as (gateway, client),
    ):
        for _ in range(2):
            client.send(metadata(version, "new"))
            client.send(metadata(version))
            named, _ = await client.frame(), await client.frame()
            assert codes(named) == (5 if is_old and setting == "true" else 3)
            assert first_port(gateway).to_bytes(4, "big") in named
        asked = [one for one in broker.asked if one != METADATA]
        assert asked == [DESCRIBE_CONFIGS] * is_old


@pytest.mark.fast
async def test_known_topics_need_no_setting() -> None:
    """Nor do lists of all topics."""
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers) as (_, client),
    ):
        for version in range(3):
            assert await code_of(client, version, "t") == 0


@pytest.mark.fast
async def test_damaged_setting_ends_the_connection() -> None:
    async with CreatingBroker("true") as broker, connected(broker.address) as (_, client):
        creating = broker.answer
        broker.answer = lambda frame: (
            frame[4:8] + b"damaged" if frame[1] == DESCRIBE_CONFIGS else creating(frame)
        )
        client.send(metadata(1, "new"))
        assert await client.is_closed()


async def code_of(client: RawClient, version: int, topic: str) -> int:
    (found,) = (await client.call(MetadataRequest([topic]), version)).topics
    assert found.topic == topic
    code: int = found.error_code
    return code


@pytest.mark.real
@pytest.mark.release("3.9.1")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_topic_to_come_is_answered_as_by_3_9(
    version: int, broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    new = await asyncio.to_thread(broker_clusters.get, "4.1.0")
    old = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    async with (
        connected(new.bootstrap_servers) as (_, ours),
        await RawClient.connect(old.port(0)) as theirs,
    ):
        # The gateway asks for the setting, and again for the topic, which may be there by then.
        assert await code_of(ours, version, unique_topic("created")) in (0, 5)
        for client in (ours, theirs):
            topic = unique_topic("created")
            assert await code_of(client, version, topic) == 5

            async def is_there() -> bool:
                code = await code_of(client, version, topic)  # noqa: B023
                assert code in (0, 5)
                return not code

            await eventually(is_there, 60)


@pytest.mark.real
@pytest.mark.release("4.1.0")
@pytest.mark.timeout(180)
async def test_topic_that_the_target_does_not_create_is_unknown() -> None:
    require_real_brokers()
    cluster = RealCluster("4.1.0", properties={SETTING: False})
    await asyncio.to_thread(cluster.start)
    try:
        async with connected(cluster.bootstrap_servers) as (_, client):
            for version in range(3):
                for _ in range(2):
                    assert await code_of(client, version, "never") == 3
    finally:
        await asyncio.to_thread(cluster.close)
