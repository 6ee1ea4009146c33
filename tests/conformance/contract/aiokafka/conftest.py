"""The fixture `compare`: both libraries on the session's cluster of the newest release."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison
from tests.conformance.contract.conftest import RunningCluster
from tests.conformance.contract.targets import NEWEST_RELEASE, TargetSpec


# As a parameter the release tells `tests.support.schedule` beside which tests these run.
@pytest.fixture(params=[NEWEST_RELEASE])
async def compare(real_cluster: RunningCluster, request: pytest.FixtureRequest) -> Comparison:
    """A function that runs the same code with both libraries, and compares."""
    spec = TargetSpec("real", request.param, 1)
    return Comparison(await asyncio.to_thread(real_cluster, spec))
