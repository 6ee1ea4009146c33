"""The topic configs that 0.10.2.2 checks in CreateTopics, with its error texts. Pure.

Invariant: a config that passes is one with which a real broker creates the topic. Some of them
have no effect here (`broker_lines.LineRules.topic_configs` has the ones that do).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka08.errors import InvalidConfigurationError, UnknownError
from aiokafka08.testing.state import CreationError

# Returns an invalid value as the broker's error shows it, and the reason; None for a valid one.
_Check = Callable[[str], tuple[object, str] | None]


def _number(kind: str, least: int | None = None) -> _Check:
    bits = 32 if kind == "INT" else 64

    def check(text: str) -> tuple[object, str] | None:
        is_number = re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) is not None
        value = int(text) if is_number else 0
        if not is_number or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return text, f"Not a number of type {kind}"
        if least is not None and value < least:
            return value, f"Value must be at least {least}"
        return None

    return check


def _ratio(text: str) -> tuple[object, str] | None:
    try:
        value = float(text)
    except ValueError:
        return text, "Not a number of type DOUBLE"
    if value < 0:
        return value, "Value must be at least 0"
    return (value, "Value must be no more than 1") if value > 1 else None


def _boolean(text: str) -> tuple[object, str] | None:
    if text.strip().lower() in ("true", "false"):
        return None
    return text, "Expected value to be either true or false"


def _strings(*valid: str, many: bool = False) -> _Check:
    def check(text: str) -> tuple[object, str] | None:
        values = re.split(r"\s*,\s*", text.strip()) if many else [text.strip()]
        wrong = [value for value in values if value not in valid]
        return (wrong[0], f"String must be one of: {', '.join(valid)}") if wrong else None

    return check


_LONG: Final = _number("LONG")
_LONG_FROM_0: Final = _number("LONG", 0)
_INT_FROM_0: Final = _number("INT", 0)


def _any(text: str) -> None:
    return None


_CHECKS: Final[Mapping[str, _Check]] = {
    "cleanup.policy": _strings("compact", "delete", many=True),
    "compression.type": _strings("uncompressed", "snappy", "lz4", "gzip", "producer"),
    "delete.retention.ms": _LONG_FROM_0,
    "file.delete.delay.ms": _LONG_FROM_0,
    "flush.messages": _LONG_FROM_0,
    "flush.ms": _LONG_FROM_0,
    "follower.replication.throttled.replicas": _any,
    "index.interval.bytes": _INT_FROM_0,
    "leader.replication.throttled.replicas": _any,
    "max.message.bytes": _INT_FROM_0,
    "message.format.version": _any,
    "message.timestamp.difference.max.ms": _LONG_FROM_0,
    "message.timestamp.type": _any,
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _LONG_FROM_0,
    "min.insync.replicas": _number("INT", 1),
    "preallocate": _boolean,
    "retention.bytes": _LONG,
    "retention.ms": _LONG,
    "segment.bytes": _number("INT", 14),
    "segment.index.bytes": _INT_FROM_0,
    "segment.jitter.ms": _LONG_FROM_0,
    "segment.ms": _LONG_FROM_0,
    "unclean.leader.election.enable": _boolean,
}


def check_configs(config: Mapping[str, str]) -> None:
    """Check the configs of a new topic.

    Raises:
        CreationError: a name is unknown or a value is invalid; the text is that of a real broker.
    """
    for name in config:
        if name not in _CHECKS:
            text = f"Unknown Log configuration {name}."
            raise CreationError(text, InvalidConfigurationError.errno)
    for name, value in config.items():
        if (found := _CHECKS[name](value)) is not None:
            shown, wrong = found
            text = f"Invalid value {shown} for configuration {name}: {wrong}"
            raise CreationError(text, UnknownError.errno)
