"""Which topics are created and grown at the target, and with which settings."""

from __future__ import annotations

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.target_cluster import TopicSpec
from aiokafka08.bridge.topics import plan_topics, target_config


def config(more: str = "") -> BridgeConfig:
    return parse_config(
        'name = "x"\n[source]\nbootstrap = "a:1"\n[topics]\ninclude = ["o.*"]\n'
        f'[target]\nbootstrap = "b:1"\n{more}'
    )


def test_missing_topic_is_created_with_its_settings() -> None:
    plan = plan_topics(
        config('replication_factor = 3\n[target.topic_config]\n"retention.ms" = 7'),
        {"orders": 4, "tea": 1},
        {},
        {"orders": {"cleanup.policy": "dedupe"}},
        set(),
    )
    expected = {"cleanup.policy": "compact", "retention.ms": "7"}
    assert plan.create == (TopicSpec("orders", 4, 3, expected),)


def test_grown_topic_of_ours_grows_at_the_target() -> None:
    plan = plan_topics(config(), {"orders": 4}, {"orders": 2}, {}, {"orders"})
    assert (plan.create, dict(plan.grow), dict(plan.refused)) == ((), {"orders": 4}, {})


def test_foreign_topic_with_fewer_partitions_is_refused() -> None:
    plan = plan_topics(config(), {"orders": 4}, {"orders": 2}, {}, set())
    assert not plan.grow
    assert (
        "'orders' has 4 partitions, but 'orders' at the target has only 2" in plan.refused["orders"]
    )


def test_target_topic_may_have_more_partitions() -> None:
    plan = plan_topics(config(), {"orders": 4}, {"orders": 8}, {}, set())
    assert not plan.create
    assert not plan.grow
    assert not plan.refused


def test_batch_limit_is_at_least_todays_default() -> None:
    assert target_config({"max.message.bytes": "1000"}, 3) == {"max.message.bytes": "1048588"}
    assert target_config({"max.message.bytes": "5000000"}, 3) == {"max.message.bytes": "5000000"}


def test_tuning_of_old_brokers_is_left_out() -> None:
    found = {"flush.ms": "1", "segment.bytes": "100000", "min.insync.replicas": "2"}
    assert target_config(found, 1) == {"segment.bytes": "100000"}
    assert target_config(found, 3) == {"segment.bytes": "100000", "min.insync.replicas": "2"}
