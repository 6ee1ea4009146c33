"""The clusters that the contract suite runs on: embedded ones, and real ones of each line."""

from __future__ import annotations

from typing import Any

import pytest

EMBEDDED = ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10")
REAL = ("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1")


def numbers(version: str) -> tuple[int, ...]:
    """To compare: "0.8.2" → (0, 8, 2)."""
    return tuple(map(int, version.split(".")))


def targets(since: str = "0.8.0", below: str = "4", brokers: int = 1) -> list[Any]:
    """Parameters for the fixture `target`: (kind, version, brokers), of these lines."""
    return [
        pytest.param(
            (kind, version, brokers), id=f"{kind}_{version}", marks=_marks(kind, version, brokers)
        )
        for kind, versions in (("embedded", EMBEDDED), ("real", REAL))
        for version in versions
        if numbers(since) <= numbers(version) < numbers(below)
    ]


def _marks(kind: str, version: str, brokers: int) -> list[pytest.MarkDecorator]:
    if kind == "embedded":
        return []
    # Of three real brokers of each line only these run for other tests anyway.
    costs_much = brokers > 1 and version != "0.8.2.2"
    return [pytest.mark.real, pytest.mark.full] if costs_much else [pytest.mark.real]


def on_targets(since: str = "0.8.0", below: str = "4", brokers: int = 1) -> pytest.MarkDecorator:
    """For what only some lines, or several brokers, have."""
    return pytest.mark.parametrize("target", targets(since, below, brokers), indirect=True)
