import pytest

pytestmark = [pytest.mark.suite, pytest.mark.client, pytest.mark.twins, pytest.mark.fast]
