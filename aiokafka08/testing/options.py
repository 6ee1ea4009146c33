"""`check_options`: validate the options of `EmbeddedCluster`. Pure.

Invariant: an invalid value of a parameter of `check_options` raises a ValueError that names the
option, its value (not the passwords of `sasl`) and what is expected. The pytest plugin and the
command line show this text to their users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka08.protocol.api import ApiKey
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.state import valid_topic_name

_HIGHEST_PORT: Final = 65535
_HIGHEST_MS: Final = 2**31 - 1


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
    retention_ms: object,
    group_min_session_timeout_ms: object,
    max_buffered_bytes: object,
    host: object,
    port: object,
    advertised_host: object,
    advertised_port: object,
    clock: object,
    sasl: object,
) -> None:
    """Check the options; their meaning is documented at `EmbeddedCluster`.

    Raises:
        ValueError: an option is invalid.
    """
    count = check_integer("brokers", brokers, 1)
    if not isinstance(version, str) or version not in LINES:
        raise invalid("version", version, f"one of {', '.join(map(repr, LINES))}")
    if topics is not None:
        _check_topics(topics, LINES[version].max_topic_name)
    if not isinstance(auto_create, bool):
        raise invalid("auto_create", auto_create, "True or False")
    check_integer("default_partitions", default_partitions, 1)
    if default_replication_factor is not None:
        check_integer("default_replication_factor", default_replication_factor, 1)
    check_integer("message_max_bytes", message_max_bytes, 0)
    check_integer("segment_bytes", segment_bytes, 1)
    if retention_bytes is not None:
        check_integer("retention_bytes", retention_bytes, 0)
    if retention_ms is not None:
        check_integer("retention_ms", retention_ms, 0)
    check_integer("group_min_session_timeout_ms", group_min_session_timeout_ms, 0, _HIGHEST_MS)
    check_integer("max_buffered_bytes", max_buffered_bytes, 1)
    if not isinstance(host, str) or not host:
        raise invalid("host", host, 'an address, such as "127.0.0.1"')
    if advertised_host is not None and not (isinstance(advertised_host, str) and advertised_host):
        raise invalid("advertised_host", advertised_host, "a host, or None")
    if clock is not None and not callable(clock):
        raise invalid("clock", clock, "a function that returns seconds, or None")
    check_integer("port", port, 0, _HIGHEST_PORT + 1 - count)
    if advertised_port is not None:
        check_integer("advertised_port", advertised_port, 1, _HIGHEST_PORT + 1 - count)
    if sasl is not None:
        _check_sasl(sasl, version)


def _check_sasl(users: object, version: str) -> None:
    # The value has passwords: errors name no more than its type, or a user.
    if not isinstance(users, Mapping) or not all(
        isinstance(text, str) and text for pair in users.items() for text in pair
    ):
        raise ValueError(
            f"sasl=<{type(users).__name__}>: expected a mapping of user names to passwords, such as"
            ' {"alice": "secret"}'
        )
    for user in users:
        if "\0" in user + users[user]:
            raise ValueError(f"sasl: user {user!r}: expected a name and a password without NUL")
    if ApiKey.SASL_HANDSHAKE not in LINES[version].apis:
        lines = [name for name, line in LINES.items() if ApiKey.SASL_HANDSHAKE in line.apis]
        raise ValueError(
            f"sasl=<users>, version={version!r}: this line has neither PLAIN nor SCRAM; expected"
            f" version {' or '.join(map(repr, lines))}"
        )


def _check_topics(topics: object, longest: int) -> None:
    if not isinstance(topics, Mapping):
        raise invalid("topics", topics, 'a mapping of names to numbers, such as {"orders": 4}')
    for name, partitions in topics.items():
        if not isinstance(name, str) or not valid_topic_name(name, longest):
            raise ValueError(
                f"topics={topics!r}: invalid topic name {name!r}; expected 1 to {longest} of a-z,"
                " A-Z, 0-9, '.', '_' and '-', but not '.' or '..'"
            )
        check_integer(f"topics[{name!r}]", partitions, 1)


def check_integer(
    option: str, value: object, lowest: int | None, highest: int | None = None
) -> int:
    """Return an integer between two bounds (None: no bound); otherwise raise ValueError."""
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or (lowest is not None and value < lowest)
        or (highest is not None and value > highest)
    ):
        bounds = f" >= {lowest}" if highest is None else f" from {lowest} to {highest}"
        raise invalid(option, value, f"an integer{'' if lowest is None else bounds}")
    return value


def invalid(option: str, value: object, expected: str) -> ValueError:
    """Return the error for an option with an invalid value."""
    return ValueError(f"{option}={value!r}: expected {expected}")
