"""Clusters with SASL listeners, and the options of clients that may do all there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aiokafka08.errors import KafkaError
from aiokafka08.helpers import create_ssl_context
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import PASSWORDS
from tests.support.gssapi_wheel import require_gssapi

REQUEST_TIMEOUT_S = 10.0
SECRETS = ("alice-secret", "wrong-secret", "mallory-secret")

Options = dict[str, Any]
StartCluster = Callable[[str], RealCluster]


@pytest.fixture
def kdc(broker_clusters: BrokerClusters, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    """The session's KDC; this process asks it for tickets, and has none."""
    require_gssapi()
    kdc = broker_clusters.kdc()
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.folder}/no-cache")
    return kdc


@pytest.fixture
def sasl_cluster(kdc: Kdc, broker_clusters: BrokerClusters) -> StartCluster:
    """Return the shared cluster of a version with SASL listeners."""
    return lambda version: broker_clusters.get(version, sasl=True)


def options_of(
    cluster: RealCluster, mechanism: str, *, tls: bool = False, **others: Any
) -> Options:
    """Return a client's options; `others` replace some of them."""
    servers = cluster.sasl_ssl_bootstrap_servers if tls else cluster.sasl_bootstrap_servers
    options: Options = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "request_timeout_ms": round(REQUEST_TIMEOUT_S * 1000),
    }
    if tls:
        options["ssl_context"] = create_ssl_context(cafile=str(cluster.ca_path))
    if mechanism == "GSSAPI":
        kdc = cluster.sasl.kdc
        assert kdc is not None
        options |= {
            "sasl_kerberos_keytab": str(kdc.keytab("client")),
            "sasl_kerberos_principal": "client",
        }
    elif mechanism != "OAUTHBEARER":
        options |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS["alice"]}
    return options | others


@contextmanager
def raises_in_time(error: type[KafkaError], cause: str, *secrets: str) -> Iterator[None]:
    """Expect one error, within the request timeout, whose text has the cause and no secret."""
    began = time.monotonic()
    with pytest.raises(error, match=cause) as caught:
        yield
    assert time.monotonic() - began < REQUEST_TIMEOUT_S
    assert type(caught.value) is error
    assert not any(secret in str(caught.value) for secret in (*SECRETS, *secrets))
