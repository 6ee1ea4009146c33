"""Which start owns a bridge, and which transactional ids it has to fence."""

from __future__ import annotations

import pytest

from aiokafka08.bridge.sink.claims import (
    CLAIM_KEY,
    Claim,
    decode_claims,
    encode_claim,
    next_claim,
    producer_of,
)
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition


def test_claims_survive_their_encoding() -> None:
    claims = [Claim("a", 1, 1), Claim("b", 4, 4), Claim("c", 2, 4)]
    assert decode_claims((CLAIM_KEY, encode_claim(one)) for one in claims) == claims


def test_other_records_of_state_topic_are_passed_over() -> None:
    assert decode_claims([(b"other", b"x"), (None, b"y"), (CLAIM_KEY, None)]) == []


@pytest.mark.parametrize("value", [b"", b"[]", b'{"version": 1}', b'{"version": 0, "run": "a"}'])
def test_unreadable_claim_is_refused(value: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match="can't be read"):
        decode_claims([(CLAIM_KEY, value)])


def test_number_of_ids_never_falls() -> None:
    """A start with fewer producers still initialises the ids of those before it."""
    first = next_claim([], "a", 4)
    second = next_claim([first], "b", 1)
    assert (second.producers, second.ids) == (1, 4)
    assert next_claim([second], "c", 8).ids == 8


def test_each_partition_has_one_producer() -> None:
    found = {producer_of(TopicPartition("t", number), 4) for number in range(100)}
    assert found == {0, 1, 2, 3}
    assert producer_of(TopicPartition("orders", 0), 4) == 2, "the rule must not change"
