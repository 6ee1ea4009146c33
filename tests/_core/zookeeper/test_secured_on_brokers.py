"""Secured ensembles: identities, ACLs and TLS on real ZooKeepers, by all that talks to them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient, NewTopic
from aiokafka08.admin.group_lag import StoredGroup
from aiokafka08.errors import (
    AuthenticationFailedError,
    CertificateError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
)
from tests._tools.cli.conftest import RunCommand, cli, folder_of_profiles
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers

__all__ = ["cli", "folder_of_profiles"]

RELEASE = "0.8.2.2"
SECRET = "alice-secret"
ALICE = ("digest", f"alice:{SECRET}")
DIGEST = {"auth_data": [ALICE]}
SASL = {"sasl_options": {"mechanism": "DIGEST-MD5", "username": "alice", "password": SECRET}}

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

UniqueTopic = Callable[..., str]


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check what all loggers write, kazoo's requests too."""
    caplog.set_level(1)
    for name in ("aiokafka08.admin.kazoo", "aiokafka08.consumer.kazoo"):
        caplog.set_level(1, name)
    yield
    # The sessions of the tests themselves log as "kazoo.client".
    records = [one for one in caplog.get_records("call") if one.name.startswith("aiokafka08.")]
    assert any(one.levelno < logging.DEBUG for one in records)
    assert not any(SECRET in one.getMessage() for one in records)


@pytest.fixture
def cluster(broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get(RELEASE)


@contextmanager
def kazoo(cluster: RealCluster, **options: Any) -> Iterator[KazooClient]:
    """Return a session of the test's own."""
    client = KazooClient(cluster.zookeeper_connect, **options)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def protect(cluster: RealCluster, path: str) -> None:
    """Let only alice change a node, and all read it."""
    with kazoo(cluster, auth_data=[ALICE]) as client:
        client.ensure_path(path)
        client.set_acls(path, [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE])


def acl_of(cluster: RealCluster, path: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return who may do what with a node."""
    with kazoo(cluster) as client:
        acls: list[ACL] = client.get_acls(path)[0]
    return sorted((one.id.scheme, one.id.id.partition(":")[0], tuple(one.acl_list)) for one in acls)


def options_of(cluster: RealCluster, **security: Any) -> dict[str, Any]:
    """Return the options of a client."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper_connect": cluster.zookeeper_connect,
        "request_timeout_ms": 10_000,
        "zookeeper_options": security or None,
    }


@contextmanager
def refuses(kind: type[KafkaError], *texts: str) -> Iterator[None]:
    """Expect one typed error in time, with these texts and no secret."""
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        yield
    assert time.monotonic() - began < 10
    assert type(caught.value) is kind
    assert all(text in str(caught.value) for text in texts), str(caught.value)
    assert SECRET not in str(caught.value)


async def consume_one(topic: str, group: str, options: dict[str, Any]) -> bytes | None:
    """Join a group, read a message and commit."""
    async with AIOKafkaConsumer(
        topic,
        group_id=group,
        offsets_storage="zookeeper",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    ) as consumer:
        value: bytes | None = (await asyncio.wait_for(consumer.getone(), 60)).value
        await consumer.commit()
        return value


async def test_group_is_protected_and_works_with_its_identity(
    cluster: RealCluster, unique_topic: UniqueTopic
) -> None:
    topic, group = unique_topic(), unique_topic("g")
    await asyncio.to_thread(cluster.create_topic, topic)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"tea", partition=0)
    alice = options_of(cluster, **DIGEST, set_acl=True)
    assert await consume_one(topic, group, alice) == b"tea"
    path = f"/consumers/{group}/offsets/{topic}/0"
    assert acl_of(cluster, path) == [("digest", "alice", ("ALL",)), ("world", "anyone", ("READ",))]
    # Others may read its offsets, and can't join or commit.
    async with AIOKafkaAdminClient(**options_of(cluster)) as admin:
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets[TopicPartition(topic, 0)].offset == 1
        with refuses(GroupAuthorizationFailedError, f"/consumers/{group}", "zookeeper_options"):
            await admin.reset_consumer_group_offsets(group, {TopicPartition(topic, 0): 0})
    bob = options_of(cluster, auth_data=[("digest", "bob:bob-secret")])
    with refuses(GroupAuthorizationFailedError, f"/consumers/{group}/", "digest user 'bob'"):
        await consume_one(topic, group, bob)
    async with AIOKafkaAdminClient(**alice) as admin:
        await admin.reset_consumer_group_offsets(group, {TopicPartition(topic, 0): 0})
        await admin.delete_stored_group(StoredGroup(group, "zookeeper", ""))


async def test_without_set_acl_nodes_stay_open(
    cluster: RealCluster, unique_topic: UniqueTopic
) -> None:
    topic = unique_topic()
    async with AIOKafkaAdminClient(**options_of(cluster, **DIGEST)) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    assert acl_of(cluster, f"/brokers/topics/{topic}") == [("world", "anyone", ("ALL",))]


async def test_admin_needs_the_identity_of_a_protected_node(
    cluster: RealCluster, unique_topic: UniqueTopic
) -> None:
    topic = unique_topic()
    await asyncio.to_thread(cluster.create_topic, topic)
    await asyncio.to_thread(protect, cluster, f"/config/topics/{topic}")
    texts = (f"/config/topics/{topic}", "zookeeper_options")
    async with AIOKafkaAdminClient(**options_of(cluster)) as admin:
        with refuses(ClusterAuthorizationFailedError, *texts):
            await admin.alter_topic_overrides(topic, {"retention.ms": "3600000"})
    bob = options_of(cluster, auth_data=[("digest", "bob:bob-secret")])
    async with AIOKafkaAdminClient(**bob) as admin:
        with refuses(ClusterAuthorizationFailedError, *texts, "digest user 'bob'"):
            await admin.alter_topic_overrides(topic, {"retention.ms": "3600000"})


async def test_command_line_uses_the_identity_of_its_file(
    cluster: RealCluster, unique_topic: UniqueTopic, cli: RunCommand, tmp_path: Path
) -> None:
    group = unique_topic("g")
    with kazoo(cluster) as client:
        client.ensure_path(f"/consumers/{group}/offsets")
    await asyncio.to_thread(protect, cluster, f"/consumers/{group}")
    file = tmp_path / "client.properties"
    at = ["-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect]
    at += ["--log-level", "debug"]  # else kazoo logs errors only
    file.write_text("zookeeper.username=bob\nzookeeper.password=bob-secret\n")
    command = ("group", "delete", group, "--yes", *at, "-F", str(file))
    done = await asyncio.to_thread(cli, *command)
    assert done.code == 1
    assert f"the node /consumers/{group} refuses" in done.err, done.err
    assert "zookeeper.username" in done.err
    file.write_text(f"zookeeper.username=alice\nzookeeper.password={SECRET}\n")
    done = await asyncio.to_thread(cli, *command)
    assert done.code == 0, done.err


async def test_doctor_names_the_node_that_it_may_not_read(
    cluster: RealCluster, unique_topic: UniqueTopic, cli: RunCommand, tmp_path: Path
) -> None:
    path = f"/consumers/{unique_topic('g')}/offsets"
    with kazoo(cluster, auth_data=[ALICE]) as client:
        client.ensure_path(path)
        client.set_acls(path, CREATOR_ALL_ACL)
    file = tmp_path / "client.properties"
    at = ["-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect]
    at += ["--log-level", "debug"]  # else kazoo logs errors only

    def refusals() -> list[dict[str, str]]:
        done = cli("doctor", *at, "-F", str(file), "--format", "json")
        found = json.loads(done.out)["findings"]
        return [one for one in found if path in one["why"]]

    file.write_text("")
    try:
        [finding] = await asyncio.to_thread(refusals)
        assert finding["code"] == "no-permission"
        assert "zookeeper.username" in finding["action"]
        file.write_text(f"zookeeper.username=alice\nzookeeper.password={SECRET}\n")
        assert await asyncio.to_thread(refusals) == []
    finally:
        with kazoo(cluster, auth_data=[ALICE]) as client:
            client.delete(path)  # other tests read all nodes of this cluster


# --- SASL and TLS ---------------------------------------------------------------------------------


@contextmanager
def secured(version: str, *, tls: bool = False) -> Iterator[RealCluster]:
    """Run a cluster whose ZooKeeper knows alice."""
    require_real_brokers()
    with RealCluster(version, ssl=tls, zookeeper_users={"alice": SECRET}) as cluster:
        yield cluster


@pytest.mark.skipif(
    importlib.util.find_spec("puresasl") is None, reason="kazoo's SASL needs pure-sasl"
)
async def test_sasl_user_of_the_jaas_file_is_let_in(unique_topic: UniqueTopic) -> None:
    """By DIGEST-MD5, on the ZooKeeper 3.4 of 0.9.0.1."""
    topic, group = unique_topic(), unique_topic("g")
    with secured("0.9.0.1") as cluster:
        async with AIOKafkaAdminClient(**options_of(cluster, **SASL)) as admin:
            await admin.create_topics([NewTopic(topic, 1, 1)])
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"tea")
        alice = options_of(cluster, **SASL, set_acl=True)
        assert await consume_one(topic, group, alice) == b"tea"
        assert acl_of(cluster, f"/consumers/{group}/offsets/{topic}/0") == [
            ("sasl", "alice", ("ALL",)),
            ("world", "anyone", ("READ",)),
        ]
        wrong = {"sasl_options": {**SASL["sasl_options"], "password": "wrong"}}
        async with AIOKafkaAdminClient(**options_of(cluster, **wrong)) as admin:
            with refuses(AuthenticationFailedError, "SASL user 'alice'", "zookeeper_options"):
                await admin.create_topics([NewTopic(unique_topic(), 1, 1)])
        with refuses(AuthenticationFailedError, "SASL user 'alice'"):
            await consume_one(topic, group, options_of(cluster, **wrong))


async def test_zookeeper_by_tls(unique_topic: UniqueTopic) -> None:
    """On the ZooKeeper 3.8 of 3.9.1."""
    with secured("3.9.1", tls=True) as cluster:
        topic = unique_topic()
        await asyncio.to_thread(cluster.create_topic, topic)
        options = options_of(cluster, use_ssl=True, ca=str(cluster.ca_path), **DIGEST)
        options["zookeeper_connect"] = cluster.zookeeper_tls_connect
        async with AIOKafkaAdminClient(**options) as admin:
            nodes, errors = await admin.describe_cluster_nodes()
            assert topic in nodes
            assert not errors
        async with AIOKafkaConsumer(
            group_id=unique_topic("g"), offsets_storage="zookeeper", **options
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): 0})
        # The certificate isn't trusted, plain bytes at the port for TLS, TLS at the other one.
        plain, tls = cluster.zookeeper_connect, cluster.zookeeper_tls_connect
        for address, security, kind, text in (
            (tls, {"use_ssl": True}, CertificateError, "the TLS handshake failed: self-signed"),
            (tls, None, KafkaConnectionError, "doesn't respond as ZooKeeper"),
            (plain, {"use_ssl": True}, KafkaConnectionError, "the TLS handshake failed"),
        ):
            options |= {"zookeeper_connect": address, "zookeeper_options": security}
            async with AIOKafkaAdminClient(**options | {"request_timeout_ms": 3000}) as admin:
                with refuses(kind, text):
                    await admin.describe_cluster_nodes()
