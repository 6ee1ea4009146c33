import pytest

pytestmark = [pytest.mark.suite, pytest.mark.each_python, pytest.mark.fast]
