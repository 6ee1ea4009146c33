"""`python -m tests.tools.fuzz --examples 1000000`: first by coverage, then by number; then the
report.

Exit code 0, or 1 if an example failed. A failing input is kept in the corpus's `findings`, and
`python -m tests.tools.fuzz --replay FILE` runs it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from tests.protocol.hostile import Endured
from tests.tools.fuzz import campaign
from tests.tools.fuzz.targets import TARGETS, Steps

_GUIDED_ONE_IN = 20
_MOST_GUIDED = 20_000
"""The examples that atheris chooses, by default: it runs only some hundred in a second."""
_EACH_S = 30.0
"""Seconds between two lines of progress."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="nox -s fuzz --", description=__doc__)
    parser.add_argument("--examples", type=_positive, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first example")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=_positive, default=1)
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz"), help="kept between runs")
    parser.add_argument("--guided", type=int, help="examples that atheris chooses by coverage")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input")
    options = parser.parse_args(arguments)
    if options.replay:
        return _replay(options.replay)
    guided = options.guided
    if guided is None:
        guided = min(options.examples // _GUIDED_ONE_IN, _MOST_GUIDED)
    failed = _run_by_coverage(guided, options.corpus) if guided else False
    last = began = time.monotonic()
    summary, printed = campaign.Summary(), 0
    by_number = options.examples - guided
    try:
        for summary in campaign.run(
            options.seed, options.first, by_number, options.jobs, options.corpus
        ):
            for finding in summary.findings[printed:]:
                print(finding, flush=True)
            printed = len(summary.findings)
            if time.monotonic() - last >= _EACH_S:
                last = time.monotonic()
                print(f"{summary.examples.total()} examples in {last - began:.0f} s", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    print("\n".join(summary.lines()), flush=True)
    return 1 if failed or summary.findings else 0


def _run_by_coverage(examples: int, folder: Path) -> bool:
    """Let atheris choose examples; return whether one failed."""
    if importlib.util.find_spec("atheris") is None:
        print("coverage: skipped: atheris isn't installed (it has no wheel for this Python)")
        return False
    failed = False
    total = sum(target.weight for target in TARGETS.values())
    for target in TARGETS.values():
        if target.name.endswith("-c"):
            continue  # compiled code has no coverage
        runs = max(1, int(examples * target.weight / total))
        command = [
            sys.executable,
            "-m",
            "tests.tools.fuzz.coverage",
            target.name,
            str(runs),
            str(folder),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reached = [line for line in done.stderr.splitlines() if "DONE" in line or "Done" in line]
        print(f"coverage: {target.name}: {' '.join(reached) or done.stderr[-2000:]}", flush=True)
        failed |= done.returncode != 0
        if done.returncode != 0:
            print(f"{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return failed


def _replay(file: Path) -> int:
    name = next((name for name in TARGETS if file.name.startswith(f"{name}-")), file.parent.name)
    error = campaign.run_one(TARGETS[name], file.read_bytes(), Endured(), Steps(), traced=True)
    print(error or "passed")
    return 1 if error else 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected an integer >= 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
