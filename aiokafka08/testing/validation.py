"""`validate_set`: validate a produced message set, as brokers of the log's line do.

Pure: bytes and a `LogConfig` in, bytes or `MessageSetRejected` out. The line's format decides
between `format_0` and `format_1`.
"""

from __future__ import annotations

from aiokafka08.protocol.types import Buffer
from aiokafka08.testing import format_0, format_1
from aiokafka08.testing.message_sets import LogConfig, ValidatedSet


def validate_set(
    message_set: Buffer, base_offset: int, config: LogConfig, now_ms: int
) -> ValidatedSet:
    """Validate a produced set and assign offsets from `base_offset` on.

    Raises:
        MessageSetRejected: the set is invalid; nothing of it may be stored.
    """
    if config.line.message_format:
        return format_1.validate(message_set, base_offset, config, now_ms)
    return format_0.validate(message_set, base_offset, config)
