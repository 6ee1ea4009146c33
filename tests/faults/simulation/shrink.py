"""Shrink a failing plan to the fewest steps that still fail, and print it as a test.

Delta debugging: cut the sends in halves, since they are most of what a run costs; then remove
halves, quarters and so on of the faults, then of the sends, as long as the same anomaly remains. A
plan without some of its steps is a plan too (`plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.faults.simulation.plan import Fault, Plan, Send, Step

MAX_RUNS = 300
"""How many runs one plan may take."""


class Shrunk(NamedTuple):
    """A smaller plan that still fails.

    Attributes:
        plan: the plan.
        runs: how many runs it took.
        is_smallest: whether it passes without any one of its steps; False: the runs were over.
    """

    plan: Plan
    runs: int
    is_smallest: bool


def shrink(plan: Plan, fails: Callable[[Plan], bool], max_runs: int = MAX_RUNS) -> Shrunk:
    """Return a plan with as few steps as possible that still fails.

    Args:
        plan: a plan that fails.
        fails: whether a plan fails in the same way.
        max_runs: how often `fails` may be called (default `MAX_RUNS`).
    """
    runs = 0

    def still_fails(steps: Sequence[Step]) -> bool:
        nonlocal runs
        runs += 1
        return runs <= max_runs and fails(replace(plan, steps=tuple(steps), reserve=reserve))

    reserve: tuple[Fault, ...] = ()
    if plan.reserve and not still_fails(plan.steps):
        reserve = plan.reserve
    faults = [step for step in plan.steps if not isinstance(step.do, Send)]
    sends = [step for step in plan.steps if isinstance(step.do, Send)]
    sends = cut_in_halves(sends, lambda kept: still_fails(_in_order(faults, kept)))
    faults = reduce_list(faults, lambda kept: still_fails(_in_order(kept, sends)))
    sends = reduce_list(sends, lambda kept: still_fails(_in_order(faults, kept)))
    smallest = replace(plan, steps=tuple(_in_order(faults, sends)), reserve=reserve)
    return Shrunk(smallest, min(runs, max_runs), runs <= max_runs)


def cut_in_halves(items: list[Step], still_fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Return a half, or a half of it and so on, that still fails."""
    while len(items) > 1:
        middle = len(items) // 2
        half = next((h for h in (items[:middle], items[middle:]) if still_fails(h)), None)
        if half is None:
            break
        items = half
    return items


def reduce_list(items: list[Step], still_fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Return a part of the list that still fails and doesn't without any one of its items (ddmin).

    If `still_fails` gives up before, the part is the smallest found until then.
    """
    if items and still_fails([]):
        return []
    parts = 2
    while len(items) >= 2:
        size = -(-len(items) // parts)
        for begin in range(0, len(items), size):
            rest = items[:begin] + items[begin + size :]
            if still_fails(rest):
                items, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return items
            parts = min(parts * 2, len(items))
    return items


def as_test(plan: Plan, anomaly: str) -> str:
    """Return a pytest test that runs the plan."""
    steps = "".join(f"            {step!r},\n" for step in plan.steps)
    fields = "".join(
        f"        {name}={getattr(plan, name)!r},\n"
        for name in (
            *("seed", "version", "producers", "member", "commits", "takes"),
            *("latency_ms", "fragment", "reserve", "never_commit", "usage"),
        )
    )
    name = "".join(one if one.isalnum() else "_" for one in anomaly).lower()
    return (
        "from aiokafka08.testing import *\n"
        "from tests.faults.simulation.plan import *\n"
        "from tests.faults.simulation.scenario import run\n\n\n"
        f"def test_seed_{plan.seed}_{name}() -> None:\n"
        f"    plan = Plan(\n{fields}        steps=(\n{steps}        ),\n    )\n"
        "    assert run(plan).names == []\n"
    )


def _in_order(*groups: Sequence[Step]) -> list[Step]:
    return sorted((step for group in groups for step in group), key=lambda step: step.at)
