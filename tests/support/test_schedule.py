"""The units of tests that xdist's processes get, and their order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conformance.contract.targets import TargetSpec
from tests.support.paths import ROOT
from tests.support.schedule import (
    DEFAULT_VERSION,
    LINE_SECONDS,
    MODERN,
    SPARK,
    group_of,
    units_of,
)


class Item:
    """What `group_of` reads of a test."""

    nodeid = "tests/faults/failover/test_failover.py::test_a_pause"

    def __init__(
        self,
        *fixturenames: str,
        real: bool = False,
        timeout_s: float = 0,
        release: str = "",
        **params: object,
    ) -> None:
        self.fixturenames = fixturenames
        self.callspec = SimpleNamespace(params=params)
        self._markers = {
            "real": real,
            "timeout": timeout_s and pytest.mark.timeout(timeout_s),
            "release": release and pytest.mark.release(release),
        }

    def get_closest_marker(self, name: str) -> object:
        return self._markers[name] or None


@pytest.mark.parametrize(
    ("item", "group"),
    [
        (Item("spec", real=True, spec=TargetSpec("real", "0.9.0.1", 1)), "0.9.0.1"),
        (Item("spec", spec=TargetSpec("embedded", "0.9", 1)), None),
        (Item("broker_clusters", version="3.9.1", size=1), "3.9.1"),
        (Item("broker_clusters", cluster=("0.8.1.1", 1)), "0.8.1.1"),
        (Item("broker_clusters", names=()), DEFAULT_VERSION),
        (Item("broker_clusters", release="0.8.0"), "0.8.0"),
        (Item("own_cluster", real=True), "tests/faults/failover"),
        (Item("modern_cluster", "broker_clusters", version="0.10.2.2"), MODERN),
        (Item("spark", "broker_clusters", version="3.9.1"), SPARK),
        (Item("kafka_cluster", version="0.8.0"), None),
        (None, None),
    ],
)
def test_group_is_what_a_test_shares_with_others(item: Any, group: str | None) -> None:
    assert group_of(item) == group


def test_unit_is_a_group_a_file_or_a_long_test() -> None:
    one_line = Item("broker_clusters", version="3.9.1", size=1)
    items: list[Any] = [Item(), one_line, Item(timeout_s=180), Item("spark"), one_line, Item()]
    file = "tests/faults/failover/test_failover.py"
    units = units_of(items)
    assert [unit.name for unit in units] == [
        *(file, "3.9.1", f"{file}::test_a_pause", SPARK, "3.9.1", file)
    ]
    seconds = [unit.seconds for unit in units]
    assert seconds[1] == seconds[4] == 2 * LINE_SECONDS  # of the whole group
    assert seconds[2] > seconds[3] > seconds[1] > seconds[0] == seconds[5] == 0


def test_units_run_whole_with_the_longest_first(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids in reports are those by which a test can be run."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest("""
        import os, pytest
        pytest_plugins = ["tests.support.schedule"]

        @pytest.fixture(autouse=True)
        def note(request):
            with open("ran", "a") as ran:
                print(os.environ["PYTEST_XDIST_WORKER"], request.node.nodeid, file=ran)

        @pytest.fixture
        def spark():
            pass
    """)
    names = [f"test_{number}" for number in range(4)]
    files = {
        f"test_{name}": "\n".join(
            f"def {one}({'spark' if name < 'c' else ''}): pass" for one in names
        )
        for name in "abcd"
    }
    files["test_e"] = "import pytest\n@pytest.mark.timeout(30)\ndef test_long(): pass"
    pytester.makepyfile(**files)
    arguments = ("-n2", "--dist=loadgroup", "--no-loadscope-reorder")
    result = pytester.runpytest_subprocess("-v", *arguments)
    result.assert_outcomes(passed=17)
    assert "@" not in result.stdout.str()
    ran = [line.split() for line in (pytester.path / "ran").read_text().splitlines()]
    spark = [process for process, test in ran if test[:7] in {"test_a.", "test_b."}]
    assert len(spark) == 8
    assert len(set(spark)) == 1
    for name in "cd":
        assert len({process for process, test in ran if test.startswith(f"test_{name}")}) == 1
    by_process = {process: [test for one, test in ran if one == process] for process, _ in ran}
    assert by_process[spark[0]][0].startswith("test_a")
    [other] = set(by_process) - {spark[0]}
    assert by_process[other][0] == "test_e.py::test_long"
