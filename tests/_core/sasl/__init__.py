import pytest

pytestmark = [pytest.mark.suite, pytest.mark.fast]
