"""The planted bugs still apply, each to a file that is valid Python afterwards."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import aiokafka08
from tests.mutants.planted import MUTANTS, Mutant
from tests.mutants.scenario import run

PACKAGE = Path(aiokafka08.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies(mutant: Mutant) -> None:
    ast.parse(mutant.apply((PACKAGE / mutant.path).read_text()))


def test_names_are_unique_and_there_are_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_mutant_that_no_longer_applies_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0 times in producer/sink\.py, expected once"):
        Mutant("m", "producer/sink.py", "no such line", "").apply("text")


@pytest.mark.parametrize("seed", range(5))
def test_scenario_finds_nothing_in_the_client_as_it_is(seed: int) -> None:
    """One seed of each broker line; `nox -s mutants` runs more."""
    assert run(seed) == []
