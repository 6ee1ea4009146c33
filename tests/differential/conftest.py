"""The fixtures of the differential tests: a pair of clusters per test, and how to compare."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.brokers.fixtures import BrokerClusters
from tests.differential.campaign import difference_of
from tests.differential.cases import Case
from tests.differential.compare import Difference
from tests.differential.run import HURRIED, PATIENT
from tests.differential.targets import Pair, pair_of

Differ = Callable[[Case], Awaitable[Difference | None]]


@pytest.fixture
async def pair(
    request: pytest.FixtureRequest, broker_clusters: BrokerClusters
) -> AsyncIterator[Pair]:
    """The pair of clusters of a release; the parameter is `(release, brokers)`."""
    async with pair_of(broker_clusters.get(*request.param)) as pair:
        yield pair


@pytest.fixture
def differ(pair: Pair) -> Differ:
    """Run a case on both clusters, return the first difference; a difference has to show twice."""

    async def differ(case: Case) -> Difference | None:
        difference = await difference_of(pair, case, HURRIED)
        return difference and await difference_of(pair, case, PATIENT)

    return differ
