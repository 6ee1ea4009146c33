"""Watch the transactions that a sink begins."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from aiokafka08.bridge.sink.transaction import OpenTransaction


def begun_transactions(sink: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[OpenTransaction]:
    """Return a list to which each transaction is appended that the module `sink` begins."""
    begun: list[OpenTransaction] = []

    def begin(*arguments: Any, **options: Any) -> OpenTransaction:
        begun.append(OpenTransaction(*arguments, **options))
        return begun[-1]

    monkeypatch.setattr(sink, "OpenTransaction", begin)
    return begun
