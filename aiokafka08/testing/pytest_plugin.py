"""A pytest plugin with the fixtures `kafka_cluster`, `kafka_bootstrap_servers`, `kafka_world`.

    def test_my_service(kafka_bootstrap_servers):
        ...

    @pytest.mark.kafka_cluster(brokers=3, version="0.8.0", topics={"orders": 4})
    def test_failover(kafka_cluster):
        kafka_cluster.kill(0)

    @pytest.mark.kafka_simulation(seeds=200, brokers=3)
    def test_outages(kafka_world):
        kafka_world.run(scenario, kafka_world)

pytest loads this module in every session where the package is installed (entry point `pytest11`).

Invariant: until a test uses a fixture, the plugin only registers a marker. It doesn't import the
cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokafka08.testing import EmbeddedCluster
    from aiokafka08.testing.simulation import World


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_cluster(brokers=1, version='0.8.2', topics=None, **options): options of the fixture"
        " `kafka_cluster`, the same as those of aiokafka08.testing.EmbeddedCluster. If there are"
        " several markers, the closest one takes precedence for each option.",
    )
    config.addinivalue_line(
        "markers",
        "kafka_simulation(seeds=1, first=0, brokers=3, version='0.8.2', network=None, **options):"
        " run the test once for each seed from `first` on; the other options of its `kafka_world`"
        " are those of aiokafka08.testing.simulation.simulate.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kafka_world" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("kafka_simulation")
        options = {} if mark is None else mark.kwargs
        first = options.get("first", 0)
        seeds = range(first, first + options.get("seeds", 1))
        metafunc.parametrize("kafka_world", seeds, ids="seed={}".format, indirect=True)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """An embedded Kafka cluster, new for each test, in a thread of its own.

    The marker `kafka_cluster` sets its options.
    """
    from aiokafka08.testing import EmbeddedCluster

    failure = ""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(EmbeddedCluster(**_options(request)))
        except (ValueError, OSError) as error:
            failure = f"kafka_cluster: {error}"
        if failure:  # outside `except`: the user's mistake needs no traceback of this module
            pytest.fail(failure, pytrace=False)
        yield cluster


@pytest.fixture
def kafka_bootstrap_servers(kafka_cluster: EmbeddedCluster) -> str:
    """The addresses of `kafka_cluster`: "host:port,host:port"."""
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def kafka_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A simulated world, new for each seed; see `aiokafka08.testing.simulation`.

    The marker `kafka_simulation` sets the number of seeds and the world's options.
    """
    from aiokafka08.testing.simulation import simulate

    mark = request.node.get_closest_marker("kafka_simulation")
    options = {} if mark is None else dict(mark.kwargs)
    for name in ("seeds", "first"):
        options.pop(name, None)
    failure = ""
    with contextlib.ExitStack() as stack:
        try:
            world = stack.enter_context(simulate(request.param, **options))
        except (TypeError, ValueError) as error:
            failure = f"kafka_simulation: {error}"
        if failure:  # outside `except`: the user's mistake needs no traceback of this module
            pytest.fail(failure, pytrace=False)
        yield world


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of the test's markers; the closest marker takes precedence.

    Raises:
        ValueError: a marker has an unnamed or unknown option.
    """
    import inspect

    from aiokafka08.testing import EmbeddedCluster

    known = inspect.signature(EmbeddedCluster).parameters
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("kafka_cluster"))):
        if mark.args:
            given = ", ".join(map(repr, mark.args))
            raise ValueError(f"{given}: expected keyword arguments, such as brokers=3")
        options |= mark.kwargs
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"{name}={value!r}: unknown option; expected one of: {', '.join(known)}"
            )
    return options
