"""What a member does next after each error code of the coordinator."""

from __future__ import annotations

import pytest

from aiokafka08.consumer.membership.generation import NextStep, next_step

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("codes", "step"),
    [
        ((0,), NextStep.CONTINUE),
        ((14, -1, 7, 99), NextStep.RETRY),
        ((15, 16), NextStep.FIND_COORDINATOR),
        ((22, 27), NextStep.REJOIN),
        ((25,), NextStep.JOIN_AS_NEW),
        ((23, 24, 26, 30, 81), NextStep.FAIL),
    ],
)
def test_next_step_by_error_code(codes: tuple[int, ...], step: NextStep) -> None:
    assert {next_step(code) for code in codes} == {step}
