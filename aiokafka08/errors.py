"""Every error of the package, and the one table of the error codes that brokers send.

Law: a code is named once, here, with what a client does about it (`Action`). Names are those of
aiokafka, so that `except` clauses keep working after a change of import; what is `retriable` there
is so here, and codes -1, 8, 9 and 13 besides. Who retries, and how often, lives in
`producer.sender`, `consumer.fetcher` and `net.router`.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from aiokafka08.structs import TopicPartition


class Action(enum.Enum):
    """What a client does about an error code of a partition, topic or group."""

    NONE = "no error"
    REFRESH = "the metadata is stale: refresh it, then try again"
    BACK_OFF = "try again a little later"
    MAYBE_STORED = "the message may be in the log: trying again may store it twice"
    NOT_STORED = "nothing was appended: trying again is safe"
    SPLIT = "too large: split the batch and send the halves"
    COORDINATOR = "look the coordinator up again, then try again"
    REJOIN = "the group has moved on: join it again"
    FINAL = "trying again can't help"


class KafkaError(RuntimeError):
    """Base of all errors that this package raises about Kafka."""

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """What happened, without the name of the class that `str()` puts before it."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{type(self).__name__}: {self.text}" if self.text else type(self).__name__


# --- the client's own ---------------------------------------------------------------------------


class IllegalStateError(KafkaError):
    """The call doesn't fit the state of the client (not started, no assignment, other loop)."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument or option has a value that isn't allowed; the text names both."""


class KafkaConfigurationError(KafkaError):
    """Options that contradict each other, or need an extra that isn't installed."""


class KafkaConnectionError(KafkaError):
    """A connection could not be made, or broke before the answer came."""

    retriable = True
    invalid_metadata = True


class NoBrokersAvailable(KafkaConnectionError):
    """No bootstrap address and no known broker could be reached; the text says why for each."""


class KafkaTimeoutError(KafkaError):
    """A deadline of the client passed (`request_timeout_ms`, `delivery_timeout_ms`, …)."""

    retriable = True


class KafkaUnavailableError(KafkaError):
    """The cluster answers, but can't do the work now."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """The peer sent bytes that aren't the Kafka protocol, or cut it short. Costs the connection."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """An answer carries another correlation id than the oldest request in flight."""


class UnrecognizedBrokerVersion(KafkaError):
    """The peer speaks, but like no known line of brokers.

    It may pass: a broker that dies, or a proxy that cuts, while it is asked looks the same.
    """

    retriable = True


class CommitFailedError(KafkaError):
    """Offsets were not committed: the group has moved on without this member."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is "none"."""


class RecordTooLargeError(KafkaError):
    """A message in the log is larger than the consumer's limits allow it to fetch."""


class UnsupportedCodecError(KafkaError):
    """The broker's line doesn't know this compression (lz4 before 0.8.2)."""


class ProducerClosed(KafkaError):
    """The producer was stopped before, or while, this call ran."""


class ConsumerStoppedError(Exception):
    """The consumer was stopped before, or while, this call waited (aiokafka raises the same)."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the consumer was stopped; make a new one",)))


class IllegalOperation(Exception):
    """The operation doesn't fit this kind of subscription (aiokafka raises the same)."""


# --- what brokers answer ------------------------------------------------------------------------


class BrokerResponseError(KafkaError):
    """An error code in an answer. Unknown codes come as this class itself."""

    errno: int = -1
    action: ClassVar[Action] = Action.BACK_OFF
    description: ClassVar[str] = "unknown error code"

    def __init__(self, *args: object, errno: int | None = None) -> None:
        super().__init__(*args)
        if errno is not None:
            self.errno = errno

    def __str__(self) -> str:
        return f"[Error {self.errno}] {type(self).__name__}: {self.text or self.description}"


class NoError(BrokerResponseError):
    errno = 0
    action = Action.NONE
    description = "no error"


class UnknownError(BrokerResponseError):
    errno = -1
    description = "the broker met an unexpected error (its log tells more)"
    retriable = True


class OffsetOutOfRangeError(BrokerResponseError):
    errno = 1
    action = Action.FINAL
    description = "the offset is outside the range that the broker keeps for the partition"


class CorruptRecordException(BrokerResponseError):
    """A message fails its CRC or has impossible lengths.

    Raised for answers with code 2, and by the consumer for what it fetched: then `partition` and
    `offset` say where, and `next_offset` is where `seek()` may go on (None where the corrupt bytes
    hide it).
    """

    errno = 2
    action = Action.FINAL
    description = "the message is corrupt: wrong CRC or impossible size"

    def __init__(
        self,
        *args: object,
        errno: int | None = None,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        super().__init__(*args, errno=errno)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


InvalidMessageError = CorruptRecordException


class UnknownTopicOrPartitionError(BrokerResponseError):
    errno = 3
    action = Action.REFRESH
    description = "the broker doesn't host this topic or partition"
    retriable = True
    invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
    action = Action.FINAL
    description = "the fetch size is negative"


class LeaderNotAvailableError(BrokerResponseError):
    errno = 5
    action = Action.REFRESH
    description = "the partition has no leader yet (just created, or in an election)"
    retriable = True
    invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError):
    errno = 6
    action = Action.REFRESH
    description = "the broker doesn't lead this partition"
    retriable = True
    invalid_metadata = True


class RequestTimedOutError(BrokerResponseError):
    """The broker gave up waiting for its replicas (code 7): the message is in the leader's log."""

    errno = 7
    action = Action.MAYBE_STORED
    description = "the broker timed out; the message is in the leader's log"
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
    action = Action.BACK_OFF
    description = "a broker that this needs is not alive"
    retriable = True


class ReplicaNotAvailableError(BrokerResponseError):
    errno = 9
    action = Action.NONE  # normal in Metadata while a replica is down (brokers.md 4.7)
    description = "a replica is down"
    retriable = True


class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
    action = Action.SPLIT
    description = (
        "the message is larger than the broker's message.max.bytes, or the topic's "
        "max.message.bytes"
    )


class StaleControllerEpochError(BrokerResponseError):
    errno = 11
    action = Action.FINAL
    description = "the controller's epoch is stale (between brokers only)"


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
    action = Action.FINAL
    description = "the metadata string of a committed offset is too long"


class StaleLeaderEpochCodeError(BrokerResponseError):
    errno = 13
    action = Action.REFRESH
    description = "the leader's epoch is stale (between brokers only)"
    retriable = True


class GroupLoadInProgressError(BrokerResponseError):
    errno = 14
    action = Action.BACK_OFF
    description = "the coordinator is still loading the group's offsets"
    retriable = True


class GroupCoordinatorNotAvailableError(BrokerResponseError):
    errno = 15
    action = Action.COORDINATOR
    description = "the group has no coordinator yet"
    retriable = True


class NotCoordinatorForGroupError(BrokerResponseError):
    errno = 16
    action = Action.COORDINATOR
    description = "the broker isn't the coordinator of this group"
    retriable = True


class InvalidTopicError(BrokerResponseError):
    errno = 17
    action = Action.FINAL
    description = "the topic name isn't allowed, or the topic is internal"


class RecordListTooLargeError(BrokerResponseError):
    errno = 18
    action = Action.SPLIT
    description = "the message set is larger than the broker's segment size"


class NotEnoughReplicasError(BrokerResponseError):
    errno = 19
    action = Action.NOT_STORED
    description = "fewer replicas in sync than min.insync.replicas; nothing was stored"
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    errno = 20
    action = Action.MAYBE_STORED
    description = "fewer replicas in sync than min.insync.replicas, found after the append"
    retriable = True


class InvalidRequiredAcksError(BrokerResponseError):
    errno = 21
    action = Action.FINAL
    description = "required_acks isn't one of -1, 0, 1 (brokers from 0.9 on)"


class IllegalGenerationError(BrokerResponseError):
    errno = 22
    action = Action.REJOIN
    description = "the group is in another generation"


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23
    action = Action.FINAL
    description = "the member shares no assignment strategy with the group"


class InvalidGroupIdError(BrokerResponseError):
    errno = 24
    action = Action.FINAL
    description = "the group id isn't allowed"


class UnknownMemberIdError(BrokerResponseError):
    errno = 25
    action = Action.REJOIN
    description = "the coordinator doesn't know this member (any more)"


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26
    action = Action.FINAL
    description = "the session timeout is outside the broker's bounds"


class RebalanceInProgressError(BrokerResponseError):
    errno = 27
    action = Action.REJOIN
    description = "the group is rebalancing"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28
    action = Action.FINAL
    description = "the offset commit is too large"


class TopicAuthorizationFailedError(BrokerResponseError):
    errno = 29
    action = Action.FINAL
    description = "no right to use this topic"


class GroupAuthorizationFailedError(BrokerResponseError):
    errno = 30
    action = Action.FINAL
    description = "no right to use this group"


class ClusterAuthorizationFailedError(BrokerResponseError):
    errno = 31
    action = Action.FINAL
    description = "no right to do this on the cluster"


class InvalidTimestampError(BrokerResponseError):
    errno = 32
    action = Action.FINAL
    description = "the timestamp is too far from the broker's clock"


class UnsupportedVersionError(BrokerResponseError):
    """The broker's line, or the 0.8 protocol itself, can't do what was asked."""

    errno = 35
    action = Action.FINAL
    description = "the protocol version isn't supported"


class TopicAlreadyExistsError(BrokerResponseError):
    errno = 36
    action = Action.FINAL
    description = "the topic exists already"


class InvalidPartitionsError(BrokerResponseError):
    errno = 37
    action = Action.FINAL
    description = "the number of partitions isn't allowed"


class InvalidReplicationFactorError(BrokerResponseError):
    errno = 38
    action = Action.FINAL
    description = "the replication factor isn't allowed, or too few brokers are alive"


class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = 39
    action = Action.FINAL
    description = "the replica assignment isn't allowed"


class InvalidConfigurationError(BrokerResponseError):
    errno = 40
    action = Action.FINAL
    description = "a configuration value isn't allowed"


class InvalidRequestError(BrokerResponseError):
    errno = 42
    action = Action.FINAL
    description = "the broker finds the request contradictory"


class UnsupportedCompressionTypeError(BrokerResponseError):
    """A topic with `compression.type=zstd`: brokers don't convert it for requests this old."""

    errno = 76
    action = Action.FINAL
    description = "the topic's compression (zstd) can't be read with a protocol this old"


class GroupMaxSizeReachedError(BrokerResponseError):
    errno = 81
    action = Action.FINAL
    description = "the group has as many members as the broker allows (brokers from 2.2 on)"


class InvalidRecordError(BrokerResponseError):
    errno = 87
    action = Action.FINAL
    description = "the broker's validation refused the message (brokers from 2.4 on)"


# aiokafka's second names
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError


BROKER_ERRORS: dict[int, type[BrokerResponseError]] = {
    cls.errno: cls for cls in BrokerResponseError.__subclasses__()
}
"""Error code → class, for every code that brokers 0.8.0 – 3.9 send to this client."""


def error_class(code: int) -> type[BrokerResponseError]:
    """The class for an error code; `BrokerResponseError` itself where the code is unknown."""
    return BROKER_ERRORS.get(code, BrokerResponseError)


def broker_error(code: int, where: str = "") -> BrokerResponseError:
    """The error for `code`, its text saying what it means and `where` it happened.

    Unknown codes keep their number: `broker_error(99).errno == 99`.
    """
    cls = error_class(code)
    text = f"{where}: {cls.description}" if where else cls.description
    return cls(text, errno=code)


def action_for(code: int) -> Action:
    """What to do about an error code; unknown codes are tried again a bounded number of times."""
    return error_class(code).action
