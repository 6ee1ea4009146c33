"""Which twin of the message set is under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokafka08.protocol.message_set import IMPLEMENTATION
from tests.protocol.twins import TWINS, twin


@pytest.fixture(scope="module", params=sorted(TWINS))
def each_twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of the module, since Hypothesis runs one function many times."""
    twin.use(request.param)
    yield request.param
    twin.use(IMPLEMENTATION)
