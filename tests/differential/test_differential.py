"""Random requests to an embedded and a real broker of each line get the same answers.

20 seeds a line in `tests`, 500 in `full`; `nox -s differential -- --seeds N` runs any number, and
explains a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.contract.targets import RELEASES
from tests.differential.campaign import run_seeds
from tests.differential.conftest import Differ
from tests.differential.found import FOUND
from tests.differential.known import KNOWN, Known, find_known
from tests.differential.targets import Pair

pytestmark = pytest.mark.real


def pairs(releases: Sequence[str], brokers: int) -> list[Any]:
    # Other tests start three brokers of 0.8.2.2 anyway.
    return [
        pytest.param(
            (release, brokers),
            id=f"{release}-{brokers}",
            marks=[pytest.mark.full] if brokers > 1 and release != "0.8.2.2" else [],
        )
        for release in releases
    ]


on_each_line = pytest.mark.parametrize("pair", pairs(list(RELEASES.values()), 1), indirect=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "pair",
    [*pairs(list(RELEASES.values()), 1), *pairs(list(RELEASES.values()), 3)],
    indirect=True,
)
async def test_random_requests_get_equal_answers(pair: Pair, pytestconfig: pytest.Config) -> None:
    seeds = range(500 if pytestconfig.getoption("--full") else 20)
    # 0.9 loses responses of other connections behind a bad request (docs/brokers.md 2.2).
    at_once = 1 if pair.release == "0.9.0.1" else 4
    report = await run_seeds(pair, seeds, at_once=at_once)
    assert not report.findings, str(report)


@on_each_line
async def test_differences_once_found_stay_away(pair: Pair, differ: Differ) -> None:
    found = {name: await differ(case) for name, case in FOUND.items()}
    new = {
        name: str(one)
        for name, one in found.items()
        if one is not None and find_known(pair.line.name, one) is None
    }
    assert not new


@on_each_line
async def test_known_differences_still_differ(pair: Pair, differ: Differ) -> None:
    """An entry whose example no longer differs has to go."""

    async def differs(one: Known) -> bool:
        difference = await differ(one.example)
        return difference is not None and one.matches(difference)

    here = [one for one in KNOWN if pair.line.name in one.lines]
    assert [one.name for one in here if not await differs(one)] == []
