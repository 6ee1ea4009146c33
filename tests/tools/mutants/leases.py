"""Run the mixed scenario with ZooKeeper groups, and judge whether members keep their leases.

A session in ZooKeeper is a member's lease of its partitions. `aiokafka08.testing.history` has no
rule for a member that goes on without one: it judges what members are assigned, and a member that
keeps its lease isn't assigned anything. Two members stand still for longer than their session.

Invariant: once a member's session has ended, it neither returns messages nor commits until it owns
partitions again. Calls that begin within `GRACE_S` of the end aren't judged: a server may end a
session at any time, and the member learns it a little later.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from aiokafka08.testing.history import Anomaly, Operation
from tests.faults.simulation import plan as p
from tests.faults.simulation.scenario import run as run_mixed

GRACE_S = 0.5


def run(seed: int) -> list[Anomaly]:
    """Run the plan of a seed; return what is wrong, leases included."""
    report = run_mixed(_plan(seed))
    return [*report.anomalies, *kept_leases(report.operations)]


def _plan(seed: int) -> p.Plan:
    rng = random.Random(f"leases {seed}")
    plan = p.plan_of(seed, p.WITH_ZOOKEEPER[seed % len(p.WITH_ZOOKEEPER)])
    session_s = int(str(plan.member["session_timeout_ms"])) / 1000
    pauses = [
        p.Step(
            round(rng.uniform(0.1, 0.7) * p.LENGTH_S, 2),
            p.Pause(f"c{member}", round(session_s * rng.uniform(1.1, 2), 2)),
        )
        for member in rng.sample(range(p.MEMBERS), 2)
    ]
    others = [step for step in plan.steps if not isinstance(step.do, p.Pause)]
    steps = sorted([*others, *pauses], key=lambda step: step.at)
    return replace(plan, commits="poll", steps=tuple(steps))


def kept_leases(operations: Iterable[Operation]) -> Iterator[Anomaly]:
    """Yield the first call after each end of a session that reads or commits without a session."""
    ends: dict[str, Operation] = {}
    # Messages count when the call that returns them ends.
    for one in sorted(operations, key=lambda one: one.order if one.polled else one.invoked):
        if one.call == "expired":
            ends.setdefault(one.process, one)
        elif one.call in ("assigned", "revoked"):
            ends.pop(one.process, None)
        elif (
            one.process in ends
            and one.status == "ok"
            and (one.polled or (one.call == "commit" and one.offsets))
            and one.invoked > ends[one.process].invoked + GRACE_S
        ):
            end = ends.pop(one.process)
            yield Anomaly("lease-kept", (end, one), {"group": end.group})
