"""A pytest plugin: under xdist, tests that share brokers or a Spark session run in one process.

Each process of xdist has clusters and a Spark session of its own. If tests ran in the order of
files, each process would start all of them, and they would idle until its end: together most of
the CPU time of all tests. So this plugin puts each test into a unit: what it shares with others,
or itself if it is long, or its file. `--dist=loadgroup` gives a process that has done its work the
next unit, as a whole: the largest first, so that all processes end at about the same time. When a
process leaves a unit, it closes the unit's clusters.

Invariant: the units decide only where and when a test runs. A test in a wrong unit starts a cluster
that another process has too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import NamedTuple

import pytest

from tests.brokers.fixtures import close_clusters
from tests.brokers.versions import VERSIONS, find_version
from tests.support.lines import needs_real_brokers, release_of

SPARK = "spark"
DEFAULT_VERSION = "0.8.2.2"
"""Most tests that name no version by a parameter use this one."""

MODERN = "modern_cluster"
"""Tests of the bridge. An idle broker of 4.1.0 takes four times the CPU time of an older one: it is
closed when the last of them has ended."""

SECONDS = {SPARK: 2.0, DEFAULT_VERSION: 0.8}
LINE_SECONDS = 0.3
OWN_SECONDS = 4.0
"""Rough times of one test of a group, to begin with the longest group: of Spark, of the version
that most tests use, of another version, of tests that start brokers themselves."""
PART_OF_TIMEOUT = 0.1
"""What a test with a timeout of its own takes of it, roughly."""


def group_of(item: pytest.Item | None) -> str | None:
    """Return what the test shares with others, or None.

    That is Spark, or a version of real brokers: from the mark `release`, else from a parameter,
    else the default one. Tests that start brokers themselves share at most the fixtures of their
    folder.
    """
    if item is None:
        return None
    if "spark" in getattr(item, "fixturenames", ()):
        return SPARK
    if not needs_real_brokers(item):
        return None
    if "modern_cluster" in item.fixturenames:  # type: ignore[attr-defined]  # pytest.Function
        return MODERN
    if (mark := item.get_closest_marker("release")) is not None:
        return find_version(mark.args[0]).name
    if (release := release_of(item)) is not None:
        return release
    if "broker_clusters" in item.fixturenames:  # type: ignore[attr-defined]  # pytest.Function
        return DEFAULT_VERSION
    return item.nodeid.partition("::")[0].rpartition("/")[0]


class Unit(NamedTuple):
    """Tests that one process runs behind each other. The unit with the longest time comes first."""

    seconds: float
    name: str


def units_of(items: Sequence[pytest.Item]) -> list[Unit]:
    """Return the unit of each test.

    A test without a group is a unit with its file, or by itself if it has a timeout of its own.
    """
    groups = [group_of(item) for item in items]
    sizes = Counter(groups)
    return [
        Unit(_seconds(group) * sizes[group], group) if group else _unit_without_group(item)
        for item, group in zip(items, groups, strict=True)
    ]


def _unit_without_group(item: pytest.Item) -> Unit:
    if (timeout := item.get_closest_marker("timeout")) is not None:
        return Unit(timeout.args[0] * PART_OF_TIMEOUT, item.nodeid)
    return Unit(0.0, item.nodeid.partition("::")[0])


def _seconds(group: str) -> float:
    return SECONDS.get(group, LINE_SECONDS if group in VERSIONS else OWN_SECONDS)


def _is_process_of_xdist(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    yield  # others deselect and sort
    if _is_process_of_xdist(config):
        units = dict(zip(items, units_of(items), strict=True))
        items.sort(key=lambda item: -units[item].seconds)  # else the order stays


class _Reported(NamedTuple):
    """What xdist reads of a test when it tells its controller what there is."""

    nodeid: str


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None]:
    """Let xdist's controller know the units: it gets only ids, and reads a unit behind an "@".

    Of xdist's own marker for that the ids would remain so, also in reports: nobody could run the
    test of such an id.
    """
    items = session.items
    if _is_process_of_xdist(session.config):
        units = zip(items, units_of(items), strict=True)
        named = [_Reported(f"{item.nodeid}@{unit.name}") for item, unit in units]
        session.items = named  # type: ignore[assignment]
    yield
    session.items = items


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if not _is_process_of_xdist(item.config):
        return
    if (group := group_of(item)) and group != group_of(nextitem):
        close_clusters(item.config)
