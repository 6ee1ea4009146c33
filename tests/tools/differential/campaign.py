"""Run many seeds on a pair of clusters, and report their differences.

Several cases run at a time. One that differs then runs again alone, with more patience: what
differs only beside others is counted, and is no result. The rest is known (`known`) or is shrunk.

Why patience matters: a case with a request that waits (a long poll, a JoinGroup) goes on after a
while, without knowing that the broker has begun to wait. On a slow broker the next step overtakes
that request. (Where the embedded cluster doesn't wait, the real one gets the time it needs.)
Brokers get slow with the number of their topics, of which each case takes some, so the caller
passes a pair of new clusters every `SEEDS_PER_CLUSTER` seeds.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.tools.differential.cases import Case, as_test
from tests.tools.differential.compare import Difference, View, first_difference
from tests.tools.differential.run import HURRIED, PATIENT, Patience, Runner
from tests.tools.differential.shrink import shrink
from tests.tools.differential.targets import ClusterTarget, Pair

SEEDS_PER_CLUSTER = 250
"""After this many seeds a broker has about a thousand topics."""


class Finding(NamedTuple):
    """A difference that isn't known, by the shortest case that shows it."""

    seeds: list[int]
    difference: Difference
    case: Case


@dataclass
class Report:
    """The results of a campaign."""

    release: str
    brokers: int
    seeds: int = 0
    requests: int = 0
    known: Counter[str] = field(default_factory=Counter)
    """Name of the known difference → seeds."""
    only_once: dict[int, Difference] = field(default_factory=dict)
    """Seeds that differed, but not when they ran alone."""
    internal_errors: list[str] = field(default_factory=list)
    """Tracebacks of the embedded cluster, even if the answers were equal or known to differ."""
    by_shape: dict[object, Finding] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        return list(self.by_shape.values())

    @property
    def is_good(self) -> bool:
        """Whether all answers were equal or known to differ."""
        return not (self.by_shape or self.internal_errors)

    def __str__(self) -> str:
        rows = [
            f"{self.release}, {self.brokers} brokers: {self.seeds} seeds, {self.requests} requests,"
            f" {sum(len(one.seeds) for one in self.findings)} seeds with unlisted differences"
            f" ({len(self.findings)} kinds), {sum(self.known.values())} with known ones"
            f" {dict(self.known)}, {len(self.only_once)} that differed only once"
        ]
        rows += [f"only once, seed {seed}: {one}" for seed, one in self.only_once.items()]
        rows += [f"internal error: {one}" for one in self.internal_errors]
        for number, finding in enumerate(self.findings, 1):
            name = f"{re.sub(r'[^0-9]', '_', self.release)}_seed_{finding.seeds[0]}"
            rows.append(f"\n--- {number}: seeds {finding.seeds}")
            comment = str(finding.difference)
            rows.append(as_test(self.release, self.brokers, name, finding.case, comment))
        return "\n".join(rows)


async def difference_of(pair: Pair, case: Case, patience: Patience) -> Difference | None:
    """Run a case on both clusters, one after the other; return the first difference."""
    names = await pair.take(sorted(case.symbols()))
    embedded = Runner(pair.embedded, names, patience)
    embedded_records = await embedded.run(case)
    real = Runner(pair.real, names, patience, embedded.over)
    return first_difference(
        await real.run(case),
        embedded_records,
        (_view(pair.real, real), _view(pair.embedded, embedded)),
        passes=pair.passes,
        answers_after_fin=pair.line.responds_after_fin,
    )


def _view(target: ClusterTarget, runner: Runner) -> View:
    return View(runner.names, {port: node for node, (_, port) in enumerate(target.addresses)})


async def run_seeds(
    pair: Pair,
    seeds: Iterable[int],
    *,
    at_once: int = 8,
    most_findings: int = 20,
    report: Report | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run the cases of these seeds; return what differs.

    Args:
        at_once: how many cases run at a time.
        most_findings: stop after this many different findings.
        report: add to this one, which is that of earlier seeds; None: begin a new one.
        progress: called with a line of text now and then.
    """
    if report is None:
        report = Report(pair.release, pair.brokers)
    waiting = iter(seeds)
    suspects: dict[int, Difference] = {}

    async def work() -> None:
        for seed in waiting:
            case = pair.make_case(seed)
            report.seeds += 1
            report.requests += sum(len(getattr(step, "requests", ())) for step in case.steps)
            difference = await difference_of(pair, case, HURRIED)
            if difference is not None:
                suspects[seed] = difference
            if report.seeds % 100 == 0:
                progress(f"{report.seeds} seeds, {len(suspects)} differ")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())
    by_shape = report.by_shape
    if suspects:
        await pair.refresh()
    for seed in sorted(suspects):
        case = pair.make_case(seed)
        difference = await difference_of(pair, case, PATIENT)
        if difference is None:
            report.only_once[seed] = suspects[seed]
        elif known := pair.find_known(difference):
            report.known[known.name] += 1
        elif difference.shape in by_shape:
            by_shape[difference.shape].seeds.append(seed)
        elif len(by_shape) < most_findings:
            finding = await _shrunk(pair, seed, case, difference)
            by_shape[difference.shape] = finding
            progress(f"seed {seed}: {finding.difference}")
    report.internal_errors += pair.internal_errors
    pair.internal_errors.clear()
    return report


async def _shrunk(pair: Pair, seed: int, case: Case, difference: Difference) -> Finding:
    last = difference

    async def shows(candidate: Case) -> bool:
        nonlocal last
        found = await difference_of(pair, candidate, PATIENT)
        if found is None or found.shape != difference.shape:
            return False
        last = found
        return True

    shortest = await shrink(case, shows)
    return Finding([seed], last, shortest)
