"""`observe` in front of real brokers of 0.8 to 2.8, before they are moved.

`tests/sasl/test_gateway_on_brokers.py` has 3.9.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._tools.gateway.gateway import Gateway
from tests._tools.gateway.gateways import HOST, RawClient, first_port, running
from tests._tools.gateway.test_clients import kcat
from tests._tools.gateway.test_foreign_clients import console_producer
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.log_entries import entries
from tests.brokers.tools import JavaTools
from tests.support.full import in_full
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.every_line, pytest.mark.timeout(300)]

LINES = [f"key-{number}:value-{number}" for number in range(50)]
VALUES = [f"value-{number}" for number in range(50)]


@asynccontextmanager
async def observed(cluster: RealCluster) -> AsyncIterator[tuple[Gateway, str]]:
    """Run a gateway that observes; yield it and its address."""
    async with running(cluster.bootstrap_servers, is_observing=True) as gateway:
        yield gateway, f"{HOST}:{first_port(gateway)}"


@pytest.fixture
async def cluster(broker_clusters: BrokerClusters, release: str) -> RealCluster:
    return await asyncio.to_thread(broker_clusters.get, release)


@pytest.fixture
async def topic(cluster: RealCluster, unique_topic: Callable[..., str]) -> str:
    name = unique_topic("observed")
    await asyncio.to_thread(cluster.create_topic, name)
    return name


def stranded(gateway: Gateway) -> dict[str, dict[str, int]]:
    """Return the APIs and versions that Kafka 4 would refuse, of all clients."""
    found: dict[str, dict[str, int]] = {}
    for row in gateway.clients.rows():
        for api, versions in row["requests"].get("stranded", {}).items():
            for version, count in versions.items():
                of_api = found.setdefault(api, {})
                of_api[version] = of_api.get(version, 0) + count
    return found


def in_full_alone(*values: str | tuple[Any, ...]) -> list[Any]:
    """Return values as `in_full` does; the first one is a release whose brokers end behind them."""
    found = []
    for value in values:
        row = value if isinstance(value, tuple) else (value,)
        found.append(pytest.param(*row, marks=[pytest.mark.full, pytest.mark.release(row[0])]))
    return found


RELEASES = [
    *("0.8.2.2", "0.9.0.1", "0.10.2.2"),
    *in_full("0.8.0", "0.8.1.1"),
    *in_full_alone("1.1.1", "2.8.2"),
]


@pytest.mark.parametrize("release", RELEASES)
async def test_kcat_works_and_is_listed(cluster: RealCluster, topic: str, release: str) -> None:
    begin = len(cluster.log(0))
    # Later ones would make librdkafka ask for versions; so it is an old client of a newer broker.
    fallback = "0.8.2.2" if release.startswith("0.8") else "0.9.0.1"
    async with observed(cluster) as (gateway, servers):

        def use() -> tuple[Any, Any]:
            sent = kcat(servers, fallback, "-P", "-t", topic, "-K", ":", "-z", "gzip", lines=LINES)
            return sent, kcat(servers, fallback, "-C", "-t", topic, "-e", "-K", ":", "-o", "0")

        sent, read = await asyncio.to_thread(use)
        assert sent.returncode == 0, sent.stderr
        assert read.stdout.splitlines() == LINES, read.stderr
        found = stranded(gateway)
    assert {"Produce", "Fetch"} <= found.keys()
    errors = [one for one in entries(cluster.log(0)[begin:]) if "] ERROR " in one]
    assert not [one for one in errors if "Broken pipe" not in one]  # brokers.md 3.13


@pytest.mark.parametrize("release", RELEASES)
async def test_own_clients_find_the_same_release(
    cluster: RealCluster, topic: str, release: str
) -> None:
    async with observed(cluster) as (_, servers):
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(topic, b"tea")
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest", group_id=None
        )
        async with consumer:
            assert (await consumer.getone()).value == b"tea"


# --- what is answered, byte by byte ---------------------------------------------------------------

GROUP = b"\0\1g"


def requests_to_both(topic: str, release: str) -> list[bytes]:
    """Return frames whose answers tell nothing of time; correlation ids are their numbers.

    Brokers from 0.10 on answer ApiVersions, by the gateway without what brokers send each other.
    """
    name = len(topic).to_bytes(2, "big") + topic.encode()
    one = struct.pack(">i", 1) + name
    first = one + struct.pack(">ii", 1, 0)
    bodies: list[tuple[int, int, bytes]] = [
        *((3, version, one) for version in (0, 1, 2)),
        (2, 0, struct.pack(">i", -1) + first + struct.pack(">qi", -1, 1)),
        *(
            (1, version, struct.pack(">iii", -1, 1, 1) + first + struct.pack(">qi", 0, 99))
            for version in (0, 1)
        ),
        (9, 0, GROUP + first),
        (8, 0, GROUP + first + struct.pack(">q", 5) + b"\0\0"),
        (9, 0, GROUP + first),
        (10, 0, GROUP),
        (16, 0, b""),
        *([(18, 0, b"")] if release.startswith(("0.8", "0.9")) else []),
    ]
    return [
        struct.pack(">hhih", key, version, number, 1) + b"c" + body
        for number, (key, version, body) in enumerate(bodies)
    ]


async def answer(port: int, frame: bytes, after: bytes) -> bytes | str:
    """Return what the first of two pipelined requests gets: a frame, or why there is none."""
    async with await RawClient.connect(port) as client, asyncio.timeout(20):
        client.send(frame)
        client.send(after)
        try:
            found = await client.frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            return "closed"
        return found if found[:4] == frame[4:8] else "silent"


@pytest.mark.parametrize("release", RELEASES)
async def test_answers_are_those_of_the_broker(
    cluster: RealCluster, topic: str, release: str
) -> None:
    """But for the port: the host is the same."""
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    after = struct.pack(">hhih", 2, 0, 99, 1) + b"c" + struct.pack(">ii", -1, 0)
    name_coordinator = struct.pack(">hhih", 10, 0, 0, 1) + b"c" + GROUP

    async def is_ready() -> bool:
        named = await answer(port, name_coordinator, after)
        return named == "closed" or named[4:6] == b"\0\0"  # 0.8.0 and 0.8.1 know none

    await eventually(is_ready)
    async with observed(cluster) as (gateway, _):
        theirs, ours = struct.pack(">i", port), struct.pack(">i", first_port(gateway))
        for frame in requests_to_both(topic, release):
            # 18 at the broker itself would harm other connections (brokers.md 2.2).
            known = frame[1] != 18
            if known:
                wanted = await answer(port, frame, after)
            else:
                wanted = "silent" if release.startswith("0.9") else "closed"
            found = await answer(first_port(gateway), frame, after)
            if isinstance(wanted, bytes):
                assert isinstance(found, bytes), (frame, found)
                found = found.replace(ours, theirs)
            assert found == wanted, frame


# --- clients of today, which ask for versions -----------------------------------------------------


@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1"])
async def test_librdkafka_that_asks_for_versions_fails_as_at_the_broker(
    cluster: RealCluster, topic: str, release: str
) -> None:
    """`broker.version.fallback` alone doesn't help: it asks, and gives up."""
    settings = {
        "broker.version.fallback": release,
        "api.version.request.timeout.ms": 500,
        "message.timeout.ms": 2000,
        "client.id": "today",
        "log_level": 0,
    }

    def send(servers: str) -> list[object]:
        producer = confluent_kafka.Producer({**settings, "bootstrap.servers": servers})
        errors: list[object] = []
        producer.produce(topic, b"tea", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        return [error is not None for error in errors]

    async with observed(cluster) as (gateway, servers):
        assert await asyncio.to_thread(send, servers) == [True]
        (row,) = gateway.clients.rows()
    assert not row["needs_gateway"]
    assert row["requests"].keys() == {"refused"}
    assert row["requests"]["refused"].keys() == {"ApiVersions"}


# --- Kafka's own clients --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "client", "arguments"),
    [
        ("0.8.2.2", "0.8.2.2", ()),
        *in_full(
            ("0.8.0", "0.8.0", ()),
            ("0.8.1.1", "0.8.0", ()),
            ("0.8.2.2", "0.8.2.2", ("--new-producer",)),
            ("0.9.0.1", "0.8.2.2", ()),
            ("0.9.0.1", "0.9.0.1", ()),
            ("0.9.0.1", "0.9.0.1", ("--old-producer",)),
            ("0.10.2.2", "0.8.2.2", ()),
        ),
        *in_full_alone(("1.1.1", "0.9.0.1", ()), ("2.8.2", "0.10.2.2", ("--old-producer",))),
    ],
)
async def test_console_producers_work_and_are_listed(
    cluster: RealCluster,
    topic: str,
    java: Callable[[str], JavaTools],
    client: str,
    arguments: tuple[str, ...],
) -> None:
    async with observed(cluster) as (gateway, servers):
        code, errors = await asyncio.to_thread(
            console_producer, java(client), client, servers, topic, "none", *arguments
        )
        assert code == 0, errors
        read = await asyncio.to_thread(
            kcat, cluster.bootstrap_servers, "0.8.2.2", "-C", "-t", topic, "-e", "-o", "0"
        )
        assert read.stdout.splitlines() == VALUES
        assert "Produce" in stranded(gateway)


@pytest.mark.parametrize("release", [*in_full("0.9.0.1"), *in_full_alone("2.8.2")])
async def test_java_group_of_0_9_works_and_is_listed(
    cluster: RealCluster, topic: str, java: Callable[[str], JavaTools]
) -> None:
    sent = await asyncio.to_thread(
        kcat, cluster.bootstrap_servers, "0.9.0.1", "-P", "-t", topic, "-K", ":", lines=LINES
    )
    assert sent.returncode == 0
    async with observed(cluster) as (gateway, servers):
        process = java("0.9.0.1").popen(
            *("kafka.tools.ConsoleConsumer", "--bootstrap-server", servers, "--new-consumer"),
            *("--topic", topic, "--from-beginning"),
        )

        async def has_read_all() -> bool:
            return process.stdout().split() == VALUES

        await eventually(has_read_all, 120)
        await asyncio.to_thread(process.terminate, 60)
        found = stranded(gateway)
        passed = {api for row in gateway.clients.rows() for api in row["requests"]["passed"]}
    assert {"Fetch", "ListOffsets"} <= found.keys()
    assert {"JoinGroup", "SyncGroup", "FindCoordinator"} <= passed


@pytest.mark.full
async def test_each_broker_of_three_has_a_port(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 3)
    topic = unique_topic("observed")
    await asyncio.to_thread(cluster.create_topic, topic, 6, 2)
    first = cluster.bootstrap_servers.split(",")[0]
    async with running(first, is_observing=True) as gateway:
        servers = f"{HOST}:{first_port(gateway)}"
        listed = await asyncio.to_thread(kcat, servers, "0.8.2.2", "-L", "-t", topic)
        ports = {int(port) for port in re.findall(rf"at {HOST}:(\d+)", listed.stdout)}
        assert ports == set(gateway.ports.values())
        assert len(ports) == 3
        sent = await asyncio.to_thread(
            kcat, servers, "0.8.2.2", "-P", "-t", topic, "-K", ":", lines=LINES
        )
        assert sent.returncode == 0, sent.stderr
        read = await asyncio.to_thread(
            kcat, servers, "0.8.2.2", "-C", "-t", topic, "-e", "-K", ":", "-o", "0"
        )
        assert sorted(read.stdout.splitlines()) == sorted(LINES)
