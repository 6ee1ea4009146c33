"""Random requests to an embedded and a real broker of each line get the same answers.

8 seeds with one broker, on the lines of `tests.support.lines` in `tests` and on each line in
`full`, where 100 are run with three brokers; `nox -s differential -- --seeds N` runs any number,
and explains a difference.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.conformance.contract.targets import RELEASES
from tests.test_tools.differential.conftest import Differ, OnPair
from tests.tools.differential import gateway
from tests.tools.differential.campaign import Report, run_seeds
from tests.tools.differential.found import FOUND
from tests.tools.differential.known import KNOWN, find_known
from tests.tools.differential.targets import LINE_OF_RELEASE, Pair

pytestmark = pytest.mark.real


def pairs(brokers: int) -> list[Any]:
    # Each start of three brokers takes some seconds.
    marks = [pytest.mark.full] if brokers > 1 else []
    return [
        pytest.param((release, brokers), id=f"{release}-{brokers}", marks=marks)
        for release in RELEASES.values()
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("on_pair", [*pairs(1), *pairs(3)], indirect=True)
def test_random_requests_get_equal_answers(on_pair: OnPair, pytestconfig: pytest.Config) -> None:
    seeds = range(100 if pytestconfig.getoption("--full") else 8)

    async def compare(pair: Pair) -> Report:
        # 0.9 loses responses of other connections behind a bad request (docs/brokers.md 2.2).
        return await run_seeds(pair, seeds, at_once=1 if pair.release == "0.9.0.1" else 8)

    report = on_pair(compare)
    assert report.is_good, str(report)


@pytest.mark.release(gateway.REFERENCE)
@pytest.mark.timeout(900)
def test_gateway_answers_old_requests_as_3_9(broker_clusters: BrokerClusters) -> None:
    require_real_brokers()
    clusters = broker_clusters.get(gateway.TARGET), broker_clusters.get(gateway.REFERENCE)

    async def compare() -> Report:
        async with gateway.gateway_pair(*clusters) as pair:
            return await run_seeds(pair, range(30))

    report = asyncio.run(compare(), debug=False)
    assert report.is_good, str(report)


@pytest.mark.every_line
@pytest.mark.parametrize(
    ("on_pair", "release"),
    [pytest.param((release, 1), release, id=release) for release in RELEASES.values()],
    indirect=["on_pair"],
)
def test_found_cases_agree_and_known_ones_differ(differ: Differ, release: str) -> None:
    """A known difference whose example no longer differs has to leave the list."""
    line = LINE_OF_RELEASE[release].name
    known = [one for one in KNOWN if line in one.lines and one.example is not None]
    differences = differ(*FOUND.values(), *(one.example for one in known))
    found = dict(zip(FOUND, differences, strict=False))
    new = {name: str(one) for name, one in found.items() if one and not find_known(line, one)}
    assert not new
    examples = zip(known, differences[len(FOUND) :], strict=True)
    assert [one.name for one, other in examples if other is None or not one.matches(other)] == []
