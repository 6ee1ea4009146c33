"""The clusters that the contract suite runs on: embedded ones, and real ones of each line.

A test names its targets with `on_targets` (a range of versions) or `on_lines` (a predicate on the
embedded cluster's table of lines). A test that names none runs on one broker of every target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import pytest

from aiokafka08.testing.broker_lines import LINES, LineRules

RELEASES = {
    "0.8.0": "0.8.0",
    "0.8.1": "0.8.1.1",
    "0.8.2": "0.8.2.2",
    "0.9": "0.9.0.1",
    "0.10": "0.10.2.2",
}
"""Line → the release that stands for it among the real brokers."""
NEWEST_RELEASE = "3.9.1"
"""The last release that serves this client; it has no embedded counterpart."""


class TargetSpec(NamedTuple):
    """One cluster to run a test on. `version` is a line if embedded, and a release if real."""

    kind: Literal["embedded", "real"]
    version: str
    brokers: int


def version_numbers(version: str) -> tuple[int, ...]:
    """Return a version that can be compared: "0.8.2" → (0, 8, 2)."""
    return tuple(map(int, version.split(".")))


def targets(since: str = "0.8.0", below: str = "4", brokers: int = 1) -> list[Any]:
    """Return the parameters of the fixture `spec` for a range of versions."""

    def in_range(versions: Iterable[str]) -> list[str]:
        low, high = version_numbers(since), version_numbers(below)
        return [version for version in versions if low <= version_numbers(version) < high]

    return _params(in_range(RELEASES), in_range([*RELEASES.values(), NEWEST_RELEASE]), brokers)


def line_targets(
    where: Callable[[LineRules], bool] = lambda line: True, brokers: int = 1
) -> list[Any]:
    """Return the parameters of the fixture `spec` for the lines that fulfil a predicate."""
    lines = [name for name, line in LINES.items() if where(line)]
    return _params(lines, [RELEASES[line] for line in lines], brokers)


def on_targets(since: str = "0.8.0", below: str = "4", brokers: int = 1) -> pytest.MarkDecorator:
    """Run a test on a range of versions only, or on several brokers."""
    return pytest.mark.parametrize("spec", targets(since, below, brokers), indirect=True)


def on_lines(
    where: Callable[[LineRules], bool] = lambda line: True, brokers: int = 1
) -> pytest.MarkDecorator:
    """Run a test on the lines that fulfil a predicate only, or on several brokers."""
    return pytest.mark.parametrize("spec", line_targets(where, brokers), indirect=True)


def _params(lines: list[str], releases: list[str], brokers: int) -> list[Any]:
    # Other tests start three brokers of 0.8.2.2 anyway; of other releases they are started for
    # `--full` only.
    full = [pytest.mark.full] if brokers > 1 else []
    return [
        pytest.param(TargetSpec("embedded", line, brokers), id=f"embedded_{line}") for line in lines
    ] + [
        pytest.param(
            TargetSpec("real", release, brokers),
            id=f"real_{release}",
            marks=[pytest.mark.real] if release == "0.8.2.2" else [pytest.mark.real, *full],
        )
        for release in releases
    ]
