"""`read_offsets_topic()` on real brokers: versions of records, compression, compaction, tombstones.

Also here: reading creates nothing, and what becomes of a deleted group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient, StoredGroup, offsets_topic
from aiokafka08.admin.offsets_topic import OFFSETS_TOPIC
from aiokafka08.errors import IllegalStateError
from aiokafka08.protocol.offsets_topic import decode_record_key
from tests.brokers.cluster import RealCluster
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

NewName = Callable[..., str]
COMMITS = 200

VERSIONS = {
    # release: versions of an offset's key and value, of a group's key and value (brokers.md 8.15)
    "0.8.2.2": {(0, 0)},
    "0.9.0.1": {(1, 1), (2, 0)},
    "0.10.2.2": {(1, 1), (2, 1)},
    "3.9.1": {(1, 3), (2, 3)},
}


def start_cluster(version: str) -> RealCluster:
    """Return a cluster that compresses the offsets topic, and compacts it at once.

    On 0.8.2.2 wrappers that are larger than their content end the cleaner (brokers.md 5.15).
    """
    return RealCluster(
        version,
        properties={
            "offsets.topic.num.partitions": 1,
            "offsets.topic.compression.codec": 1,
            "offsets.topic.segment.bytes": 4096,
            "offsets.retention.check.interval.ms": 500,
            "log.cleaner.enable": str(version != "0.8.2.2").lower(),
            "log.cleaner.min.cleanable.ratio": 0.01,
            "log.cleaner.backoff.ms": 100,
        },
    )


def nodes(cluster: RealCluster) -> dict[str, int]:
    """Return all nodes of ZooKeeper, with their last change."""
    session = KazooClient(cluster.zookeeper_connect)
    session.start()
    found: dict[str, int] = {}
    paths = ["/"]
    try:
        while paths:
            path = paths.pop()
            children, stat = session.get_children(path, include_data=True)
            if not path.startswith("/zookeeper") and not stat.ephemeralOwner:
                found[path] = stat.mzxid
                paths += [f"{path.rstrip('/')}/{one}" for one in children]
    finally:
        session.stop()
        session.close()
    return found


async def records_in_log(cluster: RealCluster) -> int:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    tp = TopicPartition(OFFSETS_TOPIC, 0)
    consumer.assign([tp])
    async with consumer:
        [end] = (await consumer.end_offsets([tp])).values()
        count = 0
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                count += len(records)
    return count


async def read_everything(admin: AIOKafkaAdminClient, group: str) -> None:
    """Make all the calls that read groups."""
    groups = await admin.list_stored_groups()
    possible = await admin.possible_groups([group])
    await admin.list_stored_offsets([*groups, *possible])
    await admin.list_group_lags([group])
    await admin.list_group_lags()
    await admin.describe_stored_groups(possible)
    await admin.list_log_bounds()
    await admin.read_offsets_topic()
    await admin.delete_stored_group(StoredGroup(group, "kafka", ""))
    if admin._connection.has_coordinators():
        await admin.describe_consumer_groups([group])


@pytest.mark.parametrize("version", list(VERSIONS))
async def test_offsets_topic_is_read_to_its_end(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = seen_versions(monkeypatch)
    with start_cluster(version) as cluster:
        await asyncio.to_thread(cluster.create_topic, "orders", 2)
        tps = [TopicPartition("orders", number) for number in range(2)]
        async with AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=cluster.zookeeper_connect,
        ) as admin:
            before = await asyncio.to_thread(nodes, cluster)
            await read_everything(admin, "nobody")
            assert await asyncio.to_thread(nodes, cluster) == before
            if version == "0.9.0.1":  # it doesn't apply offsets.topic.segment.bytes
                config = {"cleanup.policy": "compact", "segment.bytes": 4096}
                await asyncio.to_thread(cluster.create_topic, OFFSETS_TOPIC, config=config)

            options: dict[str, Any] = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "enable_auto_commit": False,
            }
            idle = AIOKafkaConsumer(group_id="idle", offsets_storage="kafka", **options)
            idle.assign(tps)
            async with idle:
                for _ in range(COMMITS):
                    await idle.commit({tps[0]: (0, "first")})
                await idle.commit({tps[1]: (0, "größe")})
            topic = await admin.read_offsets_topic()
            offsets = topic.offsets["idle"]
            assert {tp: (one.offset, one.metadata) for tp, one in offsets.items()} == {
                tps[0]: (0, "first"),
                tps[1]: (0, "größe"),
            }
            assert offsets[tps[1]].committed_at_ms >= offsets[tps[0]].committed_at_ms > 1e12

            if version != "0.8.2.2":
                member = AIOKafkaConsumer("orders", group_id="live", client_id="reader", **options)
                async with member:
                    state = (await admin.read_offsets_topic()).groups["live"]
                    assert (state.protocol_type, state.protocol) == ("consumer", "roundrobin")
                    assert [one.client_id for one in state.members] == ["reader"]
                    with pytest.raises(IllegalStateError, match=r"live: .*reader"):
                        await admin.delete_stored_group(StoredGroup("live", "kafka", ""))
                    await member.commit({tps[0]: 0})
                assert versions == VERSIONS[version]

                async def it_is_compacted() -> bool:
                    return await records_in_log(cluster) < COMMITS

                await eventually(it_is_compacted, 40, 0.2)
                fresh = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
                async with fresh:
                    assert (await fresh.read_offsets_topic()).offsets["idle"] == offsets
                await it_is_deleted(admin, "idle")
            else:
                assert versions == VERSIONS[version]
            assert {one.group for one in await admin.list_stored_groups()} >= {
                "idle" if version == "0.8.2.2" else "live"
            }


def seen_versions(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int]]:
    """Return a set that gets the versions of the keys and values that are decoded from now on."""
    seen: set[tuple[int, int]] = set()
    decode = offsets_topic._decode

    def decode_and_note(key: bytes, value: bytes, client_id: str) -> Any:
        assert decode_record_key(key) is not None
        seen.add((int.from_bytes(key[:2]), int.from_bytes(value[:2])))
        return decode(key, value, client_id)

    monkeypatch.setattr(offsets_topic, "_decode", decode_and_note)
    return seen


async def it_is_deleted(admin: AIOKafkaAdminClient, group: str) -> None:
    """Delete a group, and wait until the topic shows its tombstones."""
    deletion = await admin.delete_stored_group(StoredGroup(group, "kafka", ""))
    assert deletion.outcome in ("deleted", "expiring")

    async def it_is_gone() -> bool:
        listed = {one.group for one in await admin.list_stored_groups()}
        return group not in listed and group not in (await admin.read_offsets_topic()).offsets

    await eventually(it_is_gone, 30, 0.1)
    assert await admin.list_group_lags([group]) == []
    again = await admin.delete_stored_group(StoredGroup(group, "kafka", ""))
    assert again.outcome == "missing"
