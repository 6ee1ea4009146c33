"""Parameters with which a test runs only in `nox -s full`."""

from __future__ import annotations

from typing import Any

import pytest


def in_full(*values: object) -> list[Any]:
    """Return the values as `parametrize` takes them, marked `full`; a tuple has several names."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.full)
        for value in values
    ]
