"""The fixtures of the differential tests: a pair of clusters per test, and how to compare.

They run an event loop without asyncio's debug mode, which would take half of their time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.tools.differential.campaign import difference_of
from tests.tools.differential.cases import Case
from tests.tools.differential.compare import Difference
from tests.tools.differential.run import HURRIED, PATIENT
from tests.tools.differential.targets import PROPERTIES, Pair, pair_of

OnPair = Callable[[Callable[[Pair], Awaitable[Any]]], Any]
Differ = Callable[..., list[Difference | None]]


@pytest.fixture
def on_pair(request: pytest.FixtureRequest, broker_clusters: BrokerClusters) -> Iterator[OnPair]:
    """Run a coroutine function on the pair of clusters of the parameter, `(release, brokers)`.

    Several brokers are started for the test alone: in a cluster in which other tests killed leaders
    and coordinators, both have moved, and they move back while this test runs.
    """
    require_real_brokers()
    release, brokers = request.param
    shared = brokers == 1
    with (
        nullcontext(broker_clusters.get(release))
        if shared
        else RealCluster(release, brokers, PROPERTIES)
    ) as real:

        def run(act: Callable[[Pair], Awaitable[Any]]) -> Any:
            async def in_loop() -> Any:
                async with pair_of(real) as pair:
                    return await act(pair)

            return asyncio.run(in_loop(), debug=False)

        yield run


@pytest.fixture
def differ(on_pair: OnPair) -> Differ:
    """Run cases on both clusters, return the first difference of each; it has to show twice."""

    async def difference(pair: Pair, case: Case) -> Difference | None:
        found = await difference_of(pair, case, HURRIED)
        return found and await difference_of(pair, case, PATIENT)

    def run(*cases: Case) -> list[Difference | None]:
        async def all_of_them(pair: Pair) -> list[Difference | None]:
            return [await difference(pair, case) for case in cases]

        found: list[Difference | None] = on_pair(all_of_them)
        return found

    return run
