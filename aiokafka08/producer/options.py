"""The producer's own options, parsed and checked. Those of the network are `net.config`'s.

Law: a wrong value is an error at construction that names the option, the value and what is
allowed; what the protocol can't do is refused there too, saying what it would need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    MessageSizeTooLargeError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aiokafka08.net.config import boolean, one_of, positive
from aiokafka08.net.versions import BrokerLine, BrokerVersion
from aiokafka08.protocol.compression import Codec, compress

_CODECS: Final = {
    None: Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
}
_MAX_ACKS: Final = 0x7FFF


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Checked options; sizes in bytes, times in seconds.

    `required_acks` is as on the wire: -1 for "all".
    """

    required_acks: int
    codec: Codec
    max_batch_size: int
    max_request_size: int
    buffer_memory: int
    linger_s: float
    delivery_timeout_s: float
    max_in_flight: int

    @property
    def max_message_bytes(self) -> int:
        """The largest message, its offset and size fields included, that can be sent."""
        return min(self.max_request_size, self.buffer_memory)

    def too_large(self, size: int, where: str) -> MessageSizeTooLargeError:
        """The error for `size` bytes where `max_message_bytes` are allowed."""
        option = (
            "max_request_size" if self.max_request_size <= self.buffer_memory else "buffer_memory"
        )
        return MessageSizeTooLargeError(
            f"{where} takes {size} bytes in a message set, more than {option}="
            f"{self.max_message_bytes}"
        )

    def check_broker(self, version: BrokerVersion, who: str) -> None:
        """Check that a broker of this line can do what the options ask for.

        Raises:
            UnsupportedCodecError: lz4 needs brokers from 0.8.2 on (docs/brokers.md 6.1).
            UnsupportedVersionError: acks above 1, which only the 0.8 lines know.
        """
        if self.codec is Codec.LZ4 and version.line < BrokerLine.V0_8_2:
            raise UnsupportedCodecError(
                f"compression_type='lz4' needs brokers from 0.8.2 on; {who} is of the "
                f"{version.line} line. Use 'snappy' or 'gzip'"
            )
        if self.required_acks > 1 and version.line >= BrokerLine.V0_9:
            raise UnsupportedVersionError(
                f"acks={self.required_acks} is known to brokers of the 0.8 lines only; {who} is of "
                f"the {version.line} line, where min.insync.replicas with acks='all' takes its "
                "place"
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
    enable_idempotence: object,
    transactional_id: object,
    transaction_timeout_ms: object,
) -> ProducerOptions:
    """Check the options.

    Raises:
        IllegalArgumentError: a value isn't allowed.
        KafkaConfigurationError: the library that a codec needs isn't there.
        UnsupportedVersionError: the protocol of 0.8 can't do it.
    """
    if transactional_id is not None:
        raise UnsupportedVersionError(
            f"transactional_id={transactional_id!r}: transactions need InitProducerId and message "
            "format 2 (brokers from 0.11 on), which this client doesn't speak"
        )
    positive("transaction_timeout_ms", transaction_timeout_ms)
    if boolean("enable_idempotence", enable_idempotence):
        raise UnsupportedVersionError(
            "enable_idempotence=True needs InitProducerId and message format 2 (brokers from 0.11 "
            "on), which this client doesn't speak: a retried batch may be stored twice"
        )
    if compression_type == "zstd":
        raise UnsupportedVersionError(
            "compression_type='zstd' needs message format 2 (brokers from 2.1 on), which this "
            "client doesn't speak; use 'snappy', 'gzip' or 'lz4'"
        )
    one_of("compression_type", compression_type, list(_CODECS))
    codec = _CODECS[compression_type]  # type: ignore[index]
    try:
        compress(codec, b"")
    except ModuleNotFoundError as error:
        raise KafkaConfigurationError(f"compression_type={compression_type!r}: {error}") from error
    return ProducerOptions(
        required_acks=_required_acks(acks),
        codec=codec,
        max_batch_size=positive("max_batch_size", max_batch_size),
        max_request_size=positive("max_request_size", max_request_size),
        buffer_memory=positive("buffer_memory", buffer_memory),
        linger_s=check_duration("linger_ms", linger_ms) / 1000,
        delivery_timeout_s=positive("delivery_timeout_ms", delivery_timeout_ms) / 1000,
        max_in_flight=positive(
            "max_in_flight_requests_per_connection", max_in_flight_requests_per_connection
        ),
    )


def _required_acks(acks: object) -> int:
    if acks == "all":
        return -1
    if isinstance(acks, bool) or not isinstance(acks, int) or not -1 <= acks <= _MAX_ACKS:
        raise IllegalArgumentError(
            f"acks={acks!r}: allowed are 0, 1, -1 or 'all', and with brokers of the 0.8 lines "
            "other numbers of replicas"
        )
    return acks


def check_duration(option: str, value: object) -> float:
    """`value`, if it is a finite number of 0 or more; fractions are meant.

    Raises:
        IllegalArgumentError: it isn't.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise IllegalArgumentError(f"{option}={value!r}: allowed are finite numbers from 0 on")
    return value
