"""The admin client's calls about groups of the Scala consumer, in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient, GroupDescription, StoredGroup
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaUnavailableError,
)
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.java_process import JavaProcess
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

NewName = Callable[..., str]
CONSOLE_CONSUMERS = {
    "0.8.0": "kafka.consumer.ConsoleConsumer",
    "0.8.1.1": "kafka.consumer.ConsoleConsumer",
    "0.8.2.2": "kafka.tools.ConsoleConsumer",
}


def new_admin(cluster: RealCluster) -> AIOKafkaAdminClient:
    return AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
    )


async def described(admin: AIOKafkaAdminClient, group: str) -> GroupDescription:
    [response] = await admin.describe_consumer_groups([group])
    [one] = response.groups
    return one


def partitions_of(group: GroupDescription) -> list[set[TopicPartition]]:
    return [
        set(ConsumerProtocolMemberAssignment.decode(member.member_assignment).partitions())
        for member in group.members
    ]


@contextmanager
def scala_consumer(
    cluster: RealCluster, version: str, topic: str, group: str, folder: Path
) -> Iterator[JavaProcess]:
    """Run the high-level consumer of this version in a group, from the first message."""
    config = folder / f"{group}.properties"
    config.write_text(
        f"group.id={group}\nauto.offset.reset=smallest\nauto.commit.interval.ms=100\n"
        f"zookeeper.connect={cluster.zookeeper_connect}\n"
    )
    process = cluster.popen_java(
        CONSOLE_CONSUMERS[version],
        *("--zookeeper", cluster.zookeeper_connect, "--topic", topic),
        *(
            ("--consumer.config", str(config))
            if version == "0.8.2.2"
            else ("--group", group, "--autocommit.interval.ms", "100", "--from-beginning")
        ),
    )
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("version", list(CONSOLE_CONSUMERS))
async def test_scala_group_is_described_and_reset(
    broker_clusters: BrokerClusters, unique_topic: NewName, tmp_path: Path, version: str
) -> None:
    cluster, topic, group = broker_clusters.get(version), unique_topic(), unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(2)]
    await asyncio.to_thread(cluster.create_topic, topic, 2)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(2):
            await (await producer.send_many(topic, [b"v"] * 10, partition=number))
    async with new_admin(cluster) as admin:
        assert (await described(admin, group)).state == "Dead"
        with scala_consumer(cluster, version, topic, group, tmp_path) as scala:

            async def it_owns_both() -> bool:
                assert scala.running, scala.log_tail()
                return partitions_of(await described(admin, group)) == [set(tps)]

            async def all_is_read() -> bool:
                lag = await admin.list_consumer_group_lag(group, tps)
                return lag == dict.fromkeys(tps, 0)

            await eventually(it_owns_both, 60)
            await eventually(all_is_read, 60)
            one = await described(admin, group)
            assert (one.state, one.protocol_type) == ("Stable", "consumer")
            [member] = one.members
            assert member.member_id.startswith(f"{group}_")
            assert ConsumerProtocolMemberMetadata.decode(member.member_metadata).subscription == [
                topic
            ]
            assert (group, "consumer") in await admin.list_consumer_groups()
            with pytest.raises(IllegalStateError, match=f"live: .*{member.member_id}"):
                await admin.reset_consumer_group_offsets(group, {tps[0]: "earliest"})
            await asyncio.to_thread(scala.terminate, 30)

        async def it_has_left() -> bool:  # its session may end after its process
            return not (await described(admin, group)).members

        await eventually(it_has_left, 30)
        assert (await described(admin, group)).state == "Empty"
        found = await admin.list_consumer_group_offsets(group, partitions=tps)
        assert found == dict.fromkeys(tps, OffsetAndMetadata(10, ""))
        done = await admin.reset_consumer_group_offsets(group, {tps[0]: "earliest", tps[1]: 7})
        assert done == {tps[0]: 0, tps[1]: 7}
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=cluster.zookeeper_connect,
            group_id=group,
            enable_auto_commit=False,
        )
        consumer.assign(tps)
        async with consumer:
            assert [await consumer.position(tp) for tp in tps] == [0, 7]


async def test_undecodable_nodes_are_named_beside_the_others(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster, group = broker_clusters.get("0.8.2.2"), unique_topic("g")
    session = KazooClient(cluster.zookeeper_connect)
    session.start()
    try:
        ids = f"/consumers/{group}/ids"
        good = json.dumps({"version": 1, "subscription": {"t": 1}, "pattern": "static"}).encode()
        bad = [b"{garbage", b"[]", b"\xff", b"[" * 100_000, b'{"subscription":{"\\ud800":1}}']
        for name, data in zip("cabdef", [good, *bad], strict=True):
            session.create(f"{ids}/{group}_{name}", data, ephemeral=True, makepath=True)
        session.create(f"/consumers/{group}/owners/t/0", f"{group}_c-0".encode(), makepath=True)
        for number in ("x", "²", "99999999999"):
            session.create(f"/consumers/{group}/owners/t/{number}", b"nobody", makepath=True)
        async with new_admin(cluster) as admin:
            one = await described(admin, group)
            [stored] = await admin.describe_stored_groups([StoredGroup(group, "zookeeper", "")])
        topics = [
            ConsumerProtocolMemberMetadata.decode(member.member_metadata).subscription
            for member in one.members
        ]
        assert topics == [[], [], ["t"], [], [], []]
        assert [one for one in partitions_of(one) if one] == [{TopicPartition("t", 0)}]
        unreadable = [error.text for error in stored.errors]
        odd = [f"{ids}/{group}_{name} holds" for name in "abdef"]
        odd += [f"/consumers/{group}/owners/t/{name} isn't" for name in ("x", "²", "99999999999")]
        assert [any(node in text for text in unreadable) for node in odd] == [True] * 8
        assert len(unreadable) == 8

        for partition, data in enumerate((b"5", b"garbage", b"-5", b"9" * 19)):
            session.create(f"/consumers/{group}/offsets/t/{partition}", data, makepath=True)
        async with new_admin(cluster) as admin:
            [committed] = await admin.list_stored_offsets([StoredGroup(group, "zookeeper", "")])
        assert committed.offsets == {TopicPartition("t", 0): OffsetAndMetadata(5, "")}
        assert {tp.partition: error.text for tp, error in committed.errors.items()} == {
            number: f"ZooKeeper {cluster.zookeeper_connect}: the node /consumers/{group}/offsets/t/"
            f"{number} holds {data!r}; expected an offset. Write the "
            "offset by a group reset: a deleted node counts as no offset"
            for number, data in ((1, b"garbage"), (3, b"9" * 19))
        }
    finally:
        session.stop()
        session.close()


async def test_wrong_group_chroot_or_missing_option_raises(broker_clusters: BrokerClusters) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    async with new_admin(cluster) as admin:
        with pytest.raises(IllegalArgumentError, match="'a/b' can't be a node of ZooKeeper"):
            await admin.describe_consumer_groups(["a/b"])
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers,
        zookeeper_connect=f"{cluster.zookeeper_connect}/nowhere",
    ) as admin:
        with pytest.raises(KafkaUnavailableError, match="no chroot /nowhere"):
            await admin.list_consumer_groups()
    old = broker_clusters.get("0.8.0")
    async with AIOKafkaAdminClient(bootstrap_servers=old.bootstrap_servers) as admin:
        with pytest.raises(KafkaConfigurationError, match="zookeeper_connect="):
            await admin.list_consumer_group_offsets("g")
