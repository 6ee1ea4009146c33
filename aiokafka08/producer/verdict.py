"""What a broker's answer means for a batch. Pure; `errors` has the table of codes.

Law: a batch is stored only where an answer says so for its partition, with an offset. Codes that
may pass are tried again until `delivery_timeout_ms`; what nobody can explain is tried again a
bounded number of times, then told with its number.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from aiokafka08.errors import (
    BROKER_ERRORS,
    Action,
    KafkaError,
    KafkaProtocolError,
    MessageSizeTooLargeError,
    UnknownError,
    action_for,
    broker_error,
)
from aiokafka08.protocol.api import ProducedPartition
from aiokafka08.structs import TopicPartition

MAX_UNEXPLAINED: Final = 5
"""How often a batch is tried again for a reason that the client doesn't know."""


class Outcome(enum.Enum):
    """What to do with the batch."""

    STORED = "resolve it"
    RETRY = "put it back"
    SPLIT = "send its halves"
    FAILED = "give it up"


class Verdict(NamedTuple):
    """`may_be_stored`: trying again may store the batch twice. `unexplained`: for a reason that the
    client doesn't know."""

    outcome: Outcome
    error: KafkaError | None = None
    may_be_stored: bool = False
    refresh: bool = False
    unexplained: bool = False


_STORED: Final = Verdict(Outcome.STORED)


def judge(
    answer: ProducedPartition | None,
    topic_partition: TopicPartition,
    messages: int,
    unexplained: int,
) -> Verdict:
    """Judge the answer for one batch.

    Args:
        answer: what the broker says about the partition; None where it says nothing.
        topic_partition: the batch's.
        messages: how many the batch has.
        unexplained: how often it has come back for unknown reasons already.
    """
    if answer is not None and answer.error_code == 0 and answer.offset >= 0:
        return _STORED
    where = f"produce to {topic_partition.topic}/{topic_partition.partition}"
    if answer is None:
        error: KafkaError = KafkaProtocolError(f"{where}: the broker left it out of its answer")
        return _unexplained(error, unexplained, may_be_stored=True)
    code = answer.error_code
    if code == 0:  # docs/brokers.md 5.7, 6.8
        error = KafkaError(f"{where}: the broker reports success, but stored nothing (offset -1)")
        return _unexplained(error, unexplained, may_be_stored=False)
    error = broker_error(code, where)
    if code not in BROKER_ERRORS or code == UnknownError.errno:
        return _unexplained(error, unexplained, may_be_stored=True)
    match action_for(code):
        case Action.REFRESH:
            return Verdict(Outcome.RETRY, error, refresh=True)
        case Action.BACK_OFF | Action.NOT_STORED:
            return Verdict(Outcome.RETRY, error)
        case Action.MAYBE_STORED:
            return Verdict(Outcome.RETRY, error, may_be_stored=True)
        case Action.SPLIT if messages > 1:
            return Verdict(Outcome.SPLIT, error)
        case Action.SPLIT:
            return Verdict(Outcome.FAILED, MessageSizeTooLargeError(error.text))
        case Action.FINAL:
            return Verdict(Outcome.FAILED, error)
        case _:  # a code that has no business in an answer to Produce
            return _unexplained(error, unexplained, may_be_stored=True)


def _unexplained(error: KafkaError, before: int, *, may_be_stored: bool) -> Verdict:
    if before >= MAX_UNEXPLAINED:
        return Verdict(Outcome.FAILED, error)
    return Verdict(Outcome.RETRY, error, may_be_stored, refresh=True, unexplained=True)
