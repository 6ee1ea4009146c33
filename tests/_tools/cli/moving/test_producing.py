"""The producer's arguments of the command `produce`."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08._tools.cli.moving.producing import ProduceJob, producer_arguments
from aiokafka08._tools.cli.settings import Settings


@pytest.mark.parametrize(
    ("given", "compression", "size"),
    [
        ({}, None, 1_000_000),
        ({"acks": 1}, "none", 1_000_000),
        ({"compression_type": "gzip"}, "none", 1_000_000),
        ({"max_batch_size": 16384}, None, 16384),
        ({"max_batch_size": 16384}, "snappy", 16384),
        ({"acks": 0}, None, None),
        ({"compression_type": "gzip"}, None, None),
        ({}, "snappy", None),
    ],
    ids=str,
)
def test_plain_sets_are_large_unless_asked_otherwise(
    given: dict[str, Any], compression: str | None, size: int | None
) -> None:
    settings = Settings({}, given, {}, None, None, ())
    arguments = producer_arguments(settings, ProduceJob(topic="t", compression=compression))
    assert arguments.get("max_batch_size") == size
