"""A pytest plugin with the fixtures `kafka_cluster`, `kafka_bootstrap_servers`, `kafka_world`.

    @pytest.mark.kafka_cluster(brokers=3, version="0.8.0", topics={"orders": 4})
    def test_failover(kafka_cluster):
        kafka_cluster.kill(0)

Invariant: pytest loads this module in every session where the package is installed (entry point
`pytest11`), so until a test uses a fixture, it only registers markers, and doesn't import the
cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from aiokafka08.testing import EmbeddedCluster
    from aiokafka08.testing.simulation import World

# The parameters of `simulate` that a marker can't set; it gives seeds by `seeds` and `first`.
_NOT_OF_A_MARKER: Final = ("seed", "options")


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
        " are those of aiokafka08.testing.simulation.simulate. If there are several markers, the"
        " closest one takes precedence for each option.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kafka_world" not in metafunc.fixturenames:
        return
    try:
        seeds = _seeds(metafunc.definition)
    except ValueError as error:  # fail one test; an exception here would lose the whole module
        metafunc.parametrize("kafka_world", [error], ids=["invalid marker"], indirect=True)
    else:
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

    failure = ""
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(request.param, ValueError):
                raise request.param
            options = _world_options(request)
            world = stack.enter_context(simulate(request.param, **options))
        except (TypeError, ValueError) as error:
            failure = f"kafka_simulation: {error}"
        if failure:  # outside `except`: the user's mistake needs no traceback of this module
            pytest.fail(failure, pytrace=False)
        yield world


def _seeds(node: pytest.Item) -> range:
    """Return the seeds of a test's markers.

    Raises:
        ValueError: a marker has an unnamed option, or `seeds` or `first` is invalid.
    """
    options = {"seeds": 1, "first": 0} | _merged(node, "kafka_simulation", "seeds=20")
    seeds, first = options["seeds"], options["first"]
    if type(seeds) is not int or seeds < 1:
        raise ValueError(f"seeds={seeds!r}: expected an integer >= 1")
    if type(first) is not int:
        raise ValueError(f"first={first!r}: expected an integer")
    return range(first, first + seeds)


def _world_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of `simulate` that the test's markers set.

    Raises:
        ValueError: a marker has an unnamed or unknown option.
    """
    import inspect

    from aiokafka08.testing import EmbeddedCluster
    from aiokafka08.testing.simulation import simulate

    options = _merged(request.node, "kafka_simulation", "seeds=20")
    for name in ("seeds", "first"):
        options.pop(name, None)
    own = [name for name in inspect.signature(simulate).parameters if name not in _NOT_OF_A_MARKER]
    _refuse_unknown(
        options,
        dict.fromkeys(["seeds", "first", *own, *inspect.signature(EmbeddedCluster).parameters]),
    )
    return options


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of `EmbeddedCluster` that the test's markers set.

    Raises:
        ValueError: a marker has an unnamed or unknown option.
    """
    import inspect

    from aiokafka08.testing import EmbeddedCluster

    options = _merged(request.node, "kafka_cluster", "brokers=3")
    _refuse_unknown(options, inspect.signature(EmbeddedCluster).parameters)
    return options


def _merged(node: pytest.Item, marker: str, example: str) -> dict[str, Any]:
    """Return the options of a test's markers of one name; the closest marker takes precedence."""
    options: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers(marker))):
        if mark.args:
            arguments = ", ".join(map(repr, mark.args))
            raise ValueError(f"{arguments}: expected keyword arguments, such as {example}")
        options |= mark.kwargs
    return options


def _refuse_unknown(options: dict[str, Any], known: Collection[str]) -> None:
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"{name}={value!r}: unknown option; expected one of: {', '.join(known)}"
            )
