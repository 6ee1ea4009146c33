"""The pytest plugin, in pytest sessions of its own.

These sessions load it by an entry point like the one in pyproject.toml, whether the package is
installed or not. `-p` with the module's name in addition to the entry point would register it
twice.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable

import pytest

from tests.support.paths import ROOT

PLUGIN = "aiokafka08.testing.pytest_plugin"
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a test file in a session with this plugin and no other installed one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, module)] = project["entry-points"]["pytest11"].items()
    installed = pytester.mkdir("installed")
    metadata = installed / "aiokafka08_here-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: aiokafka08-here\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    monkeypatch.setenv("PYTHONPATH", f"{installed}:{ROOT}")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_pytest(source: str, *options: str, autoload: bool = False) -> pytest.RunResult:
        pytester.makepyfile(source)
        if autoload:
            monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
        else:  # pytest looks this name up among the entry points
            options = ("-p", name, *options)
        return pytester.runpytest_subprocess("--strict-markers", *options)

    return run_pytest


def test_three_line_test_works(run: Run) -> None:
    result = run(
        """
        import asyncio
        from aiokafka08 import AIOKafkaProducer

        def test_one(kafka_bootstrap_servers):
            async def send():
                async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap_servers) as producer:
                    return await producer.send_and_wait("orders", b"tea")
            assert asyncio.run(send()).offset == 0
        """
    )
    result.assert_outcomes(passed=1)


def test_marks_set_the_cluster_options(run: Run) -> None:
    result = run(
        """
        import pytest
        from aiokafka08.testing import LINES

        @pytest.mark.kafka_cluster(brokers=3, version="0.8.0", topics={"orders": 4})
        class TestMany:
            def test_two(self, kafka_cluster, kafka_bootstrap_servers):
                assert kafka_cluster.version == "0.8.0"
                assert kafka_cluster.leader("orders", 2) == 2
                assert kafka_bootstrap_servers == kafka_cluster.bootstrap_servers
                assert kafka_bootstrap_servers.count(",") == 2

            @pytest.mark.kafka_cluster(version="0.9")
            def test_the_closer_mark_wins(self, kafka_cluster):
                assert kafka_cluster.version == "0.9"
                assert len(kafka_cluster.nodes) == 3

        @pytest.mark.parametrize("version", [
            pytest.param(version, marks=pytest.mark.kafka_cluster(version=version))
            for version in LINES
        ])
        def test_each_line(version, kafka_cluster):
            assert kafka_cluster.version == version
        """
    )
    result.assert_outcomes(passed=7)


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ("3", "3: expected keyword arguments, such as brokers=3"),
        ("broker=3, topics={}", "broker=3: unknown option; expected one of: brokers, version, *"),
        ("brokers=0", "brokers=0: expected an integer >= 1"),
        ("version='2.8'", "version='2.8': expected one of '0.8.0', *"),
        ("topics=['orders']", "topics=['orders']: expected a mapping*"),
        ("host='192.0.2.1'", "* broker 0 can't listen on 192.0.2.1:0: *"),
    ],
)
def test_invalid_option_fails_without_traceback(run: Run, mark: str, complaint: str) -> None:
    result = run(
        f"""
        import pytest

        @pytest.mark.kafka_cluster({mark})
        def test_it(kafka_cluster):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    pattern = f"kafka_cluster: {complaint}".replace("[", "[[]")
    result.stdout.fnmatch_lines(["*_ ERROR at setup of test_it _*", pattern], consecutive=True)
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_async_test_uses_cluster_in_its_own_thread(run: Run) -> None:
    """The cluster's event loop runs while a blocking call in the test's loop waits for it."""
    result = run(
        """
        import pytest
        from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
        from aiokafka08.testing import EmbeddedCluster

        @pytest.fixture
        async def producer(kafka_bootstrap_servers):
            async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap_servers) as producer:
                yield producer

        @pytest.mark.kafka_cluster(brokers=2, topics={"orders": 1})
        async def test_a_leader_dies(kafka_cluster, producer):
            await producer.send_and_wait("orders", b"tea")
            kafka_cluster.kill(0)
            await producer.send_and_wait("orders", b"milk")
            values = [message.value for message in kafka_cluster.log("orders", 0)]
            assert values == [b"tea", b"milk"]

        async def test_in_its_own_loop():
            async with EmbeddedCluster(topics={"orders": 1}) as cluster:
                cluster.append("orders", 0, [b"tea"])
                async with AIOKafkaConsumer(
                    "orders",
                    bootstrap_servers=cluster.bootstrap_servers,
                    auto_offset_reset="earliest",
                ) as consumer:
                    assert (await consumer.getone()).value == b"tea"
        """,
        *("-p", "pytest_asyncio.plugin", "--asyncio-mode=auto", "-W", "error"),
        *("-o", "asyncio_default_fixture_loop_scope=function"),
    )
    result.assert_outcomes(passed=2)


def test_session_fixture_overrides_kafka_cluster(run: Run) -> None:
    result = run(
        """
        import pytest
        from aiokafka08.testing import EmbeddedCluster

        @pytest.fixture(scope="session")
        def kafka_cluster():
            with EmbeddedCluster() as cluster:
                yield cluster

        def test_one(kafka_bootstrap_servers, kafka_cluster):
            kafka_cluster.create_topic("orders")

        def test_two(kafka_bootstrap_servers, kafka_cluster):
            assert kafka_cluster.leader("orders", 0) == 0
            assert kafka_bootstrap_servers == kafka_cluster.bootstrap_servers
        """
    )
    result.assert_outcomes(passed=2)


def test_pytest_loads_plugin_beside_others(run: Run) -> None:
    run("def test_it(kafka_cluster): pass", autoload=True).assert_outcomes(passed=1)


def test_plugin_can_be_disabled(run: Run) -> None:
    result = run("def test_it(kafka_cluster): pass", "-p", "no:aiokafka08", autoload=True)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'kafka_cluster' not found"])


def test_pytest_lists_fixtures_and_mark(run: Run) -> None:
    fixtures = run("", "--fixtures")
    fixtures.stdout.fnmatch_lines(
        ["kafka_cluster -- *", "*An embedded Kafka cluster*", "kafka_bootstrap_servers -- *"]
    )
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.kafka_cluster(brokers=1, *"])


def test_unused_plugin_imports_no_client_and_no_cluster(run: Run) -> None:
    result = run(
        """
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("aiokafka08")
            imported = sorted(name for name in sys.modules if name.startswith("aiokafka08"))
            print("imported", *imported)
        """,
        "-s",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [f"*imported aiokafka08 aiokafka08._core aiokafka08._core.lazy aiokafka08.testing {PLUGIN}"]
    )


def test_plugin_imports_only_what_pytest_imports() -> None:
    code = f"import sys, pytest; before = set(sys.modules); import {PLUGIN};"
    code += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    modules = ["_core", "_core.lazy", "testing"]
    assert done.stdout.split() == [
        "aiokafka08",
        *(f"aiokafka08.{name}" for name in modules),
        PLUGIN,
    ]


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ("20", "20: expected keyword arguments, such as seeds=20"),
        ("seeds=0", "seeds=0: expected an integer >= 1"),
        ("seeds=-1", "seeds=-1: expected an integer >= 1"),
        ("seeds='x'", "seeds='x': expected an integer >= 1"),
        ("first='x'", "first='x': expected an integer"),
        ("seed=7", "seed=7: unknown option; expected one of: seeds, first, brokers, *"),
        ("topcs={}", "topcs={}: unknown option; expected one of: seeds, first, brokers, *"),
    ],
)
def test_an_invalid_simulation_marker_fails(run: Run, mark: str, complaint: str) -> None:
    result = run(
        f"""
        import pytest

        @pytest.mark.kafka_simulation({mark})
        def test_it(kafka_world):
            pass

        def test_the_other_one():
            pass
        """
    )
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([f"kafka_simulation: {complaint}"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_simulation_markers_are_merged(run: Run) -> None:
    result = run(
        """
        import pytest

        pytestmark = pytest.mark.kafka_simulation(seeds=3, brokers=2)

        @pytest.mark.kafka_simulation(topics={"orders": 1}, brokers=1)
        def test_it(kafka_world):
            assert list(kafka_world.cluster.nodes) == [0]
            assert kafka_world.cluster.offsets("orders", 0).end == 0
        """
    )
    result.assert_outcomes(passed=3)


def test_a_simulation_runs_once_per_seed(run: Run) -> None:
    result = run(
        """
        import asyncio
        import pytest

        hashes = set()

        @pytest.mark.kafka_simulation(seeds=3, first=5, brokers=2, version="0.10")
        def test_worlds(kafka_world):
            assert len(kafka_world.cluster.nodes) == 2
            kafka_world.run(asyncio.sleep, kafka_world.random.random())
            hashes.add(kafka_world.trace_hash)

        def test_after(kafka_world):
            assert len(hashes) == 3
            assert len(kafka_world.cluster.nodes) == 3

        @pytest.mark.kafka_simulation(version="1.0")
        def test_wrong(kafka_world):
            pass
        """,
        "-v",
    )
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(
        ["*test_worlds?seed=5? PASSED*", "*kafka_simulation: *'1.0'*expected one of*"]
    )
