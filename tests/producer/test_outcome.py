"""`outcome.decide`: what each response to Produce means for a batch."""

from __future__ import annotations

import pytest

from aiokafka08.errors import (
    BrokerResponseError,
    CorruptRecordException,
    KafkaProtocolError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
)
from aiokafka08.producer.outcome import (
    MAX_UNEXPLAINED_RETRIES,
    BatchDecision,
    Outcome,
    decide,
)
from aiokafka08.protocol.requests.produce import ProducedPartition
from aiokafka08.structs import TopicPartition

TP = TopicPartition("t", 3)


def decision(code: int, offset: int = -1, messages: int = 2, unexplained: int = 0) -> BatchDecision:
    return decide(ProducedPartition(3, code, offset), TP, messages, unexplained)


def test_code_0_with_an_offset_is_stored() -> None:
    assert decision(0, 0) == BatchDecision(Outcome.STORED)


@pytest.mark.parametrize("code", [3, 5, 6])
def test_stale_metadata_refreshes_and_retries(code: int) -> None:
    result = decision(code)
    assert (result.outcome, result.refresh, result.may_be_stored) == (Outcome.RETRY, True, False)
    assert "t/3" in str(result.error)


def test_new_leader_may_have_what_waited_for_replicas() -> None:
    response = ProducedPartition(3, 6, -1)
    assert decide(response, TP, 2, 0, waits_for_replicas=True).may_be_stored
    assert not decide(ProducedPartition(3, 3, -1), TP, 2, 0, waits_for_replicas=True).may_be_stored


@pytest.mark.parametrize(("code", "may_be_stored"), [(7, True), (20, True), (19, False)])
def test_replica_errors_are_retried(code: int, may_be_stored: bool) -> None:
    result = decision(code, 17)  # 7 comes with an offset (docs/brokers.md 5.1)
    assert (result.outcome, result.may_be_stored) == (Outcome.RETRY, may_be_stored)
    assert not result.unexplained


@pytest.mark.parametrize("code", [10, 18])
def test_too_large_splits_down_to_single_messages(code: int) -> None:
    assert decision(code).outcome is Outcome.SPLIT
    alone = decision(code, messages=1)
    assert alone.outcome is Outcome.FAILED
    assert isinstance(alone.error, MessageSizeTooLargeError)
    if code == MessageSizeTooLargeError.errno:
        assert "the broker's message.max.bytes" in str(alone.error)


@pytest.mark.parametrize("code", [2, 17, 21, 29, 32, 87])
def test_final_codes_fail_the_batch(code: int) -> None:
    result = decision(code)
    assert result.outcome is Outcome.FAILED
    assert isinstance(result.error, BrokerResponseError)
    assert result.error.errno == code


@pytest.mark.parametrize("code", [-1, 4711, 9, 16])
def test_unexplained_errors_are_retried_a_few_times(code: int) -> None:
    for before in range(MAX_UNEXPLAINED_RETRIES):
        result = decision(code, unexplained=before)
        assert (result.outcome, result.unexplained) == (Outcome.RETRY, True)
    result = decision(code, unexplained=MAX_UNEXPLAINED_RETRIES)
    assert result.outcome is Outcome.FAILED
    assert isinstance(result.error, BrokerResponseError)
    assert result.error.errno == code
    assert str(code) in str(result.error)


def test_success_without_an_offset_is_not_stored() -> None:
    result = decision(0, -1)
    assert (result.outcome, result.may_be_stored, result.unexplained) == (
        Outcome.RETRY,
        False,
        True,
    )
    assert decision(0, -1, unexplained=MAX_UNEXPLAINED_RETRIES).outcome is Outcome.FAILED


def test_a_partition_without_response_may_be_stored() -> None:
    result = decide(None, TP, 1, 0)
    assert (result.outcome, result.may_be_stored) == (Outcome.RETRY, True)
    assert isinstance(decide(None, TP, 1, MAX_UNEXPLAINED_RETRIES).error, KafkaProtocolError)


def test_errors_match_the_table_of_codes() -> None:
    assert isinstance(decision(6).error, NotLeaderForPartitionError)
    assert isinstance(decision(2).error, CorruptRecordException)
