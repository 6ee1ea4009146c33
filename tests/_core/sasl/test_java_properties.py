"""SASL properties of Java's clients and of librdkafka, `sasl.jaas.config` among them."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08._core.sasl.java_properties import sasl_options
from aiokafka08.errors import IllegalArgumentError

pytestmark = pytest.mark.fast

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def options(jaas: str | None = None, **properties: str) -> dict[str, Any]:
    given = {name.replace("_", "."): text for name, text in properties.items()}
    given.setdefault("security.protocol", "SASL_PLAINTEXT")
    if jaas is not None:
        given["sasl.jaas.config"] = jaas
    return sasl_options(given)


@pytest.mark.parametrize(
    ("jaas", "expected"),
    [
        (
            f'{KRB5} required useKeyTab=true storeKey=true keyTab="/etc/me.keytab"\n'
            'principal="me@EXAMPLE" serviceName="kafka2";',
            {
                "sasl_mechanism": "GSSAPI",
                "sasl_kerberos_keytab": "/etc/me.keytab",
                "sasl_kerberos_principal": "me@EXAMPLE",
                "sasl_kerberos_service_name": "kafka2",
            },
        ),
        (
            f'{KRB5} required useTicketCache=true keyTab="/unused";',
            {"sasl_mechanism": "GSSAPI"},
        ),
        (
            f'{PLAIN} required username="me" password="a\\"b;c \\\\d";',
            {
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "me",
                "sasl_plain_password": 'a"b;c \\d',
            },
        ),
        (
            f"  {SCRAM}  REQUIRED username=me password=hunter2 ; ",
            {
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_plain_username": "me",
                "sasl_plain_password": "hunter2",
            },
        ),
    ],
)
def test_jaas_config_is_read_as_java_reads_it(jaas: str, expected: dict[str, str]) -> None:
    assert options(jaas) == expected


def test_mechanism_and_properties_of_librdkafka_win_over_jaas() -> None:
    found = options(
        f'{SCRAM} required username="me" password="old";',
        sasl_mechanism="scram-sha-512",
        sasl_password="new",
    )
    assert found["sasl_mechanism"] == "SCRAM-SHA-512"
    assert found["sasl_plain_password"] == "new"


def test_mechanism_is_gssapi_by_default() -> None:
    assert options(sasl_kerberos_service_name="k") == {
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "k",
    }


def test_without_sasl_there_are_no_options() -> None:
    assert options("nonsense", security_protocol="SSL") == {}


@pytest.mark.parametrize(
    "jaas",
    [
        "",
        "hunter2",
        f'{PLAIN} required username="me" password="hunter2"',
        f'{PLAIN} username="me" password="hunter2";',
        f'{PLAIN} required password="hunter2;',
        f'{PLAIN} required password="hunter2"; {PLAIN} required;',
        f'{SCRAM} required tokenauth=true username="me" password="hunter2";',
        'com.example.OwnLoginModule required password="hunter2";',
    ],
)
def test_unreadable_jaas_config_is_named_without_its_value(jaas: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"^IllegalArgumentError: sasl\.jaas") as caught:
        options(jaas)
    assert "hunter2" not in str(caught.value)


def test_password_is_not_in_repr() -> None:
    found = options(f'{PLAIN} required username="me" password="hunter2";')
    assert "hunter2" not in repr(found)


def test_oauthbearer_is_refused_by_name() -> None:
    expected = r"sasl\.mechanism='OAUTHBEARER': expected one of GSSAPI, PLAIN, SCRAM-SHA-256"
    with pytest.raises(IllegalArgumentError, match=expected):
        options(sasl_mechanism="OAUTHBEARER")
