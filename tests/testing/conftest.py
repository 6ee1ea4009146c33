"""Targets: the embedded cluster and, where the machine has Java, the real one of the same line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokafka08.testing.broker_lines import LINES
from tests.brokers.fixtures import BrokerClusters
from tests.testing.peer import Peer
from tests.testing.targets import REAL, RealTarget, Target, embedded, new_name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`target` is one broker of each line that the test is for (`only`), `trio` are three."""
    wanted = getattr(metafunc.function, "only_lines", lambda line: True)
    for fixture in {"target", "trio"} & set(metafunc.fixturenames):
        params = []
        for line in filter(wanted, LINES.values()):
            params.append(pytest.param(("embedded", line.name), id=f"embedded-{line.name}"))
            marks = [pytest.mark.real]
            if fixture == "trio" and line.name != "0.8.2":
                marks.append(pytest.mark.full)  # three JVMs more
            params.append(pytest.param(("real", line.name), id=f"real-{line.name}", marks=marks))
        metafunc.parametrize(fixture, params, indirect=True)


def _target(request: pytest.FixtureRequest, brokers: int) -> Iterator[Target]:
    kind, line = request.param
    if kind == "embedded":
        with embedded(line, brokers) as target:
            yield target
    else:
        clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
        yield RealTarget(clusters.get(REAL[line], brokers), LINES[line])


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """One broker, embedded or real."""
    yield from _target(request, 1)


@pytest.fixture
def trio(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Three brokers, embedded or real."""
    yield from _target(request, 3)


@pytest.fixture
def peer(target: Target) -> Iterator[Peer]:
    """A connection to the one broker."""
    with Peer(target.address(0)) as peer:
        yield peer


@pytest.fixture
def topic(target: Target) -> str:
    """A new topic with three partitions."""
    name = new_name()
    target.create_topic(name, 3)
    return name
