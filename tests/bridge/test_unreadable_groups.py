"""Junk in ZooKeeper stops a cut-over of a real 0.8.2.2, and a rollback beyond the copy fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kazoo.client import KazooClient

from tests._tools.cli.conftest import RunCommand
from tests.bridge.hand_copy import HandCopy, create_topics, write_config
from tests.bridge.test_groups import COUNT, write_source
from tests.brokers import RealCluster
from tests.brokers.waiting import wait_for

PARTITIONS = 3


@pytest.fixture
def zookeeper(source: RealCluster) -> Iterator[KazooClient]:
    client = KazooClient(source.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


class GroupAtTarget:
    """A group at the target, as another client sees and moves it."""

    def __init__(self, target: RealCluster, group: str, topic: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": target.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
        }
        self._topic = topic

    def committed(self) -> list[int]:
        """Return the offset of each partition; -1001 for none."""
        tps = [confluent_kafka.TopicPartition(self._topic, one) for one in range(PARTITIONS)]
        consumer = confluent_kafka.Consumer(self._settings)
        try:
            return [tp.offset for tp in consumer.committed(tps, 30)]
        finally:
            consumer.close()

    def write_and_commit_end(self, partition: int, count: int) -> int:
        """Write messages that the source doesn't have, and commit the end behind them."""
        producer = confluent_kafka.Producer(self._settings | {"group.id": ""})
        for number in range(count):
            producer.produce(self._topic, b"new %d" % number, partition=partition)
        assert not producer.flush(30)
        consumer = confluent_kafka.Consumer(self._settings)
        try:
            tp = confluent_kafka.TopicPartition(self._topic, partition)
            _, end = consumer.get_watermark_offsets(tp, 30)
            tp = confluent_kafka.TopicPartition(self._topic, partition, end)
            wait_for(lambda: self._commit(consumer, tp), 30, f"a commit of {tp}")
            return end
        finally:
            consumer.close()

    def _commit(
        self, consumer: confluent_kafka.Consumer, tp: confluent_kafka.TopicPartition
    ) -> Any:
        """Commit; return None if the coordinator isn't ready, which librdkafka doesn't repeat."""
        try:
            return consumer.commit(offsets=[tp], asynchronous=False)
        except confluent_kafka.KafkaException as failed:
            if failed.args[0].code() != confluent_kafka.KafkaError.NOT_COORDINATOR:
                raise
            return None


@pytest.mark.real
@pytest.mark.timeout(240)
def test_cutover_waits_for_each_unreadable_node_and_rollback_for_the_copy(
    source: RealCluster,
    target: RealCluster,
    zookeeper: KazooClient,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    topic, group, name = unique_topic("odd"), unique_topic("billing"), unique_topic("b")
    source.create_topic(topic, PARTITIONS)
    create_topics(target.bootstrap_servers, {topic: PARTITIONS})
    more = f'[groups]\ninclude = ["{group}"]\nstore = "zookeeper"\n'
    config = write_config(tmp_path, name, source, target, [topic], more)
    copy = HandCopy(config)
    for partition in range(PARTITIONS):
        messages = asyncio.run(write_source(source, topic, partition))
        copy.copy(topic, partition, messages)
    offsets, owner = f"/consumers/{group}/offsets/{topic}", f"/consumers/{group}/owners/{topic}/0"
    for path, data in (
        (f"{offsets}/0", b"7"),
        (f"{offsets}/1", b"junk"),
        (f"{offsets}/2", b""),
        (f"{offsets}/0-1", b"9"),
        (owner, b"nobody"),
    ):
        zookeeper.create(path, data, makepath=True)
    at_target = GroupAtTarget(target, group, topic)

    def cut_over() -> tuple[int, str, str]:
        """Return the exit code, and the last step with its text."""
        options = ("--execute", "--no-verify", "--quiet", "0.1", "--format", "json")
        done = cli("bridge", "cutover", str(config.path), *options)
        assert "Traceback" not in done.err
        last = done.json[-1]
        assert (done.code == 0) == last["ready"]
        return done.code, last["step"], last["detail"]

    code, step, detail = cut_over()
    assert (code, step) == (1, "consumers")
    assert f"{owner} holds b'nobody'; expected the id of a live member" in detail
    zookeeper.delete(owner)

    code, step, detail = cut_over()
    assert (code, step) == (1, "groups")
    wrong = {f"{offsets}/1": "b'junk'", f"{offsets}/2": "b''"}
    for number, (path, held) in enumerate(wrong.items(), start=1):
        assert f"{group}, {topic}/{number}: unreadable: ZooKeeper" in detail
        assert f"the node {path} holds {held}; expected an offset. Write the offset" in detail
    assert f"{group}: unreadable: ZooKeeper" in detail
    assert f"the node {offsets}/0-1 isn't named after a partition" in detail
    assert "/-1" not in detail
    done = cli("bridge", "groups", str(config.path), "--format", "json")
    found = [(row["topic"], row["partition"], row["outcome"]) for row in done.json]
    assert done.code == 1
    assert found == [
        (None, None, "unreadable"),
        (topic, 0, "move"),
        (topic, 1, "unreadable"),
        (topic, 2, "unreadable"),
    ]

    zookeeper.delete(f"{offsets}/0-1")
    zookeeper.set(f"{offsets}/1", b"%d" % COUNT)
    code, step, detail = cut_over()
    assert (code, step) == (1, "groups")
    assert detail.count("unreadable") == 1
    assert at_target.committed() == [confluent_kafka.OFFSET_INVALID] * PARTITIONS
    zookeeper.set(f"{offsets}/2", b"0")
    code, step, detail = cut_over()
    assert (code, step) == (0, "carried over")
    assert detail.startswith("3 offsets committed at the target")
    assert at_target.committed() == [7, COUNT, 0]

    # The group reads at the target what the source doesn't have.
    beyond = at_target.write_and_commit_end(1, 5)
    assert beyond > COUNT
    rollback = ("bridge", "cutover", str(config.path), "--rollback", "--format", "json")
    zookeeper.set(f"{offsets}/1", b"11")
    done = cli(*rollback)
    assert done.code == 1
    assert "1 offset not moved: the groups have read messages that only the target has" in done.err
    assert [row["outcome"] for row in done.json] == ["same", "beyond", "same"]
    assert zookeeper.get(f"{offsets}/1")[0] == b"11"
    done = cli(*rollback, "--beyond-copy")
    assert (done.code, [row["outcome"] for row in done.json]) == (0, ["same", "move", "same"])
    assert zookeeper.get(f"{offsets}/1")[0] == b"%d" % COUNT
