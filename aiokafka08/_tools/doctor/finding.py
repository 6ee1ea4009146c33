"""Findings of the doctor, and the list of their codes. Pure.

Invariant: docs/doctor.md has the same list of codes (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka08._tools import findings
from aiokafka08._tools.doctor.places import node_list
from aiokafka08._tools.findings import Code, Severity
from aiokafka08.errors import IllegalArgumentError


class FindingCode(Code):
    """The codes with their severities and meanings, the most urgent first."""

    KEYTAB = (
        "keytab-unusable",
        Severity.CRITICAL,
        "the keytab can't be read, or has no valid key of the principal",
    )
    TICKET = (
        "no-ticket",
        Severity.CRITICAL,
        "there is no Kerberos ticket, or it has expired",
    )
    CLIENT_PRINCIPAL = (
        "unknown-client-principal",
        Severity.CRITICAL,
        "the KDC doesn't know the client's principal, or its key has expired",
    )
    BROKER_PRINCIPAL = (
        "unknown-broker-principal",
        Severity.CRITICAL,
        "the KDC doesn't know the brokers' principal: its service or host name is wrong",
    )
    CLOCK = (
        "clock-skew",
        Severity.CRITICAL,
        "the clocks of client and KDC differ too much",
    )
    REALM = (
        "unknown-realm",
        Severity.CRITICAL,
        "krb5.conf doesn't know the realm",
    )
    KDC = (
        "kdc-unreachable",
        Severity.CRITICAL,
        "no KDC of the realm responds",
    )
    MECHANISM = (
        "mechanism-not-enabled",
        Severity.CRITICAL,
        "the brokers don't offer the SASL mechanism",
    )
    LISTENER = (
        "not-a-sasl-listener",
        Severity.CRITICAL,
        "the client authenticates, and the port serves clients that don't",
    )
    REFUSED = (
        "authentication-refused",
        Severity.CRITICAL,
        "the brokers refuse the client's credentials",
    )
    LEADERLESS_PARTITION = (
        "leaderless-partition",
        Severity.CRITICAL,
        "no broker leads the partition: it can't be written or read",
    )
    UNREACHABLE_BROKER = (
        "unreachable-broker",
        Severity.CRITICAL,
        "the cluster names a broker that doesn't respond",
    )
    NOT_LEADING = (
        "not-leading",
        Severity.CRITICAL,
        "a live broker leads nothing, or not what the cluster says that it leads",
    )
    UNDER_MIN_ISR = (
        "under-min-isr",
        Severity.CRITICAL,
        "fewer replicas are in sync than min.insync.replicas: acks=all writes are refused",
    )
    DAMAGED_LOG = (
        "damaged-log",
        Severity.CRITICAL,
        "damage in the log hides a group's next message",
    )
    MIN_ISR_TOO_HIGH = (
        "min-isr-too-high",
        Severity.CRITICAL,
        "min.insync.replicas is above the replication factor: acks=all writes are always refused",
    )
    GROUP_OVERTAKEN = (
        "group-overtaken",
        Severity.CRITICAL,
        "retention deleted messages that a group in use has not read",
    )
    RETENTION_DELETES_ALL = (
        "retention-deletes-all",
        Severity.CRITICAL,
        "retention.ms is negative: brokers of 0.8.1 and 0.8.2 then delete all messages",
    )
    UNDER_REPLICATED = (
        "under-replicated",
        Severity.WARNING,
        "replicas are missing from the in-sync replicas (ISR)",
    )
    LONG_TOPIC_NAME = (
        "long-topic-name",
        Severity.WARNING,
        "a topic's name is so long that brokers up to 0.9 may lead nothing after a restart",
    )
    STALE_ISR = (
        "stale-isr",
        Severity.WARNING,
        "the brokers' Metadata reports another ISR than ZooKeeper has",
    )
    MARKED_FOR_DELETION = (
        "marked-for-deletion",
        Severity.WARNING,
        "a topic is marked for deletion, and still there",
    )
    PENDING_REASSIGNMENT = (
        "pending-reassignment",
        Severity.WARNING,
        "partitions are being moved to other brokers, or the move doesn't end",
    )
    MIXED_LINES = (
        "mixed-lines",
        Severity.WARNING,
        "the brokers are of different versions",
    )
    MIXED_FORMATS = (
        "mixed-formats",
        Severity.WARNING,
        "a topic has messages of formats 0 and 1",
    )
    FOREIGN_FORMAT = (
        "foreign-format",
        Severity.WARNING,
        "messages of a format that the brokers don't know, and send unchanged to clients",
    )
    UNCLEAN_ELECTION = (
        "unclean-election",
        Severity.WARNING,
        "an out-of-sync replica may become leader, which loses acknowledged messages",
    )
    MIN_ISR_TOO_LOW = (
        "min-isr-too-low",
        Severity.WARNING,
        "min.insync.replicas=1: a message that one broker alone has is acknowledged",
    )
    MIN_ISR_ALL_REPLICAS = (
        "min-isr-all-replicas",
        Severity.WARNING,
        "min.insync.replicas equals the replication factor: one stopped broker stops writes",
    )
    RETENTION_NEAR = (
        "retention-near",
        Severity.WARNING,
        "retention will soon delete messages that a group has not read",
    )
    IDLE_GROUP_LAG = (
        "idle-group-lag",
        Severity.WARNING,
        "a group has lag, and no members",
    )
    OFFSET_BEYOND_END = (
        "offset-beyond-end",
        Severity.WARNING,
        "a group's committed offset is after the end of the partition",
    )
    LARGE_SETS = (
        "large-sets",
        Severity.WARNING,
        "message sets are so large that the broker's search takes most of each fetch",
    )
    DEAD_CLEANER = (
        "dead-cleaner",
        Severity.WARNING,
        "a compacted topic grows and isn't compacted",
    )
    NO_PERMISSION = (
        "no-permission",
        Severity.WARNING,
        "the client's principal lacks a right, so the doctor saw less",
    )
    UNREADABLE = (
        "unreadable",
        Severity.WARNING,
        "a broker or ZooKeeper didn't let the doctor read something",
    )
    UNCHECKED = (
        "unchecked",
        Severity.NOTE,
        "what takes --zookeeper, --watch or rights to check",
    )
    UNKNOWN_SETTINGS = (
        "unknown-settings",
        Severity.NOTE,
        "brokers' settings that can't be requested by this client",
    )
    MESSAGE_FORMATS = (
        "message-formats",
        Severity.NOTE,
        "the message formats in use",
    )


@dataclass(frozen=True, slots=True)
class Finding(findings.CodedFinding):
    """One finding of the doctor.

    Attributes:
        missing: Node ids of brokers that don't respond; if they did, the finding would end.
    """

    missing: frozenset[int] = frozenset()

    @property
    def cause(self) -> str | None:
        """See `findings.CodedFinding`."""
        if not self.missing:
            return None
        verb = "is" if len(self.missing) == 1 else "are"
        return f"{node_list(self.missing)} {verb} missing"


def find_code(option: str, text: str) -> FindingCode:
    """Return a code by its text.

    Raises:
        IllegalArgumentError: there is no such code; the error names `option`.
    """
    codes = {str(code.value): code for code in FindingCode}
    if text not in codes:
        raise IllegalArgumentError(f"{option}={text!r}: expected one of {', '.join(codes)}")
    return codes[text]
