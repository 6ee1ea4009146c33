"""Fixtures for tests of code that uses Kafka: `kafka_cluster`, `kafka_bootstrap_servers`.

pytest loads this module in every session where the package is installed (entry point `pytest11`).
Law: it imports nothing until a fixture is used, and does nothing but to register a marker.

    def test_my_service(kafka_bootstrap_servers):
        ...

    @pytest.mark.kafka_cluster(brokers=3, version="0.8.0", topics={"orders": 4})
    def test_failover(kafka_cluster):
        kafka_cluster.kill(0)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokafka08.testing import EmbeddedCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_cluster(brokers=1, version='0.8.2', topics=None, **options): what the fixture"
        " `kafka_cluster` is made with; options are those of aiokafka08.testing.EmbeddedCluster."
        " Of several marks each option's closest one counts.",
    )


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """An embedded Kafka cluster, new for each test, in a thread of its own.

    The mark `kafka_cluster` says what it is made with.
    """
    from aiokafka08.testing import EmbeddedCluster

    wrong = ""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(EmbeddedCluster(**_options(request)))
        except (ValueError, OSError) as error:
            wrong = f"kafka_cluster: {error}"
        if wrong:  # the user's mistake, to be seen without our traceback
            pytest.fail(wrong, pytrace=False)
        yield cluster


@pytest.fixture
def kafka_bootstrap_servers(kafka_cluster: EmbeddedCluster) -> str:
    """The addresses of `kafka_cluster`: "host:port,host:port"."""
    return kafka_cluster.bootstrap_servers


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the test's marks say, the closest one last.

    Raises:
        ValueError: it isn't an option's name.
    """
    import inspect

    from aiokafka08.testing import EmbeddedCluster

    known = inspect.signature(EmbeddedCluster).parameters
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("kafka_cluster"))):
        if mark.args:
            given = ", ".join(map(repr, mark.args))
            raise ValueError(f"{given} without a name; options have names, as brokers=3")
        options |= mark.kwargs
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"{name}={value!r}: there is no such option; there are {', '.join(known)}"
            )
    return options
