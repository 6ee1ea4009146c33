"""Claims: which of a bridge's starts owns it, and which transactional ids to fence first. Pure.

`TransactionSink.start` does the steps of a claim. The claims are in the state topic (one partition,
compacted), so the order of its log is the order of the starts.

Invariant: when `TransactionSink.start` returns, the producers of all starts with earlier claims are
fenced. Each start with a later claim will initialise all ids of this start.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka08._core.json_objects import json_object
from aiokafka08._wording import shorten
from aiokafka08.bridge.config import MOST_PRODUCERS
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition

CLAIM_KEY: Final = b"claim"


class Claim(NamedTuple):
    """A start of the bridge: its random id, its producer count, and the most ids ever in use."""

    run: str
    producers: int
    ids: int


def producer_of(tp: TopicPartition, producers: int) -> int:
    """Return the number of the producer that writes a partition of the source."""
    # The result depends only on these, so a later start can compute it from a claim's `producers`.
    return zlib.crc32(f"{tp.topic}/{tp.partition}".encode()) % producers


def encode_claim(claim: Claim) -> bytes:
    """Return the value of a claim's record."""
    return json.dumps({"version": 0, **claim._asdict()}).encode()


def state_document(value: bytes) -> dict[str, Any]:
    """Return the JSON object of version 0 in a record of the state topic.

    Raises:
        ValueError: the value is something else.
    """
    document = json_object(value)
    if (version := document.get("version")) != 0:
        raise ValueError(f"version {version}: expected 0")
    return document


def _claim(document: Mapping[str, Any]) -> Claim:
    run, producers, ids = (document.get(name) for name in Claim._fields)
    if not isinstance(run, str) or not run:
        raise ValueError(f"run {run!r}")
    if type(producers) is not int or type(ids) is not int:
        raise ValueError(f"producers {producers!r}, ids {ids!r}: no integers")
    if not 1 <= producers <= ids <= MOST_PRODUCERS:
        raise ValueError(f"producers {producers}, ids {ids}: not from 1 to {MOST_PRODUCERS}")
    return Claim(run, producers, ids)


def decode_claims(values: Iterable[tuple[bytes | None, bytes | None]]) -> list[Claim]:
    """Return the claims among the keys and values of the state topic, in the order of the log.

    Raises:
        KafkaProtocolError: a claim can't be read; a newer release may have written it.
    """
    claims: list[Claim] = []
    for key, value in values:
        if key != CLAIM_KEY or value is None:
            continue
        try:
            claims.append(_claim(state_document(value)))
        except ValueError as error:
            raise KafkaProtocolError(
                f"a claim in the bridge's state topic can't be read ({error}): {shorten(value)}; "
                "expected version 0. Run the release that wrote it, or a newer one"
            ) from None
    return claims


def next_claim(claims: Iterable[Claim], run: str, producers: int) -> Claim:
    """Return the claim that follows `claims`, for the start `run` with this number of producers.

    Its `ids` is the largest number of ids that was ever in use.
    """
    return Claim(run, producers, max([producers, *(claim.ids for claim in claims)]))
