"""`outcome.decide`: what each response to Produce means for a batch."""

from __future__ import annotations

from functools import partial

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


def decision(
    code: int,
    offset: int = -1,
    messages: int = 2,
    unexplained: int = 0,
    key_lengths: tuple[int, int] = (3, 3),
) -> BatchDecision:
    response = ProducedPartition(3, code, offset)
    return decide(response, TP, messages, unexplained, key_lengths=lambda: key_lengths)


def test_code_0_with_an_offset_is_stored() -> None:
    assert decision(0, 0) == BatchDecision(Outcome.STORED)


@pytest.mark.parametrize("code", [3, 5, 6])
def test_stale_metadata_refreshes_and_retries(code: int) -> None:
    result = decision(code)
    assert (result.outcome, result.refresh, result.may_be_stored) == (Outcome.RETRY, True, False)
    assert "t/3" in str(result.error)


def test_new_leader_may_have_what_waited_for_replicas() -> None:
    decide_waiting = partial(decide, key_lengths=lambda: (0, 0), waits_for_replicas=True)
    assert decide_waiting(ProducedPartition(3, 6, -1), TP, 2, 0).may_be_stored
    assert not decide_waiting(ProducedPartition(3, 3, -1), TP, 2, 0).may_be_stored


@pytest.mark.parametrize(("code", "may_be_stored"), [(7, True), (20, True), (19, False)])
def test_replica_errors_are_retried(code: int, may_be_stored: bool) -> None:
    result = decision(code, 17)  # 7 comes with an offset (docs/brokers.md 5.1)
    assert (result.outcome, result.may_be_stored) == (Outcome.RETRY, may_be_stored)
    assert not result.unexplained


@pytest.mark.parametrize("code", [10, 18])
def test_too_large_splits_down_to_single_messages(code: int) -> None:
    split = decision(code)
    assert (split.outcome, split.too_large, split.may_be_stored) == (Outcome.SPLIT, True, False)
    alone = decision(code, messages=1)
    assert alone.outcome is Outcome.FAILED
    assert isinstance(alone.error, MessageSizeTooLargeError)
    if code == MessageSizeTooLargeError.errno:
        assert "the broker's message.max.bytes" in str(alone.error)


@pytest.mark.parametrize("shortest", [-1, 0])
@pytest.mark.parametrize("code", [2, 87])
def test_batch_with_a_message_without_a_key_is_split(code: int, shortest: int) -> None:
    """The size isn't the reason: later batches stay as large as they are. 0.9 takes an empty key
    for none, 0.10 doesn't (docs/brokers.md 5.11)."""
    split = decision(code, messages=7, key_lengths=(shortest, 5))
    assert (split.outcome, split.too_large, split.may_be_stored) == (Outcome.SPLIT, False, False)
    assert "7 messages, of which at least one has no key" in str(split.error)


@pytest.mark.parametrize("code", [2, 87])
def test_batch_with_keys_alone_fails_whole(code: int) -> None:
    """Its halves would be refused for the same reason, which isn't a missing key."""
    for messages in (1, 500):
        result = decision(code, messages=messages)
        assert result.outcome is Outcome.FAILED
        assert isinstance(result.error, BrokerResponseError)
        assert result.error.errno == code
        assert "key" not in str(result.error)


@pytest.mark.parametrize("code", [2, 87])
def test_messages_without_a_key_fail_at_once_with_the_reason(code: int) -> None:
    """All have the same defect: one request shows it."""
    for messages, named in ((1, "1 message"), (500, "500 messages")):
        result = decision(code, messages=messages, key_lengths=(-1, -1))
        assert result.outcome is Outcome.FAILED
        assert isinstance(result.error, BrokerResponseError)
        assert result.error.errno == code
        assert f"t/3: the broker refused {named} without a key" in str(result.error)
        assert "Either the topic is compacted and needs keys: send a key" in str(result.error)
        assert str(result.error).endswith(f"Or {type(result.error).description}")


@pytest.mark.parametrize("code", [2, 87])
def test_message_with_an_empty_key_fails_as_one_without(code: int) -> None:
    error = decision(code, messages=1, key_lengths=(0, 0)).error
    assert "the topic is compacted and needs keys" in str(error)


def test_timestamps_are_refused_with_and_without_keys() -> None:
    for length in (-1, 0, 5):
        split = decision(32, messages=2, key_lengths=(length, length))
        assert (split.outcome, split.too_large) == (Outcome.SPLIT, False)
        alone = decision(32, messages=1, key_lengths=(length, length))
        assert "the timestamp is too far from the broker's clock" in str(alone.error)


@pytest.mark.parametrize("code", [17, 21, 29])
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
    decide_left_out = partial(decide, None, TP, 1, key_lengths=lambda: (0, 0))
    result = decide_left_out(0)
    assert (result.outcome, result.may_be_stored) == (Outcome.RETRY, True)
    assert isinstance(decide_left_out(MAX_UNEXPLAINED_RETRIES).error, KafkaProtocolError)


def test_errors_match_the_table_of_codes() -> None:
    assert isinstance(decision(6).error, NotLeaderForPartitionError)
    assert isinstance(decision(2).error, CorruptRecordException)
