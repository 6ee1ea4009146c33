"""SASL and authorization on real brokers, with a KDC. Needs `tests.support.gssapi_wheel`."""

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(180), pytest.mark.every_line]
