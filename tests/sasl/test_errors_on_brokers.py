"""One typed error for each failure, within the request timeout, with its cause in the text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    NoBrokersAvailable,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from tests.brokers import RealCluster
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import HOST_NAME
from tests.sasl.conftest import (
    REQUEST_TIMEOUT_S,
    Options,
    StartCluster,
    options_of,
    raises_in_time,
)
from tests.support.full import in_full

UniqueTopic = Callable[..., str]

OLDEST = "0.9.0.1"
LINES = (OLDEST, "0.10.2.2", "3.9.1")


async def start(options: Options) -> None:
    """Start a producer, and stop it."""
    async with AIOKafkaProducer(**options):
        pass


@pytest.mark.parametrize(
    ("version", "mechanism", "cause"),
    [
        ("0.10.2.2", "PLAIN", "closed the connection.*user.*password"),
        ("0.10.2.2", "SCRAM-SHA-256", "closed the connection.*user.*password"),
        ("3.9.1", "PLAIN", "Invalid username or password"),
        ("3.9.1", "SCRAM-SHA-512", "invalid credentials"),
    ],
)
@pytest.mark.parametrize(
    "user", [{"sasl_plain_password": "wrong-secret"}, {"sasl_plain_username": "nobody"}]
)
async def test_wrong_password_or_user(
    version: str, mechanism: str, cause: str, user: Options, sasl_cluster: StartCluster
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    with raises_in_time(AuthenticationFailedError, cause):
        await start(options_of(cluster, mechanism, **user))


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
async def test_mechanism_that_is_not_enabled(version: str, sasl_cluster: StartCluster) -> None:
    class Provider:
        async def token(self) -> str:
            return "token"  # the broker refuses before it gets it

    cluster = await asyncio.to_thread(sasl_cluster, version)
    options = options_of(cluster, "OAUTHBEARER", sasl_oauth_token_provider=Provider())
    cause = "mechanism OAUTHBEARER; it offers .*SCRAM-SHA-256"
    with raises_in_time(AuthenticationMethodNotSupported, cause):
        await start(options)


@pytest.mark.release(OLDEST)
@pytest.mark.parametrize("mechanism", ["PLAIN", *in_full("SCRAM-SHA-256")])
async def test_mechanism_that_the_line_lacks(mechanism: str, sasl_cluster: StartCluster) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, OLDEST)
    with raises_in_time(AuthenticationFailedError, f"{mechanism}.*closed the connection"):
        await start(options_of(cluster, mechanism))


@pytest.mark.parametrize("version", LINES)
@pytest.mark.parametrize("mechanism", ["GSSAPI", *in_full("PLAIN")])
async def test_sasl_to_a_listener_without_it(
    version: str, mechanism: str, sasl_cluster: StartCluster
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    servers = cluster.bootstrap_servers.replace("127.0.0.1", HOST_NAME)
    options = options_of(cluster, mechanism, bootstrap_servers=servers)
    with raises_in_time(AuthenticationFailedError, "SASL listener"):
        await start(options)


@pytest.mark.parametrize("version", LINES)
async def test_plain_client_to_a_sasl_listener(version: str, sasl_cluster: StartCluster) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    options = {
        "bootstrap_servers": cluster.sasl_bootstrap_servers,
        "request_timeout_ms": REQUEST_TIMEOUT_S * 1000,
        "start_timeout_ms": 2500,
    }
    with raises_in_time(NoBrokersAvailable, "a SASL listener"):
        await start(options)


@pytest.mark.parametrize("version", LINES)
@pytest.mark.parametrize("mechanism", ["GSSAPI", *in_full("PLAIN")])
async def test_tls_listener_addressed_in_plain(
    version: str, mechanism: str, sasl_cluster: StartCluster
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    servers = cluster.sasl_ssl_bootstrap_servers
    with raises_in_time(NoBrokersAvailable, "it responds in TLS. Set security_protocol"):
        await start(options_of(cluster, mechanism, bootstrap_servers=servers))


@pytest.mark.parametrize("version", ["0.9.0.1", *in_full("0.10.2.2", "3.9.1")])
async def test_plain_listener_addressed_in_tls(version: str, sasl_cluster: StartCluster) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    servers = cluster.sasl_bootstrap_servers
    options = options_of(cluster, "GSSAPI", tls=True, bootstrap_servers=servers)
    with raises_in_time(NoBrokersAvailable, "TLS handshake failed"):
        await start(options | {"start_timeout_ms": 2500})


KERBEROS_FAILURES = [
    pytest.param(
        {"sasl_kerberos_service_name": "other"},
        "KDC doesn't know the broker's principal.*sasl_kerberos_service_name",
        id="wrong_service",
    ),
    pytest.param(
        {"sasl_kerberos_domain_name": "elsewhere"},
        "KDC doesn't know the broker's principal",
        id="wrong_host",
    ),
    pytest.param(
        {"sasl_kerberos_domain_name": "localhost@OTHER.TEST"}, r"OTHER\.TEST", id="wrong_realm"
    ),
    pytest.param(
        {"sasl_kerberos_principal": "nobody"}, "keytab has no key", id="not_in_the_keytab"
    ),
    pytest.param(
        {"sasl_kerberos_keytab": "/nowhere/client.keytab"},
        "keytab doesn't exist",
        id="no_keytab",
    ),
    pytest.param(
        {"sasl_kerberos_keytab": None, "sasl_kerberos_principal": None},
        "there is no ticket. Run kinit",
        id="no_ticket",
    ),
]


@pytest.mark.parametrize("version", ["0.9.0.1", *in_full("0.10.2.2", "3.9.1")])
@pytest.mark.parametrize(("wrong", "cause"), KERBEROS_FAILURES)
async def test_kerberos_failure_names_its_cause(
    version: str, wrong: Options, cause: str, sasl_cluster: StartCluster
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    with raises_in_time(AuthenticationFailedError, cause):
        await start(options_of(cluster, "GSSAPI", **wrong))


@pytest.mark.release(OLDEST)
async def test_expired_ticket(
    sasl_cluster: StartCluster, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, OLDEST)
    cache = tmp_path / "cache"
    await asyncio.to_thread(kdc.kinit, "client", cache, "-l", "1s")
    await asyncio.sleep(1.1)  # the life of the ticket
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    options = options_of(cluster, "GSSAPI", sasl_kerberos_keytab=None, sasl_kerberos_principal=None)
    with raises_in_time(AuthenticationFailedError, "the ticket has expired. Run kinit"):
        await start(options)


@pytest.mark.release(OLDEST)
async def test_principal_that_the_kdc_has_no_longer(sasl_cluster: StartCluster, kdc: Kdc) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, OLDEST)
    keytab = await asyncio.to_thread(kdc.add_principal, "leaver")
    await asyncio.to_thread(kdc.administer, "delprinc -force leaver")
    options = options_of(
        cluster, "GSSAPI", sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal="leaver"
    )
    with raises_in_time(AuthenticationFailedError, "KDC doesn't know the client's principal"):
        await start(options)


@pytest.mark.release(OLDEST)
async def test_keytab_with_an_old_key(sasl_cluster: StartCluster, kdc: Kdc, tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, OLDEST)
    keytab = await asyncio.to_thread(kdc.add_principal, "rotated")
    old = tmp_path / "old.keytab"
    old.write_bytes(keytab.read_bytes())
    await asyncio.to_thread(kdc.administer, "cpw -randkey rotated")
    options = options_of(
        cluster, "GSSAPI", sasl_kerberos_keytab=str(old), sasl_kerberos_principal="rotated"
    )
    with raises_in_time(AuthenticationFailedError, "keytab's key isn't the KDC's"):
        await start(options)


@pytest.mark.release(OLDEST)
@pytest.mark.parametrize("kind", ["down", "silent"])
async def test_kdc_without_an_answer(kind: str, sasl_cluster: StartCluster, kdc: Kdc) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, OLDEST)
    # No other client has got tickets with this keytab.
    keytab = await asyncio.to_thread(kdc.add_principal, f"client/{kind}")
    options = options_of(
        cluster,
        "GSSAPI",
        sasl_kerberos_keytab=str(keytab),
        sasl_kerberos_principal=f"client/{kind}",
    )
    if kind == "down":
        kdc.stop()
    else:
        kdc.pause()
    try:
        with raises_in_time(NoBrokersAvailable, "no KDC of the realm (has )?respond"):
            await start(options | {"request_timeout_ms": 2500, "start_timeout_ms": 2500})
    finally:
        if kind == "down":
            await asyncio.to_thread(kdc.start)
        else:
            kdc.resume()


# --- rights ---------------------------------------------------------------------------------------


def refused_options(cluster: RealCluster, version: str) -> Options:
    """Return the options of a user without rights, by the mechanism of the line."""
    if version == "0.9.0.1":
        assert cluster.sasl.kdc is not None
        keytab = str(cluster.sasl.kdc.keytab("guest"))
        return options_of(
            cluster, "GSSAPI", sasl_kerberos_keytab=keytab, sasl_kerberos_principal="guest"
        )
    return options_of(
        cluster, "PLAIN", sasl_plain_username="mallory", sasl_plain_password="mallory-secret"
    )


async def read_committed(options: Options, topic: str, group: str) -> None:
    """Ask for a committed offset."""
    async with AIOKafkaConsumer(group_id=group, **options) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.committed(partition)


@pytest.mark.parametrize("version", LINES)
async def test_user_without_rights(
    version: str, sasl_cluster: StartCluster, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    topic, group = unique_topic(), unique_topic("g")
    await asyncio.to_thread(cluster.create_topic, topic)
    options = refused_options(cluster, version)
    principal = "(principal 'guest@" if version == OLDEST else "(principal 'mallory')"
    async with AIOKafkaProducer(**options, delivery_timeout_ms=2000) as producer:
        with pytest.raises(KafkaError, match=topic) as refused:
            await producer.send_and_wait(topic, b"tea")
        if version == "0.10.2.2":  # there the topic looks like one that doesn't exist
            assert isinstance(refused.value, UnknownTopicOrPartitionError)
            assert "or this principal may not describe it" in str(refused.value)
        else:
            assert isinstance(refused.value, TopicAuthorizationFailedError)
            assert principal in str(refused.value)
    async with AIOKafkaAdminClient(**options) as admin:
        assert topic not in await admin.list_topics()
        if version == "3.9.1":  # it leaves out the groups that the user may not describe
            assert group not in {one[0] for one in await admin.list_consumer_groups()}
        else:
            cause = f"authorized.*{re.escape(principal)}"
            with raises_in_time(ClusterAuthorizationFailedError, cause):
                await admin.list_consumer_groups()
    with raises_in_time(GroupAuthorizationFailedError, f"{group}.*{re.escape(principal)}"):
        await read_committed(options, topic, group)
