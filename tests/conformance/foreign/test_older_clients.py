"""Older clients get the same from the embedded "0.10" as from a real 0.10.2.2, step by step.

The client of the default session is a single wheel without compiled code; `full` has the others in
Python. Those in Go run by the command of `older_clients` only.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.conformance.foreign.older_clients import CLIENTS, RELEASE, compare

pytestmark = [pytest.mark.heavy, pytest.mark.real]
IN_TESTS = "kafka-python-2.2.21"


@pytest.mark.release(RELEASE)
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == IN_TESTS else pytest.mark.full)
        for name, client in CLIENTS.items()
        if client.packages
    ],
)
async def test_older_client_gets_the_same_as_from_a_real_broker(
    name: str, broker_clusters: BrokerClusters, tmp_path: Path
) -> None:
    require_real_brokers()
    if sys.version_info[:2] >= CLIENTS[name].below:
        pytest.skip(f"{name} doesn't work with Python {sys.version_info[0]}.{sys.version_info[1]}")
    real = await asyncio.to_thread(broker_clusters.get, RELEASE)
    theirs, ours = await compare(name, real.bootstrap_servers, tmp_path)
    assert ours == theirs
    assert len(theirs) >= 17  # they did all their steps
