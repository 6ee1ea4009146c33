"""Every exception of the package, and the one table of the error codes that brokers send.

The table is the subclasses of `BrokerResponseError`. Each holds a code (`errno`), Kafka's name for
it (`message`), its meaning (`description`) and what a client does about it (`action`). Class names
are aiokafka's, so `except` clauses keep working after a change of import; that includes errors that
this client never raises. Each class that is `retriable` in aiokafka is retriable here. Codes -1, 8,
9 and 13 are retriable here, but not there.

Invariant: no other module of the package names an error code by its number (except 0, no error);
they use `SomeError.errno`. This module decides no retries: `_core.net.retry`, `producer`,
`consumer`, `offset_store` and `admin` do.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final

from aiokafka08.structs import TopicPartition


class Action(enum.Enum):
    """What a client does about an error code of a partition, topic or group."""

    NONE = "nothing"
    REFRESH = "refreshes the metadata, retries"
    BACK_OFF = "retries later"
    MAYBE_STORED = "retries: may store it twice"
    NOT_STORED = "retries: nothing was stored"
    SPLIT = "splits the batch"
    COORDINATOR = "finds the coordinator, retries"
    REJOIN = "joins the group again"
    FINAL = "doesn't retry"


class KafkaError(RuntimeError):
    """Base class of the errors that this package raises about Kafka.

    Attributes:
        retriable: Another attempt may succeed.
        invalid_metadata: The error is a sign that the metadata is stale.
        names_class: `str()` has the name of the class. It is False in errors that leave the Spark
            data source, since Spark shows them by their tracebacks, which name the class.
    """

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    names_class: bool = True

    @property
    def text(self) -> str:
        """The message, without the class name that `str()` puts before it.

        It is the first string in `args`. The other items of `args` are values for the calling code,
        such as a `TopicPartition`.
        """
        return next((arg for arg in self.args if isinstance(arg, str)), super().__str__())

    def nested_text(self, outer: type[KafkaError]) -> str:
        """Return `str()` of this error, for the text of an error of the class `outer`.

        If both have the same class, its name is left out, since `str()` of the outer error has it.
        """
        return self.text if type(self) is outer and self.text else str(self)

    def __str__(self) -> str:
        if not self.names_class:
            return self.text
        return f"{type(self).__name__}: {self.text}" if self.text else type(self).__name__


# --- raised by the client itself ------------------------------------------------------------------


class IllegalStateError(KafkaError):
    """The client's state doesn't allow the call (not started, no assignment, other event loop)."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument or option has a wrong value; the text names both and what is expected."""


class KafkaConfigurationError(KafkaError):
    """Options contradict each other, or need an extra that isn't installed."""


class ZookeeperMismatchError(KafkaConfigurationError):
    """`zookeeper_connect` isn't the ZooKeeper of the brokers; the text names the brokers of both.

    Nothing was read or written there for a group, an offset or a topic.
    """


class KafkaConnectionError(KafkaError):
    """A connection could not be made, or broke before the response arrived."""

    retriable = True
    invalid_metadata = True


class CertificateError(KafkaConnectionError):
    """The TLS certificate of a broker or of ZooKeeper isn't trusted, or is for another host."""

    retriable = False


class AuthenticationFailedError(KafkaConnectionError):
    """The broker refuses the SASL authentication, or the client lacks a valid credential.

    A broker below 1.0 refuses without a reason: the text then names what to check.
    """

    retriable = False


class AuthenticationMethodNotSupported(AuthenticationFailedError):
    """The broker doesn't offer the SASL mechanism; the text has those that it offers."""


class NoBrokersAvailable(KafkaConnectionError):
    """Neither a bootstrap address nor a known broker responded; the text has each one's error."""


class KafkaTimeoutError(KafkaError):
    """A deadline of this client passed (`request_timeout_ms`, `delivery_timeout_ms`, …)."""

    retriable = True


class KafkaUnavailableError(KafkaError):
    """The cluster responds, but can't do the work now."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """The peer sent bytes that aren't the Kafka protocol, or were cut off.

    The connection is closed.
    """

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """A response carries a different correlation id from the oldest request in flight."""


class UnrecognizedBrokerVersion(KafkaError):
    """The peer responds to probes, but not like any known broker line.

    Retriable: a broker that dies during the probe looks the same, and so does a proxy that closes
    connections.
    """

    retriable = True


class CommitFailedError(KafkaError):
    """Offsets were not committed: this member is no longer in the group's current generation."""


class PartitionRevokedError(CommitFailedError, IllegalStateError):
    """Offsets were not committed: the group has revoked the partition from this member.

    It has both base classes because aiokafka raises `CommitFailedError` for such a commit during a
    rebalance, and `IllegalStateError` after it.
    """


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is "none".

    If a consumer raises it, `args[0]` is the `TopicPartition`, as in aiokafka.
    """


class RecordTooLargeError(KafkaError):
    """A message in the log is larger than the consumer's limits allow it to fetch.

    `args[1]` is the `TopicPartition` and `args[2]` the offset, as in aiokafka.
    """


class UnsupportedCodecError(KafkaError):
    """The broker line doesn't support this compression (lz4 before 0.8.2)."""


class ProducerClosed(KafkaError):
    """The producer was stopped before or during this call."""


class ProducerFenced(KafkaError):
    """In aiokafka: a newer producer has this `transactional_id`, or the transaction timed out.

    Never raised here: `transactional_id` is refused.
    """

    def __init__(
        self, msg: str = "a newer producer has this transactional_id, or the transaction timed out"
    ) -> None:
        super().__init__(msg)


class ConsumerStoppedError(Exception):
    """The consumer was stopped before or during this call (aiokafka raises the same)."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the consumer was stopped. Create a new one",)))


class IllegalOperation(Exception):
    """The operation isn't possible with this kind of subscription (aiokafka raises the same)."""


# --- raised by aiokafka, never by this client -----------------------------------------------------


class NodeNotReadyError(KafkaError):
    """A connection isn't open yet; this client waits for it, or raises KafkaConnectionError."""

    retriable = True


class Cancelled(KafkaError):
    """A request was cancelled; this client raises asyncio's CancelledError."""

    retriable = True


class TooManyInFlightRequests(KafkaError):
    """Too many requests are in flight; this client waits."""

    retriable = True


class StaleMetadata(KafkaError):
    """The metadata is stale; this client refreshes it."""

    retriable = True
    invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):
    """A Metadata response has no brokers; this client keeps the brokers that it knows."""

    retriable = True


class IncompatibleBrokerVersion(KafkaError):
    """The broker doesn't know a request; this client raises UnsupportedVersionError."""


class QuotaViolationError(KafkaError):
    """A quota was exceeded; brokers of this protocol delay their responses instead."""


# --- error codes of brokers -----------------------------------------------------------------------


class BrokerResponseError(KafkaError):
    """A broker's response holds an error code. Unknown codes are instances of this very class.

    `action` is for `_core.net.retry` and for code that handles a response, `retriable` is for code
    that catches the exception. They may differ: an unknown code has BACK_OFF, but isn't retriable.
    """

    errno: int = -1
    message: ClassVar[str] = "UNKNOWN"  # Kafka's name of the code
    action: ClassVar[Action] = Action.BACK_OFF
    description: ClassVar[str] = "unknown error code"

    def __init__(self, *args: object, errno: int | None = None) -> None:
        super().__init__(*args)
        if errno is not None:
            self.errno = errno

    def __str__(self) -> str:
        name = f" {type(self).__name__}:" if self.names_class else ""
        return f"[Error {self.errno}]{name} {self.text or self.description}"


class NoError(BrokerResponseError):
    errno = 0
    message = "NO_ERROR"
    action = Action.NONE
    description = "no error"


class UnknownError(BrokerResponseError):
    errno = -1
    message = "UNKNOWN"
    description = "the broker met an unexpected error. See its log"
    retriable = True


class OffsetOutOfRangeError(BrokerResponseError):
    """If a consumer raises it, `args[0]` is `{TopicPartition: offset}`, as in aiokafka."""

    errno = 1
    message = "OFFSET_OUT_OF_RANGE"
    action = Action.FINAL
    description = "the offset is outside the range that the broker keeps for the partition"


class CorruptRecordException(BrokerResponseError):
    """A message fails its CRC or has impossible lengths, or has no key for a compacted topic.

    Raised for responses with code 2, and by the consumer for fetched bytes. The consumer sets
    `partition`, `offset` and `next_offset`. `seek()` to `next_offset` skips the corrupt message.
    `next_offset` equals `offset` if that message precedes the one at `offset`. If the corrupt bytes
    don't show where the next message begins, `next_offset` is None: `seek()` to a clearly later
    offset.
    """

    errno = 2
    message = "CORRUPT_MESSAGE"
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
        self.partition, self.offset, self.next_offset = partition, offset, next_offset


InvalidMessageError = CorruptRecordException


class EmbeddedHeadersError(CorruptRecordException):
    """With headers="embedded": a value begins with 0xff, but is no whole envelope of headers."""


class UnknownTopicOrPartitionError(BrokerResponseError):
    errno = 3
    message = "UNKNOWN_TOPIC_OR_PARTITION"
    action = Action.REFRESH
    description = (
        "the broker doesn't host this topic or partition, or this principal may not describe it"
    )
    retriable = True
    invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
    message = "INVALID_FETCH_SIZE"
    action = Action.FINAL
    description = "the fetch size is negative"


class LeaderNotAvailableError(BrokerResponseError):
    errno = 5
    message = "LEADER_NOT_AVAILABLE"
    action = Action.REFRESH
    description = "the partition has no leader yet (just created, or in an election)"
    retriable = True
    invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError):
    errno = 6
    message = "NOT_LEADER_FOR_PARTITION"
    action = Action.REFRESH
    description = "the broker doesn't lead this partition"
    retriable = True
    invalid_metadata = True


class RequestTimedOutError(BrokerResponseError):
    """The broker timed out waiting for its replicas; the message is in the leader's log."""

    errno = 7
    message = "REQUEST_TIMED_OUT"
    action = Action.MAYBE_STORED
    description = "the broker timed out waiting for replicas; the message is in the leader's log"
    retriable = True


class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
    message = "BROKER_NOT_AVAILABLE"
    action = Action.BACK_OFF
    description = "a broker that this request needs is not alive"
    retriable = True


class ReplicaNotAvailableError(BrokerResponseError):
    """A replica is down. In Metadata this is no failure while the partition has a leader.

    Where it is raised, the call can be retried.
    """

    errno = 9
    message = "REPLICA_NOT_AVAILABLE"
    action = Action.NONE  # Metadata has it whenever a replica is down (brokers.md 4.7)
    description = "a replica is down"
    retriable = True


class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
    message = "MESSAGE_SIZE_TOO_LARGE"
    action = Action.SPLIT
    description = (
        "the message is larger than the broker's message.max.bytes, or the topic's "
        "max.message.bytes"
    )


class StaleControllerEpochError(BrokerResponseError):
    errno = 11
    message = "STALE_CONTROLLER_EPOCH"
    action = Action.FINAL
    description = "the controller's epoch is stale (between brokers only)"


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
    message = "OFFSET_METADATA_TOO_LARGE"
    action = Action.FINAL
    description = "the metadata string of a committed offset is too long"


class StaleLeaderEpochCodeError(BrokerResponseError):
    errno = 13
    message = "STALE_LEADER_EPOCH_CODE"
    action = Action.REFRESH
    description = "the leader's epoch is stale (between brokers only)"
    retriable = True


class GroupLoadInProgressError(BrokerResponseError):
    errno = 14
    message = "COORDINATOR_LOAD_IN_PROGRESS"
    action = Action.BACK_OFF
    description = "the coordinator is still loading the group's offsets"
    retriable = True


class GroupCoordinatorNotAvailableError(BrokerResponseError):
    errno = 15
    message = "COORDINATOR_NOT_AVAILABLE"
    action = Action.COORDINATOR
    description = "the group has no coordinator yet"
    retriable = True


class NotCoordinatorForGroupError(BrokerResponseError):
    errno = 16
    message = "NOT_COORDINATOR"
    action = Action.COORDINATOR
    description = "the broker isn't the coordinator of this group"
    retriable = True


class InvalidTopicError(BrokerResponseError):
    errno = 17
    message = "INVALID_TOPIC"
    action = Action.FINAL
    description = "the topic name isn't allowed, or the topic is internal"


class RecordListTooLargeError(BrokerResponseError):
    errno = 18
    message = "RECORD_LIST_TOO_LARGE"
    action = Action.SPLIT
    description = "the message set is larger than the broker's segment size"


class NotEnoughReplicasError(BrokerResponseError):
    errno = 19
    message = "NOT_ENOUGH_REPLICAS"
    action = Action.NOT_STORED
    description = "fewer replicas in sync than min.insync.replicas; nothing was stored"
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    errno = 20
    message = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    action = Action.MAYBE_STORED
    description = "fewer replicas in sync than min.insync.replicas, found after the append"
    retriable = True


class InvalidRequiredAcksError(BrokerResponseError):
    errno = 21
    message = "INVALID_REQUIRED_ACKS"
    action = Action.FINAL
    description = "required_acks isn't -1, 0 or 1 (brokers from 0.9 on)"


class IllegalGenerationError(BrokerResponseError):
    errno = 22
    message = "ILLEGAL_GENERATION"
    action = Action.REJOIN
    description = "the group is in another generation"


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23
    message = "INCONSISTENT_GROUP_PROTOCOL"
    action = Action.FINAL
    description = "the member shares no assignment strategy with the group"


class InvalidGroupIdError(BrokerResponseError):
    errno = 24
    message = "INVALID_GROUP_ID"
    action = Action.FINAL
    description = "the group id isn't allowed"


class UnknownMemberIdError(BrokerResponseError):
    errno = 25
    message = "UNKNOWN_MEMBER_ID"
    action = Action.REJOIN
    description = "the coordinator doesn't know this member, or has evicted it"


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26
    message = "INVALID_SESSION_TIMEOUT"
    action = Action.FINAL
    description = "the session timeout is outside the broker's bounds"


class RebalanceInProgressError(BrokerResponseError):
    errno = 27
    message = "REBALANCE_IN_PROGRESS"
    action = Action.REJOIN
    description = "the group is rebalancing"


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28
    message = "INVALID_COMMIT_OFFSET_SIZE"
    action = Action.FINAL
    description = "the offset commit is too large"


class TopicAuthorizationFailedError(BrokerResponseError):
    errno = 29
    message = "TOPIC_AUTHORIZATION_FAILED"
    action = Action.FINAL
    description = (
        "the client is not authorized to use this topic: its principal needs Describe, and Write "
        "to produce, Read to consume and commit"
    )


class GroupAuthorizationFailedError(BrokerResponseError):
    errno = 30
    message = "GROUP_AUTHORIZATION_FAILED"
    action = Action.FINAL
    description = (
        "the client is not authorized to use this group: its principal needs Read to join it and "
        "to commit, Describe to look at it, Delete to delete it"
    )


class ClusterAuthorizationFailedError(BrokerResponseError):
    errno = 31
    message = "CLUSTER_AUTHORIZATION_FAILED"
    action = Action.FINAL
    description = (
        "the client is not authorized to do this on the cluster: its principal needs Describe to "
        "list groups, Create to create topics"
    )


AUTHORIZATION_ERRORS: Final = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)
"""An authorizer doesn't let the client's principal do this."""


def topic_code(code: int) -> int:
    """Return the error code about a topic or partition, with 29 in place of HDP's 24.

    HDP 2.3 (0.8.2) responds with 24 to what the client isn't authorized to do; other brokers use it
    for the name of a group only (docs/brokers.md 14.15).
    """
    return TopicAuthorizationFailedError.errno if code == InvalidGroupIdError.errno else code


def group_code(code: int) -> int:
    """Return the error code about a group's offsets or coordinator, with 30 in place of HDP's 24.

    In such a response code 24 isn't about the group's name, because the client refuses a name that
    brokers wouldn't accept.
    """
    return GroupAuthorizationFailedError.errno if code == InvalidGroupIdError.errno else code


class InvalidTimestampError(BrokerResponseError):
    errno = 32
    message = "INVALID_TIMESTAMP"
    action = Action.FINAL
    description = "the timestamp is too far from the broker's clock"


class UnsupportedVersionError(BrokerResponseError):
    """The broker line, or the 0.8 protocol itself, doesn't support the request."""

    errno = 35
    message = "UNSUPPORTED_VERSION"
    action = Action.FINAL
    description = "the protocol version isn't supported"


class TopicAlreadyExistsError(BrokerResponseError):
    errno = 36
    message = "TOPIC_ALREADY_EXISTS"
    action = Action.FINAL
    description = "the topic exists already"


class InvalidPartitionsError(BrokerResponseError):
    errno = 37
    message = "INVALID_PARTITIONS"
    action = Action.FINAL
    description = "the number of partitions isn't allowed"


class InvalidReplicationFactorError(BrokerResponseError):
    errno = 38
    message = "INVALID_REPLICATION_FACTOR"
    action = Action.FINAL
    description = "the replication factor isn't allowed, or too few brokers are alive"


class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = 39
    message = "INVALID_REPLICATION_ASSIGNMENT"
    action = Action.FINAL
    description = "the replica assignment isn't allowed"


class InvalidConfigurationError(BrokerResponseError):
    errno = 40
    message = "INVALID_CONFIG"
    action = Action.FINAL
    description = "a configuration value isn't allowed"


class InvalidRequestError(BrokerResponseError):
    errno = 42
    message = "INVALID_REQUEST"
    action = Action.FINAL
    description = "the request contradicts itself"


class UnsupportedForMessageFormatError(BrokerResponseError):
    """The brokers store the topic in message format 0, which has no timestamps."""

    errno = 43
    message = "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    action = Action.FINAL
    description = "the message format of the topic doesn't support this (no timestamps)"


class UnsupportedCompressionTypeError(BrokerResponseError):
    """The topic's messages are in zstd, which brokers don't convert for requests this old."""

    errno = 76
    message = "UNSUPPORTED_COMPRESSION_TYPE"
    action = Action.FINAL
    description = "the topic's compression (zstd) can't be read with a protocol this old"


class GroupMaxSizeReachedError(BrokerResponseError):
    errno = 81
    message = "GROUP_MAX_SIZE_REACHED"
    action = Action.FINAL
    description = "the group has the maximum number of members (brokers from 2.2 on)"


class InvalidRecordError(BrokerResponseError):
    errno = 87
    message = "INVALID_RECORD"
    action = Action.FINAL
    description = "the broker's validation rejected the message (brokers from 2.4 on)"


# --- error codes that producer and consumer never raise -------------------------------------------


class UnsentRequestError(BrokerResponseError):
    """An error code that producer and consumer never raise as this class.

    They don't send the request, or the version of it, whose response can have the code. For a code
    of SASL they raise `AuthenticationFailedError`. The admin client sends DeleteGroups
    (`NonEmptyGroup`, `GroupIdNotFound`). The other subclasses exist for `except` clauses and for
    `for_code`. The description of each is its docstring.
    """

    action = Action.FINAL

    def __init_subclass__(cls, errno: int, message: str) -> None:
        cls.errno = errno
        cls.message = message
        text = cls.__doc__ or message  # `python -OO` has no docstrings
        cls.description = text[0].lower() + text[1:].rstrip(".")


class UnsupportedSaslMechanismError(
    UnsentRequestError, errno=33, message="UNSUPPORTED_SASL_MECHANISM"
):
    """The broker doesn't support the SASL mechanism."""


class IllegalSaslStateError(UnsentRequestError, errno=34, message="ILLEGAL_SASL_STATE"):
    """The request doesn't fit the state of the SASL authentication."""


class NotControllerError(UnsentRequestError, errno=41, message="NOT_CONTROLLER"):
    """The broker isn't the controller."""

    action = Action.BACK_OFF
    retriable = True


class PolicyViolationError(UnsentRequestError, errno=44, message="POLICY_VIOLATION"):
    """The request violates a policy of the broker."""


class OutOfOrderSequenceNumber(
    UnsentRequestError, errno=45, message="OUT_OF_ORDER_SEQUENCE_NUMBER"
):
    """The sequence number of an idempotent producer is out of order."""


class DuplicateSequenceNumber(UnsentRequestError, errno=46, message="DUPLICATE_SEQUENCE_NUMBER"):
    """The sequence number of an idempotent producer was used before."""


class InvalidProducerEpoch(UnsentRequestError, errno=47, message="INVALID_PRODUCER_EPOCH"):
    """A newer producer has the same transactional id, or the transaction timed out."""


class InvalidTxnState(UnsentRequestError, errno=48, message="INVALID_TXN_STATE"):
    """The operation doesn't fit the state of the transaction."""


class InvalidProducerIdMapping(UnsentRequestError, errno=49, message="INVALID_PRODUCER_ID_MAPPING"):
    """The producer id isn't that of the transactional id."""


class InvalidTransactionTimeout(
    UnsentRequestError, errno=50, message="INVALID_TRANSACTION_TIMEOUT"
):
    """The transaction timeout exceeds the broker's transaction.max.timeout.ms."""


class ConcurrentTransactions(UnsentRequestError, errno=51, message="CONCURRENT_TRANSACTIONS"):
    """Another operation on the same transaction is in progress."""


class TransactionCoordinatorFenced(
    UnsentRequestError, errno=52, message="TRANSACTION_COORDINATOR_FENCED"
):
    """The transaction coordinator is no longer the current one of the producer."""


class TransactionalIdAuthorizationFailed(
    UnsentRequestError, errno=53, message="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    """The client is not authorized to use this transactional id."""


class SecurityDisabled(UnsentRequestError, errno=54, message="SECURITY_DISABLED"):
    """The broker's security features are disabled."""


class OperationNotAttempted(UnsentRequestError, errno=55, message="OPERATION_NOT_ATTEMPTED"):
    """The broker didn't try this operation, since an earlier one of the request failed."""


class KafkaStorageError(UnsentRequestError, errno=56, message="KAFKA_STORAGE_ERROR"):
    """The broker's disk failed."""

    action = Action.REFRESH
    retriable = True
    invalid_metadata = True


class LogDirNotFound(UnsentRequestError, errno=57, message="LOG_DIR_NOT_FOUND"):
    """The broker has no such log directory."""


class SaslAuthenticationFailed(UnsentRequestError, errno=58, message="SASL_AUTHENTICATION_FAILED"):
    """The SASL authentication failed."""


class UnknownProducerId(UnsentRequestError, errno=59, message="UNKNOWN_PRODUCER_ID"):
    """The broker doesn't know the producer id, for instance because its records were deleted."""


class ReassignmentInProgress(UnsentRequestError, errno=60, message="REASSIGNMENT_IN_PROGRESS"):
    """The partition is being reassigned."""


class DelegationTokenAuthDisabled(
    UnsentRequestError, errno=61, message="DELEGATION_TOKEN_AUTH_DISABLED"
):
    """The broker's delegation tokens are disabled."""


class DelegationTokenNotFound(UnsentRequestError, errno=62, message="DELEGATION_TOKEN_NOT_FOUND"):
    """The broker doesn't know the delegation token."""


class DelegationTokenOwnerMismatch(
    UnsentRequestError, errno=63, message="DELEGATION_TOKEN_OWNER_MISMATCH"
):
    """The principal may not renew or expire the delegation token."""


class DelegationTokenRequestNotAllowed(
    UnsentRequestError, errno=64, message="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
):
    """Delegation tokens can't be requested on this connection."""


class DelegationTokenAuthorizationFailed(
    UnsentRequestError, errno=65, message="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """The client is not authorized to use the delegation token."""


class DelegationTokenExpired(UnsentRequestError, errno=66, message="DELEGATION_TOKEN_EXPIRED"):
    """The delegation token has expired."""


class InvalidPrincipalType(UnsentRequestError, errno=67, message="INVALID_PRINCIPAL_TYPE"):
    """The broker doesn't support the type of the principal."""


class NonEmptyGroup(UnsentRequestError, errno=68, message="NON_EMPTY_GROUP"):
    """The group has members."""


class GroupIdNotFound(UnsentRequestError, errno=69, message="GROUP_ID_NOT_FOUND"):
    """The group doesn't exist."""


class FetchSessionIdNotFound(UnsentRequestError, errno=70, message="FETCH_SESSION_ID_NOT_FOUND"):
    """The broker doesn't know the fetch session."""


class InvalidFetchSessionEpoch(UnsentRequestError, errno=71, message="INVALID_FETCH_SESSION_EPOCH"):
    """The epoch of the fetch session is wrong."""


class ListenerNotFound(UnsentRequestError, errno=72, message="LISTENER_NOT_FOUND"):
    """The partition's leader has no listener like the one that received the request."""


class MemberIdRequired(UnsentRequestError, errno=79, message="MEMBER_ID_REQUIRED"):
    """The member must join again with the member id in the response."""


# aiokafka's other names for these
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError


BROKER_ERRORS: Final[dict[int, type[BrokerResponseError]]] = {
    cls.errno: cls
    for base in (BrokerResponseError, UnsentRequestError)
    for cls in base.__subclasses__()
    if cls is not UnsentRequestError
}
"""The class of each error code that brokers 0.8.0 – 3.9 send to this client or to aiokafka."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of an error code, as aiokafka does: `UnknownError` for an unknown one."""
    return BROKER_ERRORS.get(error_code, UnknownError)


def error_class(code: int) -> type[BrokerResponseError]:
    """Return the class of an error code; `BrokerResponseError` itself for an unknown one."""
    return BROKER_ERRORS.get(code, BrokerResponseError)


def broker_error(code: int, where: str = "") -> BrokerResponseError:
    """Return the exception for `code`; its text says `where` it happened and what it means.

    Unknown codes keep their number: `broker_error(99).errno == 99`.
    """
    cls = error_class(code)
    text = f"{where}: {cls.description}" if where else cls.description
    return cls(text, errno=code)


def action_for(code: int) -> Action:
    """Return what to do about an error code; `BACK_OFF` for an unknown one."""
    return error_class(code).action
