"""The harness's SASL listeners, with the Java client of each line as the judge; and its KDC."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.cluster import RealCluster
from tests.brokers.errors import HarnessError, UnsupportedByBrokerError
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.kdc import Kdc
from tests.brokers.ports import free_port
from tests.brokers.sasl import SaslUsers
from tests.brokers.wire import metadata
from tests.support.debian_tools import skipped_if_missing

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    require_real_brokers()
    with skipped_if_missing("MIT Kerberos", "krb5-kdc krb5-user"), Kdc() as running:
        running.add_principal("client", ticket_s=60)
        yield running


def test_kdc_gives_tickets_except_in_an_outage(kdc: Kdc, tmp_path: Path) -> None:
    kdc.kinit("client", tmp_path / "cache")
    kdc.stop()
    with pytest.raises(HarnessError, match="Cannot contact any KDC"):
        kdc.kinit("client", tmp_path / "cache")
    kdc.start()
    kdc.kinit("client", tmp_path / "cache")
    with pytest.raises(HarnessError, match="not found in Kerberos database"):
        kdc.kinit("nobody", tmp_path / "cache")


def test_failed_query_raises(kdc: Kdc) -> None:
    with pytest.raises(HarnessError, match="does not exist"):
        kdc.administer("delprinc -force nobody")


@pytest.mark.full
def test_port_of_a_further_listener_that_is_taken_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers of 0.9 then go on running, without a listener."""
    require_real_brokers()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([free_port(), taken.getsockname()[1]])
        monkeypatch.setattr("tests.brokers.broker.free_port", lambda: next(ports, 0) or free_port())
        with RealCluster("0.9.0.1", ssl=True) as cluster:
            assert next(ports, None) is None
            metadata(cluster.port(0))


def test_sasl_of_a_line_without_it_is_refused() -> None:
    with pytest.raises(UnsupportedByBrokerError, match=r"expected 0\.9 or newer"):
        RealCluster("0.8.2.2", sasl=SaslUsers({"alice": "secret"}))
    with pytest.raises(HarnessError, match="no SASL listeners"):
        _ = RealCluster("0.9.0.1").sasl
