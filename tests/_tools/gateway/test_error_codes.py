"""Which code a client of an old line gets in place of one that it doesn't know."""

from __future__ import annotations

import pytest

from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08.errors import (
    IllegalGenerationError,
    NotCoordinatorForGroupError,
    UnknownMemberIdError,
)
from aiokafka08.protocol.api import ApiKey

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("error", [IllegalGenerationError, UnknownMemberIdError])
@pytest.mark.parametrize("version", [0, 1])
def test_code_of_a_commit_is_one_that_0_8_2_knows(
    error: type[IllegalGenerationError], version: int
) -> None:
    """0.8.2 sends OffsetCommit 1 (docs/brokers.md 8.3), and knows codes up to 20."""
    found = old_code(ApiKey.OFFSET_COMMIT, version, error.errno)
    assert found == NotCoordinatorForGroupError.errno
