"""The producer's arguments of the command `produce`."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08._tools.cli.moving.producing import ProduceJob, producer_arguments
from aiokafka08._tools.cli.settings import Settings


@pytest.mark.parametrize(
    ("given", "compression", "size"),
    [
        ({}, None, None),
        ({"acks": 0}, "none", None),
        ({"compression_type": "gzip"}, "none", None),
        ({"max_batch_size": 1_000_000}, None, 1_000_000),
        ({"max_batch_size": 1_000_000}, "snappy", 1_000_000),
    ],
    ids=str,
)
def test_sets_have_the_producers_size_unless_asked_otherwise(
    given: dict[str, Any], compression: str | None, size: int | None
) -> None:
    """Larger plain sets are slow to read: the doctor calls topics that have them unhealthy."""
    settings = Settings({}, given, {}, None, None, ())
    arguments = producer_arguments(settings, ProduceJob(topic="t", compression=compression))
    assert arguments.get("max_batch_size") == size
