import pytest

pytestmark = pytest.mark.client
