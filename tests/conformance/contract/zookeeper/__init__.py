"""The calls of kazoo that the package makes: the same tests on a real and a simulated ZooKeeper."""

import pytest

pytestmark = pytest.mark.each_python
