"""Run examples by number, in several processes, and sum up what they showed.

Each process has a limit of address space (`MOST_BYTES` above what it has), so an allocation of the
size that a hostile length announces is a MemoryError, a finding. One example in
`TRACED_ONE_IN` is traced as well: then the peak must be in proportion to the input.
"""

from __future__ import annotations

import logging
import resource
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.protocol.hostile import DECOMPRESSED_LIMIT, MOST_SECONDS, Endured, bounded, memory_traced
from tests.tools.fuzz import corpus, worlds
from tests.tools.fuzz.mutator import Mutator
from tests.tools.fuzz.targets import TARGETS, Steps, Target

MOST_BYTES = 1 << 30
TRACED_ONE_IN = 200
CHUNK = 20_000
_LEAST_LARGE = 256 << 10
"""The least input whose steps are reported per MiB."""
_MOST_FINDINGS = 10
"""How many findings of a process are kept and reported."""
_SERVED_S_PER_MIB = 30.0
"""CPU time for small requests: a server works on them in turns, of which each is a step."""
_CALLS = 10
"""An example of `calls` is read so often, and again after each error."""
_SERVED_BYTES = 32 << 20
"""What a simulated server and its network may take for an example, beyond its input."""


@dataclass
class Finding:
    """An example that failed."""

    target: str
    number: int
    error: str
    path: Path | None

    def __str__(self) -> str:
        kept = "" if self.path is None else f" input={self.path}"
        return f"FAIL target={self.target} example={self.number}{kept}\n{self.error}"


@dataclass
class Summary:
    """What examples showed.

    Attributes:
        examples: how many ran, by target.
        read: how many values and records were read.
        errors: how many typed errors were raised.
        longest_s: the longest step of an example, by target.
        per_mib_s: the same per MiB of input, of large examples.
        findings: the examples that failed.
    """

    examples: Counter[str] = field(default_factory=Counter)
    read: int = 0
    errors: int = 0
    longest_s: dict[str, float] = field(default_factory=dict)
    per_mib_s: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        """Add what other examples showed."""
        self.examples += other.examples
        self.read += other.read
        self.errors += other.errors
        self.findings += other.findings
        for mine, theirs in (
            (self.longest_s, other.longest_s),
            (self.per_mib_s, other.per_mib_s),
        ):
            for name, value in theirs.items():
                mine[name] = max(mine.get(name, 0.0), value)

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        for name in TARGETS:
            large = self.per_mib_s.get(name)
            yield (
                f"{name}: examples={self.examples[name]} "
                f"longest step {1000 * self.longest_s.get(name, 0.0):.1f} ms"
                + ("" if large is None else f", {1000 * large:.1f} ms per MiB")
            )
        yield (
            f"fuzz: examples={self.examples.total()} read={self.read} errors={self.errors} "
            f"failed={len(self.findings)}"
        )


def run(seed: int, first: int, examples: int, jobs: int, folder: Path) -> Iterator[Summary]:
    """Run examples; yield the sum so far after each chunk."""
    total = Summary()
    chunks = [
        (start, min(start + CHUNK, first + examples))
        for start in range(first, first + examples, CHUNK)
    ]
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(seed, folder)) as pool:
        try:
            for (start, _), future in [(one, pool.submit(run_chunk, *one)) for one in chunks]:
                try:
                    total.add(future.result())
                except BrokenProcessPool:
                    error = f"the process died within {CHUNK} examples, --first {start}"
                    total.findings.append(Finding("?", start, error, None))
                    yield total
                    return
                yield total
        finally:  # also when the caller is interrupted
            pool.shutdown(cancel_futures=True)


_mutator: Mutator
_folder: Path


def _begin(seed: int, folder: Path) -> None:
    global _mutator, _folder
    logging.disable(logging.WARNING)
    _mutator, _folder = Mutator(seed, corpus.load(folder)), folder
    limit_memory()


def limit_memory() -> None:
    """Limit this process's address space to `MOST_BYTES` more than now. Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def run_chunk(first: int, stop: int) -> Summary:
    """Run the examples of these numbers in this process."""
    summary, steps, seen = Summary(), Steps(), Endured()
    for number in range(first, stop):
        target, data = _mutator.example(number)
        error = run_one(target, data, seen, steps, traced=number % TRACED_ONE_IN == 0)
        summary.examples[target.name] += 1
        _note(summary.longest_s, target.name, steps.longest_s)
        if len(data) >= _LEAST_LARGE:
            _note(summary.per_mib_s, target.name, steps.longest_s / len(data) * (1 << 20))
        if error is not None and len(summary.findings) < _MOST_FINDINGS:
            path = corpus.keep_finding(_folder, target.name, data)
            summary.findings.append(Finding(target.name, number, error, path))
    try:
        worlds.end()
    except Exception:
        summary.findings.append(Finding("server", stop, traceback.format_exc(), None))
    summary.read, summary.errors = seen.values + seen.records, seen.errors + seen.corrupt
    return summary


def run_one(
    target: Target, data: bytes, seen: Endured, steps: Steps, *, traced: bool
) -> str | None:
    """Run an example; return the traceback if it failed."""
    steps.longest_s = 0.0
    more_bytes, most_s = 8 * DECOMPRESSED_LIMIT + (4 << 20), MOST_SECONDS
    if target.name in ("server", "calls", "gateway", "gateway-target"):
        more_bytes += _SERVED_BYTES
        most_s += _SERVED_S_PER_MIB * len(data) / (1 << 20)
    if target.name == "calls":
        most_s *= _CALLS
    try:
        with ExitStack() as stack:
            if traced:
                stack.enter_context(memory_traced())
            stack.enter_context(bounded(len(data), more_bytes=more_bytes, most_s=most_s))
            target.run(data, seen, steps)
        assert steps.longest_s < MOST_SECONDS, f"a step of {steps.longest_s:.1f} s"
    except Exception:
        return traceback.format_exc()
    return None


def _note(longest: dict[str, float], name: str, value: float) -> None:
    longest[name] = max(longest.get(name, 0.0), value)
