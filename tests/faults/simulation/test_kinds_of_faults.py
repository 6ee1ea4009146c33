"""The seeds that each run plays have every error code and effect for Produce and Fetch.

The first seeds of `test_mixed_scenario` have most; the seeds here complete them.
"""

from __future__ import annotations

from typing import get_args

import pytest

from aiokafka08.testing.cluster import AfterDeath
from aiokafka08.testing.faults import (
    Close,
    Corrupt,
    Delay,
    Effect,
    Hang,
    Omit,
    Silence,
    Truncate,
    WrongCorrelationId,
)
from tests.faults.simulation.plan import (
    CODES,
    FRAGMENT,
    KINDS,
    Fault,
    Kill,
    Send,
    Strike,
    kinds_of,
    plan_of,
)
from tests.faults.simulation.runner import run_seed
from tests.faults.simulation.test_mixed_scenario import SEEDS

COMPLETING = (106, 221, 236, 318, 321)
"""They have the kinds of fault that the seeds of `test_mixed_scenario` in `nox -s tests` lack."""
WANTED: set[type[Effect]] = {
    *(Close, Corrupt, Delay, Hang, Omit, Silence, Truncate, WrongCorrelationId)
}


@pytest.mark.parametrize("seed", COMPLETING)
def test_no_completing_seed_shows_an_anomaly(seed: int) -> None:
    assert run_seed(seed).texts == ()


def test_seeds_of_each_run_have_every_kind_of_fault() -> None:
    seeds = [*range(SEEDS), *COMPLETING]
    acts = [step.do for seed in seeds for step in plan_of(seed).steps]
    assert {type(act) for act in acts} == {*get_args(Fault), Send}
    faults = [act for act in acts if not isinstance(act, Send)]
    assert {kind for fault in faults for kind in kinds_of(fault)} == {*KINDS} - {FRAGMENT}
    assert {act.then for act in acts if isinstance(act, Kill)} == set(get_args(AfterDeath))
    strikes = [act for act in acts if isinstance(act, Strike)]
    for request in ("ProduceRequest", "FetchRequest"):
        effects = {strike.then for strike in strikes if strike.request == request}
        assert set(CODES[request]) <= effects
        # The response to Produce has no checksum.
        wanted = WANTED - ({Corrupt} if request == "ProduceRequest" else set())
        assert wanted <= set(map(type, effects))
