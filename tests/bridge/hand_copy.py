"""Copy messages to the target as a bridge does, but transaction by transaction, as a test wants.

So a test chooses where transactions end, aborts some, and plants differences. All calls block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import admin as _admin

from aiokafka08.bridge.config import BridgeConfig, read_config
from aiokafka08.bridge.copy.offset_runs import RunLog, runs_of
from aiokafka08.bridge.copy.run_formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import bridge_text
from tests.brokers import RealCluster
from tests.brokers.waiting import wait_for

confluent_admin: Any = _admin  # its names aren't exported for type checkers

Message = tuple[int, bytes | None, bytes | None]
"""Source offset, key, value."""


def write_config(
    folder: Path,
    name: str,
    source: RealCluster,
    target: RealCluster,
    topics: Sequence[str],
    more: str = "",
) -> BridgeConfig:
    """Write a bridge's file, and return it parsed."""
    path = folder / f"{name}.toml"
    path.write_text(bridge_text(name, source, target, "|".join(topics), more))
    return read_config(path)


def create_topics(
    servers: str, topics: Mapping[str, int], config: Mapping[str, str] | None = None
) -> None:
    """Create topics at the target, and wait until they have leaders."""
    client = confluent_admin.AdminClient({"bootstrap.servers": servers})
    made = client.create_topics(
        [
            confluent_admin.NewTopic(name, count, 1, config=dict(config or {}))
            for name, count in topics.items()
        ]
    )
    for future in made.values():
        future.result(30)

    def have_leaders() -> bool:
        """Return whether the brokers' metadata, which may lag behind the result, has them."""
        known = client.list_topics(timeout=30).topics
        return all(
            name in known
            and len(known[name].partitions) == count
            and all(one.leader >= 0 for one in known[name].partitions.values())
            for name, count in topics.items()
        )

    wait_for(have_leaders, 30, f"leaders of {', '.join(topics)}")


class HandCopy:
    """A bridge of one transactional producer, moved by hand."""

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config
        self._logs: dict[TopicPartition, RunLog] = {}
        self._producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": config.target.bootstrap,
                "transactional.id": config.transactional_id(0),
                "linger.ms": 5,
            }
        )
        self._producer.init_transactions(30)
        create_topics(
            config.target.bootstrap, {config.offsets_topic: 1}, {"cleanup.policy": "compact"}
        )

    def copy(
        self, topic: str, partition: int, messages: Sequence[Message], *, abort: bool = False
    ) -> None:
        """Copy messages in one transaction, with their runs and the position; or abort it."""
        tp = TopicPartition(topic, partition)
        target = self._config.topics.target_name(topic)
        acknowledged: list[int] = []
        producer = self._producer
        producer.begin_transaction()
        for _, key, value in messages:
            producer.produce(
                target,
                value,
                key,
                partition,
                on_delivery=lambda error, done: acknowledged.append(done.offset()),
            )
        assert not producer.flush(30)
        assert acknowledged == list(range(acknowledged[0], acknowledged[0] + len(messages)))
        runs = runs_of([offset for offset, _, _ in messages], acknowledged[0])
        records, log = self._logs.get(tp, RunLog()).append(runs)
        for source, some in records:
            key = encode_runs_key(RunsKey(topic, partition, source))
            producer.produce(
                self._config.offsets_topic, None if some is None else encode_runs(some), key, 0
            )
        group = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._config.target.bootstrap,
                "group.id": self._config.position_group,
            }
        )
        try:
            producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition(target, partition, messages[-1][0] + 1)],
                group.consumer_group_metadata(),
                30,
            )
        finally:
            group.close()
        if abort:
            # An abort purges unsent records, and may wait for their reports until it times out.
            assert not producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            self._logs[tp] = log
