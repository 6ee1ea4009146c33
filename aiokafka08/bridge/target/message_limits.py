"""Which messages the target will refuse, or delete at once, and why. Pure.

Invariant: a message that `refusal` accepts has a key where the target wants one, fits into a batch
of the target's size, and has a timestamp in the target's range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# The header of a batch, and the most that its only record has besides key and value.
BATCH_BYTES: Final = 61
RECORD_BYTES: Final = 22

_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TargetLimits:
    """The limits of a topic of the target. Times are in milliseconds, sizes in bytes."""

    is_compacted: bool = False
    max_message_bytes: int = 1_048_588
    is_create_time: bool = True
    most_before_ms: int = _NO_LIMIT
    most_after_ms: int = 3_600_000
    retention_ms: int = 604_800_000

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TargetLimits:
        """Return the limits in a topic's settings; Kafka's defaults for missing and wrong
        numbers.
        """
        # Before 3.6 `message.timestamp.difference.max.ms` limits both directions; its default is no
        # limit. Only 4.x lacks the setting.
        has_difference = "message.timestamp.difference.max.ms" in config
        both_ms = _number(config, "message.timestamp.difference.max.ms", _NO_LIMIT)
        after_ms = both_ms if has_difference else cls().most_after_ms
        return cls(
            is_compacted="compact" in config.get("cleanup.policy", "delete"),
            max_message_bytes=_number(config, "max.message.bytes", cls().max_message_bytes),
            is_create_time=config.get("message.timestamp.type", "CreateTime") == "CreateTime",
            most_before_ms=min(
                both_ms, _number(config, "message.timestamp.before.max.ms", _NO_LIMIT)
            ),
            most_after_ms=min(both_ms, _number(config, "message.timestamp.after.max.ms", after_ms)),
            retention_ms=_number(config, "retention.ms", cls().retention_ms),
        )


def _number(config: Mapping[str, str], name: str, default: int) -> int:
    """Return a setting; the default if it is missing, or isn't a number."""
    # The target refuses to create a topic with a wrong number, so the default does no harm.
    try:
        return int(config[name])
    except (KeyError, ValueError):
        return default


def refusal(
    limits: TargetLimits,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int | None,
    now_ms: int,
) -> str | None:
    """Return why the target refuses a message, or None.

    Args:
        limits: the limits of the topic.
        key: the key; None is null.
        value: the value; None is null.
        timestamp_ms: the timestamp that the bridge writes; None leaves it to the target.
        now_ms: the time.
    """
    if limits.is_compacted and key is None:
        return "a null key, and the topic is compacted: INVALID_RECORD"
    size = BATCH_BYTES + RECORD_BYTES + len(key or b"") + len(value or b"")
    if size > limits.max_message_bytes:
        return f"{size} bytes, and max.message.bytes={limits.max_message_bytes}: MESSAGE_TOO_LARGE"
    if timestamp_ms is not None and timestamp_ms >= 0 and limits.is_create_time:
        if now_ms - timestamp_ms > limits.most_before_ms:
            return (
                f"the timestamp {timestamp_ms}, and message.timestamp.before.max.ms="
                f"{limits.most_before_ms}: INVALID_TIMESTAMP"
            )
        if timestamp_ms - now_ms > limits.most_after_ms:
            return (
                f"the timestamp {timestamp_ms}, and message.timestamp.after.max.ms="
                f"{limits.most_after_ms}: INVALID_TIMESTAMP"
            )
    return None


def is_expired(limits: TargetLimits, timestamp_ms: int | None, now_ms: int) -> bool:
    """Return whether the target deletes a message at its next check, since it is too old."""
    return (
        timestamp_ms is not None
        and timestamp_ms >= 0
        and limits.is_create_time
        and not limits.is_compacted
        and 0 <= limits.retention_ms < now_ms - timestamp_ms
    )
