"""The console on real brokers: groups in both stores, settings in ZooKeeper, and no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08.admin import AIOKafkaAdminClient
from tests._tools.cli.conftest import RunCommand, cli
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.log_entries import entries
from tests.console.consoles import (
    FORM,
    PAYLOADS,
    change_of,
    confirmed,
    fields_of,
    json_of,
    opened,
    post,
    text_of,
)
from tests.support.waiting import eventually
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
            plan = f"/group/reset?name={group}&to=earliest&store="
            for path in (f"{plan}kafka", f"{plan}zookeeper"):
                assert "is live" in text_of((await client.get(path)).text)
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


@pytest.mark.real
@pytest.mark.release("0.8.2.2")
@pytest.mark.timeout(180)
async def test_topics_and_groups_in_zookeeper_are_changed_as_confirmed(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    servers, zookeeper = cluster.bootstrap_servers, cluster.zookeeper_connect
    topic, group = unique_topic("made"), unique_topic("billing")
    change, tp = f"/topics/{topic}/change", TopicPartition(topic, 0)
    options: dict[str, Any] = {"zookeeper_connect": zookeeper, "allow": ["produce,reset,topics"]}
    async with (
        AIOKafkaAdminClient(bootstrap_servers=servers, zookeeper_connect=zookeeper) as admin,
        opened(servers, **options) as client,
    ):

        async def is_shown(path: str, text: str) -> None:
            async def has_text() -> bool:
                return text in (await client.get(path)).text

            await eventually(has_text)

        new = {"name": topic, "partitions": "2", "replicas": "1"}
        too_many = await post(client, "/create-topic", **{**new, "replicas": "9"})
        assert "replicas=9; expected 1 to 1" in text_of(too_many.text)
        assert topic not in await admin.list_topics()
        asked = await post(client, "/create-topic", **new)
        assert topic not in await admin.list_topics()
        assert "Done. The topic was created" in await confirmed(client, asked)
        assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 2
        again = await post(client, "/create-topic", **new)
        assert "exists already" in text_of(again.text)

        await is_shown(f"/topics/{topic}", "Partitions")
        asked = await post(client, f"/topics/{topic}/produce", partition="0", value="tea")
        assert "offset 0 in partition 0" in await confirmed(client, asked)

        retention = {"do": "configure", "name": "retention.ms", "value": "3600000"}
        wrong = await post(client, change, **{**retention, "value": "x"})
        assert "retention.ms=&#39;x&#39;; expected" in wrong.text
        asked = await post(client, change, **retention)
        assert await admin.list_topic_overrides([topic]) == {topic: {}}
        assert "Done." in await confirmed(client, asked)
        assert await admin.list_topic_overrides([topic]) == {topic: {"retention.ms": "3600000"}}
        stale = await post(client, change, **{**retention, "value": "7200000"})
        await admin.alter_topic_overrides(topic, {"retention.ms": 1000000})
        assert "retention.ms is '1000000' now, not '3600000'" in await confirmed(client, stale)
        asked = await post(client, change, **{**retention, "value": ""})
        assert "the brokers' default" in await confirmed(client, asked)
        assert await admin.list_topic_overrides([topic]) == {topic: {}}

        asked = await post(client, change, do="grow", partitions="3")
        assert "Done." in await confirmed(client, asked)
        assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 3
        assert (
            "expected more than its 3"
            in (await post(client, change, do="grow", partitions="3")).text
        )

        await admin.reset_consumer_group_offsets(group, {tp: 0}, offsets_storage="zookeeper")
        await is_shown(f"/group?name={group}", "Plan a reset")
        page = await client.get("/group/reset", params={"name": group, "to": "latest"})
        data = {"csrf": fields_of(page.text)["csrf"]}
        done = await client.post(change_of(page.text), data=data, headers=FORM)
        assert "1 offset committed" in (await client.get(done.headers["location"])).text
        stored = await admin.list_consumer_group_offsets(group, offsets_storage="zookeeper")
        assert stored[tp].offset == 1

        asked = await post(client, change, do="delete")
        unconfirmed = await post(client, asked.headers["location"], typed="another")
        assert unconfirmed.status_code == 400
        assert "what was typed isn't the topic's name" in text_of(unconfirmed.text)
        assert topic in await admin.list_topics()
        assert "The topic was deleted" in await confirmed(client, asked, typed=topic)
        assert topic not in await admin.list_topics()


@pytest.mark.real
@pytest.mark.release("0.8.0")
@pytest.mark.timeout(180)
async def test_plan_on_0_8_0_leaves_no_error_in_the_log_of_a_broker(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    def errors() -> list[str]:
        return [one for one in entries(cluster.log(0)) if "] ERROR " in one]

    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.0")
    servers, zookeeper = cluster.bootstrap_servers, cluster.zookeeper_connect
    topic, group = unique_topic("orders"), unique_topic("billing")
    await asyncio.to_thread(cluster.create_topic, topic)
    tp = TopicPartition(topic, 0)
    async with AIOKafkaAdminClient(bootstrap_servers=servers, zookeeper_connect=zookeeper) as admin:
        await admin.reset_consumer_group_offsets(group, {tp: 0}, offsets_storage="zookeeper")
    before = errors()
    async with opened(servers, zookeeper_connect=zookeeper) as client:
        for query in ({"to": "earliest"}, {"to": "time", "value": "-1h"}):
            page = await client.get("/group/reset", params={"name": group, **query})
            assert f"{topic}/0" in text_of(page.text)
            assert "This is a plan: nothing was changed" in page.text
    assert errors() == before
