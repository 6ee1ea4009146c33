"""Check topic configs before they are written to ZooKeeper. Pure.

Nothing else checks them, since brokers only read them from ZooKeeper. A broker of any release that
can't parse a value doesn't start any more (docs/brokers.md 11.5). Names that it doesn't know have
no effect.

Invariant: below 0.10, all brokers of the `BrokerLine` can parse a config that passes, and none of
them deletes what was meant to be kept for ever. From 0.10 on the brokers can parse the configs
whose names this module knows, except `cleanup.policy=compact,delete` on 0.10.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.errors import InvalidConfigurationError, UnsupportedVersionError


class _Kind(NamedTuple):
    """A kind of value: its check, and the expected values for errors."""

    accepts: Callable[[str], object]
    expected: str


def _integer(least: int, bits: int) -> _Kind:
    most = 2 ** (bits - 1) - 1

    def accepts(text: str) -> bool:
        return bool(re.fullmatch(r"-?[0-9]{1,19}", text)) and least <= int(text) <= most

    return _Kind(accepts, f"an integer from {least} to {most}")


def _pattern(pattern: str, expected: str) -> _Kind:
    return _Kind(re.compile(pattern).fullmatch, expected)


def _ratio(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)) and float(text) <= 1


_INT: Final = _integer(0, 32)
_LONG: Final = _integer(0, 64)
_ANY_LONG: Final = _integer(-(2**63), 64)
_RETENTION_OF_0_8: Final = _Kind(
    _LONG.accepts, f"{_LONG.expected}: brokers of 0.8 delete all messages if it is negative"
)
_BOOLEAN: Final = _pattern("true|false", "true or false")
_REPLICAS: Final = _pattern(r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?", "partition:node,… or *")

_OF_0_8_1: Final[Mapping[str, _Kind]] = {
    "cleanup.policy": _pattern("delete|compact", "delete or compact"),
    "delete.retention.ms": _LONG,
    "file.delete.delay.ms": _LONG,
    "flush.messages": _LONG,
    "flush.ms": _LONG,
    "index.interval.bytes": _INT,
    "max.message.bytes": _INT,
    "min.cleanable.dirty.ratio": _Kind(_ratio, "a number from 0 to 1"),
    "retention.bytes": _ANY_LONG,
    "retention.ms": _RETENTION_OF_0_8,
    "segment.bytes": _integer(14, 32),
    "segment.index.bytes": _INT,
    "segment.ms": _LONG,
}
_OF_0_8_2: Final[Mapping[str, _Kind]] = {
    **_OF_0_8_1,
    "min.insync.replicas": _integer(1, 32),
    "segment.jitter.ms": _LONG,
    "unclean.leader.election.enable": _BOOLEAN,
}
_OF_0_9: Final[Mapping[str, _Kind]] = {
    **_OF_0_8_2,
    "compression.type": _pattern(
        "uncompressed|snappy|lz4|gzip|producer", "uncompressed, snappy, lz4, gzip or producer"
    ),
    "preallocate": _BOOLEAN,
    "retention.ms": _ANY_LONG,
}
_OF_0_10: Final[Mapping[str, _Kind]] = {
    **_OF_0_9,
    "cleanup.policy": _pattern("(delete|compact)(,(delete|compact))?", "delete, compact, or both"),
    "follower.replication.throttled.replicas": _REPLICAS,
    "leader.replication.throttled.replicas": _REPLICAS,
    "local.retention.bytes": _integer(-2, 64),
    "local.retention.ms": _integer(-2, 64),
    "max.compaction.lag.ms": _integer(1, 64),
    "message.downconversion.enable": _BOOLEAN,
    "message.format.version": _pattern(r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?", "a release"),
    "message.timestamp.after.max.ms": _LONG,
    "message.timestamp.before.max.ms": _LONG,
    "message.timestamp.difference.max.ms": _LONG,
    "message.timestamp.type": _pattern("CreateTime|LogAppendTime", "CreateTime or LogAppendTime"),
    "min.compaction.lag.ms": _LONG,
    "remote.storage.enable": _BOOLEAN,
}
TOPIC_CONFIGS: Final[Mapping[BrokerLine, Mapping[str, _Kind]]] = {
    BrokerLine.V0_8: _OF_0_8_2,
    BrokerLine.V0_8_0: {},
    BrokerLine.V0_8_1: _OF_0_8_1,
    BrokerLine.V0_8_2: _OF_0_8_2,
    BrokerLine.V0_9: _OF_0_9,
    BrokerLine.V0_10: _OF_0_10,
}
"""The topic configs that each broker line knows, from the line's `kafka.log.LogConfig`. V0_8
has those of 0.8.2, since 0.8.1 and 0.8.2 can't be told apart before the first topic. From 0.10 on
each release adds names, so `check_configs` accepts unknown ones.
"""


def config_texts(configs: Mapping[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in configs.items()
    }


def check_configs(topic: str, configs: Mapping[str, str], line: BrokerLine) -> None:
    """Check that brokers of this line know the configs of a topic, and can parse their values.

    Raises UnsupportedVersionError on 0.8.0, which has no topic configs, and
    InvalidConfigurationError for an unknown name or a wrong value.
    """
    if line is BrokerLine.V0_8_0 and configs:
        raise UnsupportedVersionError(
            f"topic {topic!r}: brokers of the 0.8.0 line have no topic configs"
        )
    known = TOPIC_CONFIGS[line]
    unknown = sorted(configs.keys() - known.keys()) if line < BrokerLine.V0_10 else []
    if unknown:
        raise InvalidConfigurationError(
            f"topic {topic!r}: unknown topic_configs {', '.join(map(repr, unknown))} on the "
            f"{line} line; expected {', '.join(sorted(known))}"
        )
    for name, value in configs.items():
        if name in known and not known[name].accepts(value):
            raise InvalidConfigurationError(
                f"topic {topic!r}: {name}={value!r}; expected {known[name].expected}"
            )
