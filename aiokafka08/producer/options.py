"""Parse and check the producer's own options; `_core.net.config` checks those of the network.

Invariant: a wrong value raises at construction, with the option, the value and what is expected. An
option that this client's protocol can't serve is refused there too, with the broker version that it
needs. An option that only some broker lines support is refused when a broker's version is known
(`supported_lines`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from aiokafka08._core.net.config import (
    MAX_INT64,
    as_integer,
    as_number,
    check_boolean,
    check_not_negative,
    check_one_of,
    check_positive,
)
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08._wording import newer_protocol, shorten
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    MessageSizeTooLargeError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.compression import Codec, compress

_CODECS: Final = {
    None: Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
}
_MAX_ACKS: Final = 0x7FFF
_PRODUCER_IDS: Final = newer_protocol("InitProducerId and message format 2")
NO_TRANSACTIONS: Final = f"transactions need {_PRODUCER_IDS}"

Acks = Literal["all"] | int
CompressionType = Literal["gzip", "snappy", "lz4"]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Checked options; sizes in bytes, times in seconds."""

    required_acks: int  # as on the wire: -1 for "all"
    codec: Codec
    max_batch_size: int  # size at which a batch is full
    max_request_size: int  # size of the largest request
    buffer_memory: int  # bytes that may be buffered
    linger_s: float  # how long a batch waits for more messages
    delivery_timeout_s: float  # how long a message may take
    max_in_flight: int  # produce requests in flight per broker
    max_block_s: float  # how long a call waits for metadata
    max_message_bytes: int = field(init=False)  # largest message, with its offset and size fields
    # The broker lines that support `codec` and `required_acks`
    supported_lines: frozenset[BrokerLine] = field(init=False)
    # Whether it matters which of the 0.8 lines a broker is. 0.8.0 and 0.8.1 don't know lz4, and
    # return other offsets if they waited for replicas (docs/brokers.md 5.13).
    needs_exact_line: bool = field(init=False)

    def __post_init__(self) -> None:
        lines = set(BrokerLine)
        if self.codec is Codec.LZ4:  # docs/brokers.md 6.1
            lines -= {BrokerLine.V0_8_0, BrokerLine.V0_8_1}
        if self.required_acks > 1:
            lines -= {BrokerLine.V0_9, BrokerLine.V0_10}
        object.__setattr__(self, "supported_lines", frozenset(lines))
        object.__setattr__(
            self, "needs_exact_line", self.codec is Codec.LZ4 or self.required_acks not in (0, 1)
        )
        object.__setattr__(
            self, "max_message_bytes", min(self.max_request_size, self.buffer_memory)
        )

    def too_large(self, size: int, label: str) -> MessageSizeTooLargeError:
        """Return the error for `label`, of `size` bytes, which exceeds `max_message_bytes`."""
        option = (
            "max_request_size" if self.max_request_size <= self.buffer_memory else "buffer_memory"
        )
        return MessageSizeTooLargeError(
            f"{label} takes {size} bytes in a message set; expected at most {option}="
            f"{self.max_message_bytes}"
        )

    def unsupported_line(self, version: BrokerVersion, broker: str) -> KafkaError:
        """Return the error for a broker (named `broker`) whose line isn't supported."""
        if self.codec is Codec.LZ4 and version.line < BrokerLine.V0_8_2:
            return UnsupportedCodecError(
                f"compression_type='lz4' needs brokers from 0.8.2 on; {broker} is of the "
                f"{version.line} line. Use 'snappy' or 'gzip'"
            )
        return UnsupportedVersionError(
            f"acks={self.required_acks} needs brokers of the 0.8 lines; {broker} is of the "
            f"{version.line} line. Use acks='all' and the topic's min.insync.replicas"
        )


def producer_options(
    *,
    acks: object,
    compression_type: object,
    max_batch_size: object,
    max_request_size: object,
    buffer_memory: object,
    linger_ms: object,
    delivery_timeout_ms: object,
    max_in_flight_requests_per_connection: object,
    max_block_ms: object,
    enable_idempotence: object,
    transactional_id: object,
    transaction_timeout_ms: object,
) -> ProducerOptions:
    """Check the options and return them in the units of `ProducerOptions`.

    Raises:
        IllegalArgumentError: a value isn't allowed.
        KafkaConfigurationError: the library of a codec isn't installed.
        UnsupportedVersionError: an option needs a newer protocol than this client speaks.
    """
    if transactional_id is not None:
        raise UnsupportedVersionError(f"transactional_id={transactional_id!r}: {NO_TRANSACTIONS}")
    check_positive("transaction_timeout_ms", transaction_timeout_ms)
    if check_boolean("enable_idempotence", enable_idempotence):
        raise UnsupportedVersionError(
            f"enable_idempotence=True needs {_PRODUCER_IDS}. Leave it at False; a retried batch "
            "may then be stored twice"
        )
    if compression_type == "zstd":
        raise UnsupportedVersionError(
            f"compression_type='zstd' needs {newer_protocol(release='2.1')}; use 'snappy', 'gzip' "
            "or 'lz4'"
        )
    check_one_of("compression_type", compression_type, list(_CODECS))
    codec = _CODECS[compression_type]  # type: ignore[index]
    try:
        # Fails now, not at the first batch, if the codec's library isn't installed.
        compress(codec, b"")
    except ModuleNotFoundError as error:
        raise KafkaConfigurationError(f"compression_type={compression_type!r}: {error}") from error
    return ProducerOptions(
        required_acks=_required_acks(acks),
        codec=codec,
        max_batch_size=check_positive("max_batch_size", max_batch_size),
        max_request_size=check_positive("max_request_size", max_request_size),
        buffer_memory=check_positive("buffer_memory", buffer_memory),
        linger_s=check_duration("linger_ms", linger_ms) / 1000,
        delivery_timeout_s=check_positive("delivery_timeout_ms", delivery_timeout_ms) / 1000,
        max_in_flight=check_positive(
            "max_in_flight_requests_per_connection", max_in_flight_requests_per_connection
        ),
        max_block_s=check_not_negative("max_block_ms", max_block_ms) / 1000,
    )


def _required_acks(acks: object) -> int:
    if acks == "all":
        return -1
    number = as_integer(acks)
    if number is None or not -1 <= number <= _MAX_ACKS:
        raise IllegalArgumentError(
            f"acks={acks!r}: expected 0, 1, -1 or 'all' (brokers of the 0.8 lines also take other "
            "numbers of replicas)"
        )
    return number


def check_duration(option: str, value: object) -> float:
    """Return `value` if it is a number from 0 to 2**63 - 1; else raise IllegalArgumentError."""
    number = as_number(value)
    if number is None or not 0 <= number <= MAX_INT64:
        raise IllegalArgumentError(f"{option}={shorten(value)}: expected a finite number >= 0")
    return number
