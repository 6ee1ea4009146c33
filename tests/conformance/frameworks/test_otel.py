"""OpenTelemetry's instrumentor of aiokafka, by `compat`: one trace from producer to consumer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.conformance.frameworks.running import run_program

PROGRAM = Path(__file__).parent / "otel_service.py"


@pytest.mark.parametrize("skip_dep_check", ["0", "1"])
async def test_consumer_spans_belong_to_the_producers_trace(skip_dep_check: str) -> None:
    """With the check the instrumentor finds the distribution aiokafka, which the tests need."""
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        out, log = await run_program(
            PROGRAM, cluster.bootstrap_servers, skip_dep_check, AIOKAFKA08_HEADERS="embedded"
        )
    assert "ERROR" not in log
    spans = json.loads(out)
    sent = [(trace, span) for _, kind, trace, span, _ in spans if kind == "PRODUCER"]
    received = [(trace, parent) for _, kind, trace, _, parent in spans if kind == "CONSUMER"]
    assert len(sent) == len(set(sent)) == 3
    assert set(sent) <= set(received)


async def test_refused_headers_of_the_instrumentor_name_the_choices() -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        with pytest.raises(AssertionError, match=r"headers='drop'.*AIOKAFKA08_HEADERS"):
            await run_program(PROGRAM, cluster.bootstrap_servers, "1", AIOKAFKA08_HEADERS="")
