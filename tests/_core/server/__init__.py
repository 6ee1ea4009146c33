import pytest

pytestmark = pytest.mark.suite
