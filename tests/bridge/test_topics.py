"""Which topics are created and grown at the target, and with which settings."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import AsyncMock, Mock, create_autospec

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError, TargetError, TargetUnavailableError
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.target.own_topics import (
    OWN_CONFIG,
    create_own_topics,
    own_batch_limit,
    own_topic_problems,
)
from aiokafka08.bridge.target.target_cluster import RefusedTopic, Target, TopicSpec
from aiokafka08.bridge.target.topic_creation import TargetTopics
from aiokafka08.bridge.target.topic_plan import (
    LEAST_MESSAGE_BYTES,
    TopicPlan,
    plan_topics,
    refused_by_target,
    target_config,
)
from aiokafka08.errors import KafkaConfigurationError, KafkaError


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


async def test_own_topics_are_created_with_their_settings() -> None:
    target = create_autospec(Target, instance=True)
    target.refused_topics.return_value = {}
    target.own_topic_config.return_value = {}
    await create_own_topics(config(), target, {}, BridgeRun())
    created = [one.args[0] for one in target.create_topic.await_args_list]
    assert [one.name for one in created] == [config().state_topic, config().offsets_topic]
    assert [one.config for one in created] == [OWN_CONFIG, OWN_CONFIG]


async def test_own_topics_that_exist_get_the_settings_they_lack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of = config()
    target = create_autospec(Target, instance=True)
    target.add_topic_config.side_effect = [["segment.ms=600000"], TargetError("no permission")]
    target.own_topic_config.return_value = {"cleanup.policy": "compact"}
    with caplog.at_level("INFO"):
        await create_own_topics(of, target, {of.state_topic, of.offsets_topic}, BridgeRun())
    assert not target.create_topic.await_args_list
    assert [one.args for one in target.add_topic_config.await_args_list] == [
        (of.state_topic, OWN_CONFIG),
        (of.offsets_topic, OWN_CONFIG),
    ]
    done, failed = caplog.messages
    assert done.endswith(f"topic {of.state_topic!r} now has segment.ms=600000")
    assert "segment.bytes=8388608" in failed
    assert failed.endswith("Set them by hand: no permission")


async def test_start_goes_on_if_settings_may_not_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The permission to describe the copies doesn't cover the topics of the bridge.

    The log says so once in a process, and `plan` tells it too.
    """
    of, run = config(), BridgeRun()
    there = {of.state_topic, of.offsets_topic}
    target = create_autospec(Target, instance=True)
    denied = TargetError("TOPIC_AUTHORIZATION_FAILED")
    target.add_topic_config.side_effect = denied
    target.own_topic_config.side_effect = target.topic_configs.side_effect = denied
    target.refused_topics.return_value = {}
    for _ in range(2):
        await create_own_topics(of, target, there, run)
        assert await own_batch_limit(of, target) is None
    unknown = [
        f"the settings of topic {name!r} at the target aren't known: TOPIC_AUTHORIZATION_FAILED. "
        "The bridge needs cleanup.policy=compact, and a max.message.bytes of at least 99328"
        for name in (of.state_topic, of.offsets_topic)
    ]
    assert [one for one in caplog.messages if "aren't known" in one] == [
        f"{of.client_id}: {text}" for text in unknown
    ]
    assert len(caplog.messages) == 4
    assert await own_topic_problems(of, target, there) == ([], unknown)


async def test_limit_that_the_target_leaves_out_is_todays_default() -> None:
    """Not all services that speak Kafka's protocol return each setting."""
    of, target = config(), create_autospec(Target, instance=True)
    target.topic_configs.side_effect = lambda names: {name: {} for name in names}
    source = create_autospec(SourceReader, instance=True)
    source.partition_counts.return_value = {"orders": 1}
    topics = TargetTopics(of, source, target, CopyStatus(), BridgeRun())
    assert await topics.batch_limit({"orders"}) == LEAST_MESSAGE_BYTES
    assert await own_batch_limit(of, target) == LEAST_MESSAGE_BYTES


async def test_hidden_setting_of_the_target_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"cleanup.policy": Mock(value="compact"), "max.message.bytes": Mock(value=None)}
    monkeypatch.setattr(Target, "_config_entries", AsyncMock(return_value={"orders": entries}))
    target = Target(config())
    assert await target.topic_configs(["orders"]) == {"orders": {"cleanup.policy": "compact"}}


async def test_start_waits_until_each_broker_knows_a_new_topic() -> None:
    of, target = config(), create_autospec(Target, instance=True)
    target.refused_topics.return_value = {}
    away = TargetUnavailableError("UNKNOWN_TOPIC_OR_PART")
    target.own_topic_config.side_effect = [away, {}, {}]
    await create_own_topics(of, target, {}, BridgeRun())
    assert target.own_topic_config.await_count == 3


async def test_other_cleanup_policy_is_logged_once_in_a_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of, run = config(), BridgeRun()
    target = create_autospec(Target, instance=True)
    target.add_topic_config.return_value = []
    target.own_topic_config.return_value = {"cleanup.policy": "delete"}
    for _ in range(2):
        await create_own_topics(of, target, {of.state_topic, of.offsets_topic}, run)
    assert [one.partition(" at ")[0] for one in caplog.messages] == [
        f"{of.client_id}: topic {name!r}" for name in (of.state_topic, of.offsets_topic)
    ]


@pytest.mark.parametrize(
    "code",
    ["POLICY_VIOLATION", "TOPIC_AUTHORIZATION_FAILED", "INVALID_REPLICATION_FACTOR"],
)
async def test_without_a_topic_to_create_only_settings_count(code: str) -> None:
    """A policy about names, a permission, a broker that is down: all topics are there."""
    of = config('[target.topic_config]\n"retention.ms" = 7')
    target = create_autospec(Target, instance=True)
    name = f"{of.client_id}.new-topic"
    target.refused_topics.return_value = {name: RefusedTopic(code, "no")}
    nothing = TopicPlan((), {}, {})
    assert await refused_by_target(of, target, nothing) == {}
    wanted = TopicPlan((TopicSpec(name, 1, -1, {}),), {}, {})
    assert [one.code for one in (await refused_by_target(of, target, wanted)).values()] == [code]
    target.refused_topics.return_value = {name: RefusedTopic("INVALID_CONFIG", "no")}
    assert list(await refused_by_target(of, target, nothing)) == [name]


@pytest.mark.parametrize("code", ["POLICY_VIOLATION", "INVALID_CONFIG"])
@pytest.mark.parametrize(
    ("settings", "refused", "error"),
    [
        ("", {"segment.bytes"}, BridgeError),
        ('"retention.ms" = 7', {"segment.bytes"}, BridgeError),
        ('"retention.ms" = 7', {"retention.ms"}, KafkaConfigurationError),
        ('"retention.ms" = 7', {"segment.bytes", "retention.ms"}, KafkaConfigurationError),
        ('"retention.ms" = 7', set(), BridgeError),  # the names are refused, not the settings
    ],
)
async def test_refused_settings_of_the_file_are_wrong_usage(
    settings: str, refused: set[str], error: type[KafkaError], code: str
) -> None:
    """Settings of the source's topics aren't: `bridge run` ends with 1 for these, else with 2."""

    async def check(specs: Sequence[TopicSpec]) -> dict[str, RefusedTopic]:
        found = [one.name for one in specs if not refused or refused & one.config.keys()]
        return {name: RefusedTopic(code, "no") for name in found}

    of = config(f"[target.topic_config]\n{settings}")
    source = create_autospec(SourceReader, instance=True)
    source.partition_counts.return_value = {"orders": 1}
    source.topic_configs.return_value = {"orders": {"segment.bytes": "100000"}}
    target = create_autospec(Target, instance=True)
    target.refused_topics.side_effect = check
    topics = TargetTopics(of, source, target, CopyStatus(), BridgeRun())
    with pytest.raises(error, match=f"the target refuses to create orders: {code}: no") as raised:
        await topics.check({}, may_come_later=False)
    assert type(raised.value) is error


@pytest.mark.parametrize("code", ["POLICY_VIOLATION", "INVALID_CONFIG"])
async def test_own_topics_are_created_though_settings_are_refused(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A hosted cluster may allow few settings; without compaction the topics would lose state."""
    of = config()
    target = create_autospec(Target, instance=True)
    target.refused_topics.return_value = {
        of.state_topic: RefusedTopic(code, "segment.ms may not be set")
    }
    target.own_topic_config.return_value = {}
    await create_own_topics(of, target, {}, BridgeRun())
    created = {one.args[0].name: one.args[0].config for one in target.create_topic.await_args_list}
    assert created == {of.state_topic: {"cleanup.policy": "compact"}, of.offsets_topic: OWN_CONFIG}
    (told,) = caplog.messages
    assert f"each start reads topic {of.state_topic!r}, which grows for long without" in told
    assert told.endswith("Set them by hand: segment.ms may not be set")


def test_grown_topic_of_ours_grows_at_the_target() -> None:
    plan = plan_topics(config(), {"orders": 4}, {"orders": 2}, {}, {"orders"})
    assert (plan.create, dict(plan.grow), dict(plan.refused)) == ((), {"orders": 4}, {})


def test_names_that_collide_at_the_target_are_refused() -> None:
    source = {"o.b": 1, "o_b": 1, "o.c": 1, "o": 1}
    plan = plan_topics(config(), source, {"o_c": 1}, {}, set())
    assert [one.name for one in plan.create] == ["o", "o.b"]
    assert "'o_b' can't be created: it collides with 'o.b'" in plan.refused["o_b"]
    assert "'o.c' can't be created: it collides with 'o_c'" in plan.refused["o.c"]


def test_name_that_is_too_long_for_the_target_is_refused() -> None:
    plan = plan_topics(config(), {"o" * 250: 1}, {}, {}, set())
    assert not plan.create
    assert "expected at most 249" in plan.refused["o" * 250]


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
