"""Which start owns a bridge, which ids it has to fence, and what the state topic has."""

from __future__ import annotations

import json
from unittest.mock import AsyncMock, create_autospec

import pytest

from aiokafka08.bridge.config import MOST_PRODUCERS, parse_config
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.sink.claims import (
    CLAIM_KEY,
    Claim,
    decode_claims,
    encode_claim,
    next_claim,
    producer_of,
)
from aiokafka08.bridge.sink.sink import BATCH_BYTES, BridgeRun, TransactionSink
from aiokafka08.bridge.source.topic_identity import _decoded
from aiokafka08.bridge.target.target_cluster import Target, TargetRecord
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition


def test_claims_survive_their_encoding() -> None:
    claims = [Claim("a", 1, 1), Claim("b", 4, 4), Claim("c", 2, 4)]
    assert decode_claims((CLAIM_KEY, encode_claim(one)) for one in claims) == claims


def test_other_records_of_state_topic_are_passed_over() -> None:
    assert decode_claims([(b"other", b"x"), (None, b"y"), (CLAIM_KEY, None)]) == []


def claim(**changed: object) -> bytes:
    return json.dumps({"version": 0, "run": "a", "producers": 2, "ids": 4, **changed}).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"version": 1}',
        b'{"version": 0, "run": "a"}',
        claim(ids=1_000_000_000),  # a start initialises so many transactional ids
        claim(ids=1),
        claim(producers=0),
        claim(producers="2"),
        claim(producers=True),
        claim(run=["a"]),
        claim(run=""),
    ],
)
def test_unreadable_claim_is_refused(value: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match="can't be read"):
        decode_claims([(CLAIM_KEY, value)])


def test_claim_of_the_most_producers_is_read() -> None:
    assert decode_claims([(CLAIM_KEY, claim(ids=MOST_PRODUCERS))]) == [Claim("a", 2, 64)]


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 100_000,
        b'{"version": 1, "identity": "id a"}',
        b'{"version": 0, "identity": ""}',
        b'{"version": 0, "identity": " "}',
        b'{"version": 0, "identity": 5}',
        b'{"version": 0, "identity": "id a", "recreated": 5}',
        b'{"version": 0, "identity": "id a", "recreated": ""}',
    ],
)
def test_unreadable_identity_of_a_topic_is_refused(value: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match="offset 7 of the state topic can't be read"):
        _decoded([TargetRecord(0, 7, b"topic:t", value, -1)])


def test_identities_are_read() -> None:
    values = [b'{"version": 0, "identity": "id a", "recreated": "id b"}', None]
    records = [TargetRecord(0, 7, b"topic:t%d" % at, one, -1) for at, one in enumerate(values)]
    assert _decoded(records) == {"t0": ("id a", "id b")}


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


async def test_older_claim_counts_though_compaction_has_removed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first session of a process claims the bridge, and fails; the next finds only that claim.

    Else it would take a bridge whose positions have expired for one that has never run.
    """
    config = parse_config(
        'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="b:1"\n[topics]\ninclude=["t"]\n'
    )
    log = [TargetRecord(0, 0, CLAIM_KEY, encode_claim(Claim("older", 1, 1)), -1)]

    async def write(topic: str, key: bytes, value: bytes) -> None:
        log.append(TargetRecord(0, len(log), key, value, -1))

    target = create_autospec(Target, instance=True)
    target.read_topic.side_effect = lambda topic: list(log)
    target.write.side_effect = write
    initialise = AsyncMock(side_effect=[TargetUnavailableError("no coordinator"), None])
    monkeypatch.setattr(TransactionSink, "_initialise", initialise)
    run = BridgeRun()
    with pytest.raises(TargetUnavailableError):
        await TransactionSink(config, target, run).start(BATCH_BYTES)
    del log[0]
    sink = TransactionSink(config, target, run)
    await sink.start(BATCH_BYTES)
    assert sink.has_run
