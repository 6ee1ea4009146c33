"""A pytest plugin: under xdist, tests that share brokers or a Spark session run in one process.

Each process of xdist has clusters and a Spark session of its own. If tests ran in the order of
files, each process would start all of them, and they would idle until its end: together most of
the CPU time of all tests. So this plugin sorts tests by what they share, and puts each such group
at the beginning of one process's share. `--dist=worksteal` gives each process a contiguous share,
and moves tests between processes from the ends of the shares only. When a process leaves a group,
it closes the group's clusters.

Invariant: the order decides only where and when a test runs. A test in a wrong group starts a
cluster that another process has too.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence

import pytest

from tests.brokers.fixtures import close_clusters
from tests.brokers.versions import VERSIONS
from tests.lines import needs_real_brokers, release_of

SPARK = "spark"
DEFAULT_VERSION = "0.8.2.2"
"""Most tests that name no version by a parameter use this one."""

MODERN = "modern_cluster"
"""Tests of the bridge. An idle broker of 4.1.0 takes four times the CPU time of an older one: it is
closed when the last of them has ended."""

SECONDS = {SPARK: 2.0, DEFAULT_VERSION: 0.8}
LINE_SECONDS = 0.3
OWN_SECONDS = 4.0
"""Rough times of one test of a group, to give each process as much to do: of Spark, of the version
that most tests use, of another version, of tests that start brokers themselves."""


def group_of(item: pytest.Item | None) -> str | None:
    """Return what the test shares with others, or None.

    That is a version of real brokers, or Spark. Tests that start brokers themselves share at most
    the fixtures of their folder.
    """
    if item is None:
        return None
    if "spark" in getattr(item, "fixturenames", ()):
        return SPARK
    if not needs_real_brokers(item):
        return None
    if "modern_cluster" in item.fixturenames:  # type: ignore[attr-defined]  # pytest.Function
        return MODERN
    if (release := release_of(item)) is not None:
        return release
    if "broker_clusters" in item.fixturenames:  # type: ignore[attr-defined]  # pytest.Function
        return DEFAULT_VERSION
    return item.nodeid.partition("::")[0].rpartition("/")[0]


def arrange(groups: Iterable[str | None], processes: int) -> list[int]:
    """Return the indexes of tests in the order in which xdist is to distribute them.

    `groups` has the group of each test. The largest group comes first, to the process with the
    least to do; the tests without a group fill the shares.
    """
    members: dict[str | None, list[int]] = {None: []}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    free = members.pop(None)
    total = len(free) + sum(map(len, members.values()))
    shares: list[list[int]] = [[] for _ in range(processes)]
    seconds = [0.0] * processes
    for group, indexes in sorted(members.items(), key=lambda item: -_seconds(*item)):
        least = seconds.index(min(seconds))
        shares[least] += indexes
        seconds[least] += _seconds(group, indexes)
    order: list[int] = []
    for number, share in enumerate(shares):
        # xdist gives each process the same part of what is left.
        room = max(0, (total - len(order)) // (processes - number) - len(share))
        order += share + free[:room]
        del free[:room]
    return order + free


def _seconds(group: str | None, indexes: Sequence[int]) -> float:
    own = OWN_SECONDS if group not in VERSIONS else LINE_SECONDS
    return len(indexes) * SECONDS.get(group or "", own)


def _processes() -> int:
    """Return the number of xdist's processes; 0 in a run without xdist, and in its controller."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    yield  # others deselect and sort
    if processes := _processes():
        items[:] = [items[index] for index in arrange(map(group_of, items), processes)]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if _processes() and (group := group_of(item)) and group != group_of(nextitem):
        close_clusters(item.config)
