"""Shrinking finds the part of a plan that fails, and prints a test that runs."""

from __future__ import annotations

from typing import Any

from tests.faults.simulation.plan import HalfOpen, Plan, ResetConnections, Send, Step, plan_of
from tests.faults.simulation.shrink import as_test, shrink


def test_smallest_failing_part_is_found() -> None:
    plan = plan_of(4)
    needed = {plan.steps[5], plan.steps[40], next(s for s in plan.steps if _is_fault(s))}
    runs: list[Plan] = []

    def fails(one: Plan) -> bool:
        runs.append(one)
        return needed <= {*one.steps}

    shrunk, count, is_smallest = shrink(plan, fails)
    assert is_smallest
    assert count == len(runs)
    assert {*shrunk.steps} == needed
    assert [step.at for step in shrunk.steps] == sorted(step.at for step in shrunk.steps)
    assert len(runs) < len(plan.steps)


def test_smallest_found_is_returned_after_the_last_run() -> None:
    plan = plan_of(4)
    assert shrink(plan, lambda one: True, max_runs=0) == (plan, 0, False)


def test_sends_are_cut_in_halves_first() -> None:
    plan = plan_of(4)
    sends = [step for step in plan.steps if isinstance(step.do, Send)]
    runs: list[Plan] = []

    def fails(one: Plan) -> bool:
        runs.append(one)
        return sends[-1] in one.steps

    shrink(plan, fails)
    left = [sum(isinstance(step.do, Send) for step in one.steps) for one in runs]
    assert left[1] == len(sends) // 2
    assert 1 in left[: 2 * len(sends).bit_length() + 2], "before the faults are reduced"


def test_reserve_is_kept_only_if_it_is_needed() -> None:
    plan = plan_of(4)
    assert shrink(plan, lambda one: True).plan.reserve == ()
    assert shrink(plan, lambda one: bool(one.reserve)).plan.reserve == plan.reserve


def test_printed_test_makes_the_same_plan() -> None:
    plan = plan_of(2)
    names: dict[str, Any] = {}
    text = as_test(plan, "lost-write")
    exec(text, names)  # that is what the text is for
    made: list[Plan] = []

    class Report:
        names: tuple[str, ...] = ()

    def run(one: Plan) -> type[Report]:
        made.append(one)
        Report.names = ("lost-write",)
        return Report

    names["run"] = run
    try:
        names["test_seed_2_lost_write"]()
    except AssertionError:
        pass
    else:
        raise AssertionError("the printed test passes though the plan fails")
    assert made == [plan]


def test_step_without_connections_does_nothing() -> None:
    steps = (Step(0.0, HalfOpen("p0")), Step(0.0, ResetConnections("c1")), Step(1.0, _SEND))
    assert eval(repr(steps)) == steps


_SEND = Send(0, "send", 1, None)


def _is_fault(step: Step) -> bool:
    return not isinstance(step.do, Send)
