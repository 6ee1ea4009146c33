"""What an embedded cluster can be made with, checked before anything listens. Pure.

Law: what is refused is a ValueError that names the option, the value given and what is allowed;
the pytest plugin and the command line show it to people as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.state import valid_topic_name

_HIGHEST_PORT = 65535


def check_options(
    *,
    brokers: object,
    version: object,
    topics: object,
    auto_create: object,
    default_partitions: object,
    default_replication_factor: object,
    message_max_bytes: object,
    segment_bytes: object,
    retention_bytes: object,
    port: object,
) -> None:
    """Refuse what no cluster can be made with; the meaning of each is `EmbeddedCluster`'s.

    Raises:
        ValueError: see the law above.
    """
    count = _whole("brokers", brokers, 1)
    if not isinstance(version, str) or version not in LINES:
        raise _refusal("version", version, f"one of {', '.join(map(repr, LINES))}")
    if topics is not None:
        _topics(topics)
    if not isinstance(auto_create, bool):
        raise _refusal("auto_create", auto_create, "True or False")
    _whole("default_partitions", default_partitions, 1)
    if default_replication_factor is not None:
        _whole("default_replication_factor", default_replication_factor, 1)
    _whole("message_max_bytes", message_max_bytes, 0)
    _whole("segment_bytes", segment_bytes, 1)
    if retention_bytes is not None:
        _whole("retention_bytes", retention_bytes, 0)
    _whole("port", port, 0, _HIGHEST_PORT + 1 - count)


def _topics(topics: object) -> None:
    if not isinstance(topics, Mapping):
        raise _refusal("topics", topics, 'a mapping like {"orders": 4} (name: partitions)')
    for name, partitions in topics.items():
        if not isinstance(name, str) or not valid_topic_name(name):
            raise ValueError(
                f"topics={topics!r}: the topic name {name!r} isn't allowed (1 to 255 of a-z, A-Z,"
                " 0-9, '.', '_' and '-', but not '.' or '..')"
            )
        _whole(f"topics[{name!r}]", partitions, 1)


def _whole(option: str, value: object, lowest: int, highest: int | None = None) -> int:
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or value < lowest
        or (highest is not None and value > highest)
    ):
        until = "on" if highest is None else f"to {highest}"
        raise _refusal(option, value, f"a whole number from {lowest} {until}")
    return value


def _refusal(option: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{option}={value!r}: {allowed} is needed")
