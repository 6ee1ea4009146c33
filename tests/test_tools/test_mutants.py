"""The planted bugs still apply, each to a file that is valid Python afterwards."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import aiokafka08
from aiokafka08.testing.history import Message, Operation
from tests.support.paths import ROOT
from tests.tools.mutants import leases
from tests.tools.mutants.__main__ import COPIED
from tests.tools.mutants.leases import kept_leases
from tests.tools.mutants.planted import MUTANTS, Mutant
from tests.tools.mutants.scenario import run
from tests.tools.mutants.seeds import SCENARIOS

PACKAGE = Path(aiokafka08.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies(mutant: Mutant) -> None:
    ast.parse(mutant.apply((PACKAGE / mutant.path).read_text()))
    if mutant.is_hunted_by_a_test:
        path, _, name = mutant.scenario.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()
    else:
        assert mutant.scenario in SCENARIOS


def test_names_are_unique_and_there_are_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_copy_has_what_the_tests_import() -> None:
    """Else no bug can be hunted by a test: pytest wouldn't begin."""
    imported = set[str]()
    for node in ast.walk(ast.parse((ROOT / "tests/conftest.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
    ours = {name for name in imported if (ROOT / name).is_dir()}
    assert ours <= {*COPIED}
    assert "examples" in ours


def test_mutant_that_no_longer_applies_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0 times in producer/sink\.py, expected once"):
        Mutant("m", "producer/sink.py", "no such line", "").apply("text")


@pytest.mark.parametrize("seed", range(5))
def test_scenario_finds_nothing_in_the_client_as_it_is(seed: int) -> None:
    """One seed of each broker line; `nox -s mutants` runs more."""
    assert run(seed) == []


@pytest.mark.parametrize("seed", range(3))
def test_mixed_scenario_finds_no_kept_lease(seed: int) -> None:
    """One seed of each broker line with groups in ZooKeeper."""
    assert leases.run(seed) == []


POLLED = (Message("t/0", "a", 0),)


def _operation(call: str, process: str = "c", **fields: Any) -> Operation:
    return Operation(
        **{"process": process, "call": call, "invoked": 9.0, "ended": 9.1, "group": "g", **fields}
    )


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (_operation("getmany", polled=POLLED), True),
        (_operation("commit", offsets={"t/0": 1}), True),
        (_operation("commit", status="unknown", offsets={"t/0": 1}), False),
        (_operation("getmany"), False),
        (_operation("getmany", invoked=5.4, polled=POLLED), False),
        (_operation("getmany", process="other", polled=POLLED), False),
    ],
)
def test_lease_is_kept_by_calls_after_the_end(call: Operation, found: bool) -> None:
    end = _operation("expired", invoked=5.0, ended=5.0)
    again = _operation("assigned", invoked=7.0, ended=7.0, partitions=("t/0",))
    assert [one.name for one in kept_leases([call, end])] == ["lease-kept"] * found
    assert not list(kept_leases([call, end, again]))
