"""Tests of the event-loop primitives."""

import pytest

pytestmark = [pytest.mark.suite, pytest.mark.fast]
