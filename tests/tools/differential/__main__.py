"""Compare embedded and real brokers: ``python -m tests.tools.differential --seeds 500``.

    --line 0.8.2.2      one line; by default all five
    --line gateway      the gateway in front of 4.1.0 with 3.9.1
    --case FILE         run the case in a file, as a report prints it: ``Case(1, (…))``

Exit code 1 means that there is a difference which isn't in `known`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.brokers import RealCluster
from tests.conformance.contract.targets import RELEASES
from tests.support.arguments import positive
from tests.tools.differential import cases, gateway, sets, wire
from tests.tools.differential.campaign import SEEDS_PER_CLUSTER, Report, difference_of, run_seeds
from tests.tools.differential.run import PATIENT
from tests.tools.differential.targets import PROPERTIES, Pair, pair_of

GATEWAY = "gateway"


async def run_line(release: str, brokers: int, options: argparse.Namespace) -> bool:
    """Run the seeds, or the case, on one line; return True if all is equal or known."""

    def show(text: str) -> None:
        print(f"{release}, {brokers} brokers: {text}", file=sys.stderr, flush=True)

    if options.case is not None:
        async with new_pair(release, brokers) as pair:
            difference = await difference_of(pair, options.case, PATIENT)
            print("no difference" if difference is None else difference)
            return difference is None
    started = time.monotonic()
    report = Report(release, brokers)
    seeds = range(options.first, options.first + options.seeds)
    for at in range(0, len(seeds), SEEDS_PER_CLUSTER):
        async with new_pair(release, brokers) as pair:
            chunk = seeds[at : at + SEEDS_PER_CLUSTER]
            await run_seeds(pair, chunk, at_once=options.at_once, report=report, progress=show)
    print(f"{report}\n{time.monotonic() - started:.0f} s", flush=True)
    return report.is_good


@asynccontextmanager
async def new_pair(release: str, brokers: int) -> AsyncIterator[Pair]:
    """Start a real cluster and its embedded counterpart, or those of `gateway`."""
    if release == GATEWAY:
        with RealCluster(gateway.TARGET) as target, RealCluster(gateway.REFERENCE) as reference:
            async with gateway.gateway_pair(target, reference) as pair:
                yield pair
        return
    real = RealCluster(release, brokers, PROPERTIES)
    await asyncio.to_thread(real.start)
    try:
        async with pair_of(real) as embedded_pair:
            yield embedded_pair
    finally:
        await asyncio.to_thread(real.close)


def _case(path: str) -> cases.Case:
    """Read a case; it is a text of our own, which is evaluated."""
    try:
        case = eval(Path(path).read_text(), vars(cases) | vars(sets) | vars(wire))
    except Exception as error:
        raise argparse.ArgumentTypeError(f"{path}: {type(error).__name__}: {error}") from None
    if not isinstance(case, cases.Case):
        raise argparse.ArgumentTypeError(f"{path}: expected a text like Case(1, (…))")
    return case


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.differential", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=200, help="seeds per line (default: 200)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument(
        "--line", action="append", choices=[*RELEASES.values(), GATEWAY], help="may be repeated"
    )
    parser.add_argument(
        "--brokers", type=int, action="append", choices=(1, 3), help="default: 1 and 3"
    )
    parser.add_argument("--at-once", type=positive, default=8, help="cases at a time (default: 8)")
    parser.add_argument("--case", type=_case, metavar="FILE", help="run this case, not seeds")
    options = parser.parse_args(argv)
    numbers = options.brokers or ((1, 3) if options.case is None else (options.case.brokers,))
    equal = True
    try:
        for release in options.line or RELEASES.values():
            for brokers in numbers if release != GATEWAY else (1,):
                equal &= asyncio.run(run_line(release, brokers, options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
