"""A pytest plugin: on which lines of real brokers a test runs.

A test that is repeated on several lines runs on 0.8.2.2, on 3.9.1, and on the newest of its lines,
as far as it has them. It runs on all of them with `--all-lines`, as in `nox -s full`, or if it is
marked `every_line`.

Invariant: each behaviour is tested at least on the newest line that it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

from tests.brokers.versions import VERSIONS

RELEASES_IN_TESTS = ("0.8.2.2", "3.9.1")
"""An old and a new release; 0.8.2 is the first of 0.8 that has all its requests."""


def version_of(parameter: object) -> str:
    """Return the version that a test's parameter names, if any: a text, or a tuple with one."""
    if isinstance(parameter, tuple):
        parameter = getattr(parameter, "version", parameter[0] if parameter else "")
    return str(parameter)


def release_of(item: pytest.Item) -> str | None:
    """Return the first release of real brokers that the test's parameters name, if any."""
    callspec = getattr(item, "callspec", None)
    given = map(version_of, callspec.params.values()) if callspec is not None else ()
    return next((version for version in given if version in VERSIONS), None)


def needs_real_brokers(item: pytest.Item) -> bool:
    """Return True if the test is marked `real`, or uses real brokers."""
    fixtures = getattr(item, "fixturenames", ())
    return "broker_clusters" in fixtures or bool(item.get_closest_marker("real"))


def _behaviour(item: pytest.Item) -> Hashable:
    """Return the test without the line that it runs on: its function and its other parameters."""
    parameters = getattr(item, "callspec").params.items()  # noqa: B009 - pytest.Function has it
    others = tuple(
        (name, repr(value)) for name, value in parameters if version_of(value) not in VERSIONS
    )
    return item.nodeid.partition("[")[0], others


def chosen(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without those that repeat a behaviour on a further line."""
    items = list(items)
    releases = defaultdict[Hashable, list[str]](list)
    for item in items:
        if (release := _repeated_on(item)) is not None:
            releases[_behaviour(item)].append(release)
    kept = {behaviour: _chosen_releases(own) for behaviour, own in releases.items()}
    return [
        item
        for item in items
        if (release := _repeated_on(item)) is None or release in kept[_behaviour(item)]
    ]


def _repeated_on(item: pytest.Item) -> str | None:
    """Return the release of a test that other lines may stand for, else None.

    Tests marked `full` don't run here, so they stand for none.
    """
    if item.get_closest_marker("every_line") or item.get_closest_marker("full"):
        return None
    return release_of(item) if needs_real_brokers(item) else None


def _chosen_releases(own: Sequence[str]) -> set[str]:
    """Return on which of its releases a test runs."""
    return {*own} & {*RELEASES_IN_TESTS} | {max(own, key=list(VERSIONS).index)}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("aiokafka08").addoption(
        "--all-lines",
        action="store_true",
        help="run each test on real brokers on all its lines, not only on"
        f" {', '.join(RELEASES_IN_TESTS)} and the newest (--full does so too)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-lines") or config.getoption("--full"):
        return
    kept = chosen(items)
    left_out = [*({*items} - {*kept})]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
