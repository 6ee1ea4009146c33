"""The console on real brokers: groups in both stores, settings in ZooKeeper, and no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08.admin import AIOKafkaAdminClient
from tests._tools.cli.conftest import RunCommand, cli
from tests.brokers.fixtures import BrokerClusters
from tests.console.consoles import PAYLOADS, json_of, opened, text_of
from tests.support.zookeeper import UncheckedZookeeper

__all__ = ["cli"]  # the fixture

NewName = Callable[..., str]

LAG_FIELDS = ("group", "store", "topic", "partition", "committed", "end", "lag", "member")


def zookeeper_tree(connect: str) -> dict[str, bytes]:
    """Return the persistent nodes that a consumer, a group or a topic would make."""
    found: dict[str, bytes] = {}
    with temporary_session(UncheckedZookeeper(connect), 10, "test") as client:
        pending = ["/consumers", "/brokers/topics", "/config", "/admin"]
        while pending:
            path = pending.pop()
            if client.exists(path):
                found[path] = client.get(path)[0] or b""
                pending += [f"{path}/{child}" for child in client.get_children(path)]
    return found


@pytest.mark.real
@pytest.mark.release("0.8.2.2")
@pytest.mark.timeout(180)
async def test_groups_of_both_stores_are_those_of_the_command_line(
    broker_clusters: BrokerClusters, unique_topic: NewName, cli: RunCommand
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    servers, zookeeper = cluster.bootstrap_servers, cluster.zookeeper_connect
    topic, group = unique_topic("orders"), unique_topic("billing")
    await asyncio.to_thread(cluster.create_topic, topic, partitions=2)
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for partition in (0, 1):
            await (await producer.send_many(topic, [b"tea"] * 10, partition=partition))
    async with AIOKafkaAdminClient(bootstrap_servers=servers, zookeeper_connect=zookeeper) as admin:
        await admin.alter_topic_overrides(topic, {"retention.ms": "3600000"})
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        zookeeper_connect=zookeeper,
        group_id=group,
        offsets_storage="dual",
        auto_offset_reset="earliest",
        max_poll_records=5,
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
        before = await asyncio.to_thread(zookeeper_tree, zookeeper)
        async with opened(servers, zookeeper_connect=zookeeper) as client:
            pages = {
                store: await json_of(client, "/group", name=group, store=store)
                for store in ("kafka", "zookeeper")
            }
            row = await json_of(client, f"/topics/{topic}")
            for path in ("/", "/topics", f"/topics/{topic}", "/groups", "/group?name=nobody"):
                text_of((await client.get(path)).text)
            for path in (f"/topics/{topic}/messages", f"/topics/{PAYLOADS[0][1:7]}-new/messages"):
                text_of((await client.get(path)).text)
            messages = await json_of(client, f"/topics/{topic}/messages", count="100")
        after = await asyncio.to_thread(zookeeper_tree, zookeeper)
        at = ("-b", servers, "--zookeeper", zookeeper, "--format", "json")
        lags = (await asyncio.to_thread(cli, "group", "lag", group, *at)).json
        described = (await asyncio.to_thread(cli, "group", "describe", group, *at)).json
    shown = [
        {name: one[name] for name in LAG_FIELDS}
        for page in pages.values()
        for one in page["offsets"]
    ]
    order = lambda one: (one["topic"], one["partition"], one["store"])  # noqa: E731
    assert sorted(shown, key=order) == [{name: one[name] for name in LAG_FIELDS} for one in lags]
    members = {one["store"]: one["member"] for one in described if one["member"] is not None}
    assert {
        store: page["member_list"][0]["member"]
        for store, page in pages.items()
        if page["member_list"]
    } == members
    assert pages["zookeeper"]["state"] == "Stable"
    assert row["config"] == {"retention.ms": "3600000"}
    assert row["messages"] == len(messages["messages"]) == 20
    assert after == before
