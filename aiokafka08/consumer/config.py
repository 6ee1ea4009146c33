"""Check the consumer's options once, when `AIOKafkaConsumer` is made.

Invariant: every wrong value raises an error that names the option, the value and what is expected;
an option that needs a newer protocol raises `UnsupportedVersionError`, which names the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from aiokafka08._core.net.config import (
    callable_or_none,
    check_boolean,
    check_not_negative,
    check_one_of,
    check_positive,
)
from aiokafka08._wording import newer_protocol
from aiokafka08.compat import default_of
from aiokafka08.consumer.cursor import StartPosition
from aiokafka08.consumer.record_buffer import Decoding, Deserializer
from aiokafka08.embedded_headers import headers_mode
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError

if TYPE_CHECKING:
    from aiokafka08._core.zookeeper.security import ZookeeperSecurity

AutoOffsetReset = Literal["earliest", "latest", "none"]

_RESETS: Final = {
    "earliest": StartPosition.EARLIEST,
    "latest": StartPosition.UNCOMMITTED_LATEST,
    "none": None,
}
_SCALA_RESETS: Final = {"smallest": "earliest", "largest": "latest"}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Checked options: sizes in bytes, times in seconds."""

    group_id: str | None
    decoding: Decoding
    fetch_max_wait_s: float
    fetch_max_bytes: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int | None
    reset: StartPosition | None  # the meaning of auto_offset_reset; None stands for "none"
    enable_auto_commit: bool
    auto_commit_interval_s: float
    assignment_strategies: tuple[Any, ...]
    max_poll_interval_s: float
    session_timeout_s: float
    heartbeat_interval_s: float
    rebalance_backoff_s: float
    rebalance_max_retries: int
    exclude_internal_topics: bool
    offsets_storage: str | None
    zookeeper_connect: str | None
    zookeeper_check: str | None
    zookeeper_security: ZookeeperSecurity | None


def consumer_config(
    *,
    group_id: str | None,
    group_instance_id: object,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
    fetch_max_wait_ms: int,
    fetch_max_bytes: int,
    fetch_min_bytes: int,
    max_partition_fetch_bytes: int,
    auto_offset_reset: str,
    enable_auto_commit: bool,
    auto_commit_interval_ms: int,
    check_crcs: bool,
    partition_assignment_strategy: Sequence[Any],
    max_poll_interval_ms: int,
    rebalance_timeout_ms: int | None,
    session_timeout_ms: int,
    heartbeat_interval_ms: int,
    rebalance_backoff_ms: int,
    rebalance_max_retries: int,
    consumer_timeout_ms: int,
    max_poll_records: int | None,
    exclude_internal_topics: bool,
    isolation_level: str,
    client_rack: object,
    offsets_storage: str | None,
    zookeeper_connect: str | None,
    zookeeper_check: str | None,
    zookeeper_options: Mapping[str, Any] | None,
    headers: str | None,
) -> ConsumerConfig:
    """Check the options and convert their units.

    Raises:
        IllegalArgumentError: an option has a wrong value.
        UnsupportedVersionError: an option needs a newer protocol than 0.8.
    """
    check_one_of("isolation_level", isolation_level, ["read_uncommitted", "read_committed"])
    for option, value, needs in (
        (
            "isolation_level",
            isolation_level if isolation_level == "read_committed" else None,
            newer_protocol("Fetch 4 and message format 2"),
        ),
        ("group_instance_id", group_instance_id, newer_protocol("JoinGroup 5", "2.3")),
        ("client_rack", client_rack, newer_protocol("Fetch 11", "2.4")),
    ):
        if value is not None:
            raise UnsupportedVersionError(f"{option}={value!r} needs {needs}. Leave {option} out")
    if group_id is not None:
        from aiokafka08._core.net.coordinator_lookup import check_group_id

        check_group_id(group_id)
    ours = _SCALA_RESETS.get(str(auto_offset_reset).lower())
    if ours is not None:
        raise IllegalArgumentError(
            f"auto_offset_reset={auto_offset_reset!r}: expected {ours!r}, as newer consumers call "
            "it"
        )
    check_one_of("auto_offset_reset", auto_offset_reset, list(_RESETS))
    if group_id is not None:
        offsets_storage = default_of("offsets_storage", offsets_storage)
    zookeeper_connect = default_of("zookeeper_connect", zookeeper_connect)
    check_one_of("offsets_storage", offsets_storage, [None, "kafka", "zookeeper", "dual"])
    zookeeper_check = default_of("zookeeper_check", zookeeper_check)
    check_one_of("zookeeper_check", zookeeper_check, [None, "refuse", "warn"])
    if zookeeper_connect == "" or (
        zookeeper_connect is not None and not isinstance(zookeeper_connect, str)
    ):
        raise IllegalArgumentError(
            f"zookeeper_connect={zookeeper_connect!r}: expected 'host:port,host:port/chroot'"
        )
    security = None
    if zookeeper_options is not None:
        from aiokafka08._core.zookeeper.security import parse_security  # few programs need it

        security = parse_security(zookeeper_options, zookeeper_connect)
    if offsets_storage in ("zookeeper", "dual") and group_id is None:
        raise IllegalArgumentError(
            f"offsets_storage={offsets_storage!r}: only a group has committed offsets. Set "
            "group_id too"
        )
    callable_or_none("key_deserializer", key_deserializer)
    callable_or_none("value_deserializer", value_deserializer)
    if not isinstance(partition_assignment_strategy, list | tuple):
        raise IllegalArgumentError(
            f"partition_assignment_strategy={partition_assignment_strategy!r}: expected a list"
        )
    # Only checked: it has no effect.
    check_not_negative("consumer_timeout_ms", consumer_timeout_ms)
    if max_poll_records is not None:
        max_poll_records = check_positive("max_poll_records", max_poll_records)
    session_timeout_ms = check_positive("session_timeout_ms", session_timeout_ms)
    if rebalance_timeout_ms is not None:  # JoinGroup 0 doesn't send it
        check_positive("rebalance_timeout_ms", rebalance_timeout_ms)
    return ConsumerConfig(
        group_id=group_id,
        decoding=Decoding(
            check_boolean("check_crcs", check_crcs),
            key_deserializer,
            value_deserializer,
            embedded_headers=headers_mode(headers) == "embedded",
        ),
        fetch_max_wait_s=_int32(check_not_negative("fetch_max_wait_ms", fetch_max_wait_ms)) / 1000,
        fetch_max_bytes=check_positive("fetch_max_bytes", fetch_max_bytes),
        fetch_min_bytes=_int32(check_not_negative("fetch_min_bytes", fetch_min_bytes)),
        max_partition_fetch_bytes=check_positive(
            "max_partition_fetch_bytes", max_partition_fetch_bytes
        ),
        max_poll_records=max_poll_records,
        reset=_RESETS[auto_offset_reset],
        enable_auto_commit=check_boolean("enable_auto_commit", enable_auto_commit),
        auto_commit_interval_s=check_not_negative(
            "auto_commit_interval_ms", auto_commit_interval_ms
        )
        / 1000,
        assignment_strategies=tuple(partition_assignment_strategy),
        max_poll_interval_s=check_positive("max_poll_interval_ms", max_poll_interval_ms) / 1000,
        session_timeout_s=session_timeout_ms / 1000,
        heartbeat_interval_s=check_positive("heartbeat_interval_ms", heartbeat_interval_ms) / 1000,
        rebalance_backoff_s=check_positive("rebalance_backoff_ms", rebalance_backoff_ms) / 1000,
        rebalance_max_retries=check_positive("rebalance_max_retries", rebalance_max_retries),
        exclude_internal_topics=check_boolean("exclude_internal_topics", exclude_internal_topics),
        offsets_storage=offsets_storage,
        zookeeper_connect=zookeeper_connect,
        zookeeper_check=zookeeper_check,
        zookeeper_security=security,
    )


def _int32(value: int) -> int:
    """Return the value, or the largest one that fits on the wire."""
    return min(value, 0x7FFFFFFF)
