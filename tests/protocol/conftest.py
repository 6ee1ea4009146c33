"""Fixture: run a module's tests with each twin of the message set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokafka08.protocol.message_set import IMPLEMENTATION
from tests.protocol.twins import TWINS, twin


@pytest.fixture(scope="module", params=sorted(TWINS))
def each_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Select a twin. Module scope, since Hypothesis runs one function many times."""
    twin.use(request.param)
    yield request.param
    twin.use(IMPLEMENTATION)
