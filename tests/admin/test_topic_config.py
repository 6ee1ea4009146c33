"""Topic configs are checked: a broker with a value that it can't parse doesn't start any more."""

from __future__ import annotations

import pytest

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.admin.topic_config import TOPIC_CONFIGS, check_configs
from aiokafka08.errors import InvalidConfigurationError, UnsupportedVersionError


def test_config_unknown_to_the_line_raises() -> None:
    configs = {"compression.type": "gzip"}
    check_configs("t", configs, BrokerLine.V0_9)
    check_configs("t", configs, BrokerLine.V0_10)
    with pytest.raises(InvalidConfigurationError, match=r"'compression.type' on the 0\.8\.2 line"):
        check_configs("t", configs, BrokerLine.V0_8_2)
    check_configs("t", {"of.a.later.release": "x"}, BrokerLine.V0_10)


def test_topic_configs_on_0_8_0_raise() -> None:
    check_configs("t", {}, BrokerLine.V0_8_0)
    with pytest.raises(UnsupportedVersionError, match="no topic configs"):
        check_configs("t", {"retention.ms": "1"}, BrokerLine.V0_8_0)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention.ms", "1h", "an integer from 0 to 9223372036854775807: brokers of 0.8 delete "),
        ("retention.ms", "-1", "an integer from 0"),
        ("retention.ms", "", "an integer"),
        ("retention.ms", str(2**63), "an integer"),
        ("segment.bytes", str(2**31), "an integer from 14 to 2147483647"),
        ("segment.bytes", "1", "an integer from 14"),
        ("min.insync.replicas", "0", "an integer from 1"),
        ("cleanup.policy", "compress", "delete or compact"),
        ("cleanup.policy", "compact,delete", "delete or compact"),
        ("min.cleanable.dirty.ratio", "2", "a number from 0 to 1"),
        ("unclean.leader.election.enable", "yes", "true or false"),
    ],
)
def test_value_that_brokers_cannot_parse_raises(name: str, value: str, expected: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        check_configs("t", {name: value}, BrokerLine.V0_8_2)
    assert f"topic 't': {name}={value!r}; expected {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "createtime"),
        ("message.format.version", "new"),
        ("leader.replication.throttled.replicas", "all"),
        ("cleanup.policy", "compact, delete"),
    ],
)
def test_wrong_value_of_a_later_config_raises(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=name):
        check_configs("t", {name: value}, BrokerLine.V0_10)


def test_usual_values_pass() -> None:
    check_configs("t", {"retention.ms": "-1"}, BrokerLine.V0_9)
    usual = {
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.5",
        "segment.bytes": "1073741824",
        "max.message.bytes": "1000012",
    }
    for line in TOPIC_CONFIGS:
        if line is not BrokerLine.V0_8_0:
            check_configs("t", usual, line)
    newer = {
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
        "message.format.version": "0.10.0-IV1",
        "leader.replication.throttled.replicas": "0:1,1:2",
    }
    check_configs("t", newer, BrokerLine.V0_10)
