"""Run many seeds of the mixed scenario, in processes, and report them in the order of the seeds.

`python -m tests.faults.simulation` and `nox -s simulate` call it. The last line's hash is over the
seeds' hashes in their order, whatever the number of processes; so two machines can be compared.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice

from aiokafka08._core.garbage import older_objects_left_out
from tests.faults.simulation.explain import explain
from tests.faults.simulation.plan import KINDS, VERSIONS, plan_of
from tests.faults.simulation.scenario import run
from tests.faults.simulation.shrink import MAX_RUNS, as_test, shrink
from tests.support.arguments import positive

ALL_KINDS_SEEDS = 300
"""From so many seeds on, with all lines in turn, each kind of fault must have fired."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What one seed showed."""

    seed: int
    anomalies: tuple[str, ...]
    texts: tuple[str, ...]
    virtual_s: float
    requests: int
    trace_hash: str
    cpu_s: float
    fired: Counter[str]
    effective: int = 0


def run_seed(seed: int, version: str | None = None) -> SeedResult:
    """Run one seed, without log lines."""
    begin = time.process_time()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        report = run(plan_of(seed, version))
    finally:
        logging.disable(before)
    return SeedResult(
        seed,
        tuple(report.names),
        tuple(str(one)[:4000] for one in report.anomalies[:5]),
        report.virtual_s,
        report.requests,
        report.trace_hash,
        time.process_time() - begin,
        report.fired,
        report.effective,
    )


def run_seeds(first: int, count: int, jobs: int, version: str | None) -> Iterator[SeedResult]:
    """Yield the results of consecutive seeds, in their order."""
    seeds = range(first, first + count)
    one = partial(run_seed, version=version)
    if jobs == 1:
        with frozen_modules():
            yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _freeze_modules) as pool:
        yield from islice(pool.imap(one, seeds, chunksize=4), count)


@contextmanager
def frozen_modules() -> Iterator[None]:
    """Leave what exists now out of garbage collections, of which each seed ends with a full one.

    There are no others meanwhile: they took 6 to 9 % of a seed's time.
    """
    with older_objects_left_out():
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def _freeze_modules() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


class Summary:
    """The figures of a run over many seeds."""

    def __init__(self) -> None:
        self.seeds = self.failed = self.requests = 0
        self.virtual_s = self.cpu_s = 0.0
        self.fired: Counter[str] = Counter()
        self._hash = hashlib.blake2b(digest_size=8)

    def add(self, result: SeedResult) -> None:
        """Add a seed."""
        self.seeds += 1
        self.failed += bool(result.anomalies)
        self.requests += result.requests
        self.virtual_s += result.virtual_s
        self.cpu_s += result.cpu_s
        self.fired += result.fired
        self._hash.update(result.trace_hash.encode())

    @property
    def unfired(self) -> list[str]:
        """The kinds of faults that never had an effect."""
        return [kind for kind in KINDS if not self.fired[kind]]

    def __str__(self) -> str:
        return (
            f"simulate: seeds={self.seeds} failed={self.failed} virtual_s={self.virtual_s:.0f} "
            f"requests={self.requests} hash={self._hash.hexdigest()}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=100, help="how many seeds (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=positive, default=1, help="how many processes (default 1)")
    parser.add_argument(
        "--version", choices=VERSIONS, help="the brokers' line (default: all in turn, by seed)"
    )
    parser.add_argument(
        "--no-shrink",
        action="store_true",
        help="don't shrink the first failing seed to a test, which takes up to 300 runs",
    )
    options = parser.parse_args(arguments)
    summary, failing = Summary(), None
    for result in run_seeds(options.first, options.seeds, options.jobs, options.version):
        summary.add(result)
        for name in result.anomalies:
            failing = failing or (result.seed, name)
            print(f"FAIL seed={result.seed} anomaly={name}", flush=True)
        _show_progress(summary, options.seeds, result)
    if failing is not None and not options.no_shrink:
        print(f"shrinking seed {failing[0]}", flush=True)
        print(_shrunk(*failing, options.version), flush=True)
    fired = " ".join(f"{kind}={summary.fired[kind]}" for kind in KINDS)
    print(f"faults: {fired}")
    per_request = 1e6 * summary.cpu_s / max(summary.requests, 1)
    print(f"cpu: {summary.cpu_s / summary.seeds:.2f} s/seed {per_request:.0f} µs/request")
    unfired = summary.unfired if _must_have_all(options) else []
    for kind in unfired:
        print(f"FAIL fault={kind} never fired")
    print(summary)
    return 1 if summary.failed or unfired else 0


def _must_have_all(options: argparse.Namespace) -> bool:
    return options.version is None and options.seeds >= ALL_KINDS_SEEDS


def _show_progress(summary: Summary, seeds: int, result: SeedResult) -> None:
    for text in result.texts:
        print(f"seed {result.seed}: {text}")
    if summary.seeds % 50 == 0:
        print(f"{summary.seeds} of {seeds}, {summary.failed} failed", flush=True)


def _shrunk(seed: int, anomaly: str, version: str | None) -> str:
    """Return a test with the smallest plan that fails, what happens in it, and how to repeat it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        found = shrink(plan_of(seed, version), lambda one: anomaly in run(one).names)
    finally:
        logging.disable(before)
    size = (
        f"{len(found.plan.steps)} steps after {found.runs} runs"
        if found.is_smallest
        else f"{len(found.plan.steps)} steps: NOT the smallest plan, {MAX_RUNS} runs were over"
    )
    line = "" if version is None else f" --version {version}"
    command = f"python -m tests.faults.simulation --first {seed} --seeds 1{line}"
    story = explain(found.plan, anomaly)
    return f"{as_test(found.plan, anomaly)}\n{size}\n{story}\nagain: {command}"
