"""The pytest plugin, in pytest sessions of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = "aiokafka08.testing.pytest_plugin"


def test_three_lines_are_enough(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # whether it is installed or not
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makepyfile(
        """
        import socket, pytest

        def test_one(kafka_bootstrap_servers):
            host, _, port = kafka_bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port))).close()

        @pytest.mark.kafka_cluster(brokers=2, version="0.8.0", topics={"orders": 4})
        class TestMany:
            def test_two(self, kafka_cluster):
                assert kafka_cluster.version == "0.8.0"
                assert kafka_cluster.leader("orders", 3) == 1

            @pytest.mark.kafka_cluster(version="0.9")
            def test_the_closer_mark_wins(self, kafka_cluster):
                assert kafka_cluster.version == "0.9"
                assert len(kafka_cluster.nodes) == 2

        @pytest.mark.kafka_cluster(3)
        def test_by_name_only(kafka_cluster):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-p", PLUGIN, "--strict-markers")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*kafka_cluster takes its options by name*"])


def test_loading_it_imports_nothing() -> None:
    code = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN};"
        "new = {name for name in set(sys.modules) - before};"
        "print(*sorted(name for name in new if name.startswith('aiokafka08.testing')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert "aiokafka08.testing.pytest_plugin" in done.stdout
    assert "aiokafka08.testing.server" not in done.stdout
