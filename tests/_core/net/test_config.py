"""`net_config()`: parsing, and errors that name the option, the value and what is expected."""

from __future__ import annotations

import math
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core.net.config import (
    NETWORK_DEFAULTS,
    at_least,
    callable_or_none,
    check_not_negative,
    check_one_of,
    check_positive,
    net_config,
    parse_bootstrap_servers,
)
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import (
    AUTHORIZATION_ERRORS,
    BrokerResponseError,
    IllegalArgumentError,
    KafkaConfigurationError,
    UnknownError,
    broker_error,
)
from aiokafka08.helpers import create_ssl_context
from aiokafka08.producer import AIOKafkaProducer
from tests.support.numbers import ForeignArray, ForeignInteger

TLS = Path(__file__).with_name("tls")
OPTIONS: dict[str, Any] = {
    **NETWORK_DEFAULTS,
    "bootstrap_servers": "localhost",
    "client_id": None,
}


def test_times_are_kept_in_seconds() -> None:
    config = net_config(**OPTIONS)
    assert (config.request_timeout_s, config.retry_backoff_s) == (40.0, 0.1)
    assert (config.metadata_max_age_s, config.connections_max_idle_s) == (300.0, 540.0)


@pytest.mark.parametrize(("start_timeout_ms", "seconds"), [(None, 40.0), (250, 0.25)])
def test_start_has_the_request_timeout_or_its_own(
    start_timeout_ms: int | None, seconds: float
) -> None:
    assert net_config(**OPTIONS | {"start_timeout_ms": start_timeout_ms}).start_timeout_s == seconds


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("kafka1", [("kafka1", 9092)]),
        ("kafka1:9093", [("kafka1", 9093)]),
        ("kafka1:9093,kafka2", [("kafka1", 9093), ("kafka2", 9092)]),
        (" kafka1:9093 , kafka2:9094 ", [("kafka1", 9093), ("kafka2", 9094)]),
        ("kafka1,,  ,kafka2,", [("kafka1", 9092), ("kafka2", 9092)]),
        (["kafka1:9093", "kafka2"], [("kafka1", 9093), ("kafka2", 9092)]),
        ([("kafka1", 9093), "kafka2:9094"], [("kafka1", 9093), ("kafka2", 9094)]),
        ((["kafka1", 9093],), [("kafka1", 9093)]),
        ({"kafka1:1"}, [("kafka1", 1)]),
        (["kafka1:9093,kafka2"], [("kafka1", 9093), ("kafka2", 9092)]),  # a property in a list
        ([("kafka1", ForeignInteger(9093))], [("kafka1", 9093)]),
        ([("kafka1", "9093")], [("kafka1", 9093)]),
        ("127.0.0.1:65535", [("127.0.0.1", 65535)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 9092)]),
        ([("::1", 9093)], [("::1", 9093)]),
        ("[2001:db8::7]:1,kafka1:2", [("2001:db8::7", 1), ("kafka1", 2)]),
        ("kafka1,kafka1:9092,kafka1", [("kafka1", 9092)]),
        ("kafka_1.my-net.example", [("kafka_1.my-net.example", 9092)]),
        ("bücher.example:1", [("bücher.example", 1)]),
    ],
)
def test_bootstrap_servers_are_parsed(servers: Any, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(servers) == tuple(addresses)


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ("", "bootstrap_servers='': expected at least one address"),
        (" , ", "expected at least one address"),
        ([], "expected at least one address"),
        ([""], "expected at least one address"),
        (None, "None"),
        (9092, "9092"),
        ("a b:1", "' ' in the host name; expected 'host:port'. Separate addresses by commas"),
        ("kafka1:9092 kafka2:9092", "more than one colon, but isn't an IPv6 address; expected"),
        ("kafka1 kafka2", "' ' in the host name"),
        ("kafka1;kafka2:9092", "';' in the host name"),
        ("kafka1:9092;kafka2", "port '9092;kafka2'"),
        ("kafka1\tkafka2:1", "in the host name"),
        ("kafka1\u00a0:1", "in the host name"),
        ("kafka1/chroot:9092", "'/' in the host name"),
        ("user@kafka1:9092", "'@' in the host name"),
        ([("a b", 1)], "' ' in the host name"),
        ("kafka1:9092:9093", "more than one colon, but isn't an IPv6 address"),
        (":::1", "isn't an IPv6 address"),
        ("[kafka1]:9092", r"expected '\[host\]:port'"),
        ("[::g]:9092", "isn't an IPv6 address"),
        ("kafka1:", "port ''"),
        ("[::1]:", "port ''"),
        ("kafka1:+9092", r"port '\+9092'"),
        ("kafka1:9_092", "port '9_092'"),
        ("kafka1:\u0669\u0660", "port"),
        ("kafka1:" + "9" * 5000, "port '9999"),
        ("kafka1:0", "port '0'"),
        ("kafka1:65536", "port '65536'"),
        ("kafka1:-1", "port '-1'"),
        ("kafka1:http", "port 'http'"),
        ("kafka1: 90 92", "port"),
        (":9092", "no host"),
        ("[]:9092", "no host"),
        ("[::1", r"'\[::1' can't be parsed; expected '\[host\]:port'"),
        ("[::1]9092", r"expected '\[host\]:port'"),
        ([("kafka1", 0)], "port 0"),
        ([("kafka1", None)], "port None"),
        ([("kafka1", 9092.5)], "port 9092.5"),
        ([("kafka1", True)], "port True"),
        ([("", 9092)], "no host"),
        ([("kafka1",)], "host"),
        ([("kafka1", 9092, 1)], "host"),
        ([(1, 9092)], "host"),
        (("kafka1", 9092), "9092"),
        ([b"kafka1:9092"], "kafka1"),
        (b"kafka1:9092", "b'kafka1:9092': expected a string 'host:port,host:port' or a list"),
        (bytearray(b"kafka1"), "expected a string"),
        ([None], "None"),
        ("PLAINTEXT://kafka1:9092", "PLAINTEXT://kafka1:9092"),
        ("a..b:9092", r"a\.\.b"),
        ("x" * 64 + ":9092", "x" * 64),
    ],
)
def test_wrong_bootstrap_servers_are_named_in_the_error(servers: Any, says: str) -> None:
    with pytest.raises(IllegalArgumentError, match=says):
        parse_bootstrap_servers(servers)


def test_options_in_milliseconds_become_seconds() -> None:
    config = net_config(**OPTIONS)
    assert config.bootstrap == (("localhost", 9092),)
    assert config.request_timeout_s == 40.0
    assert config.retry_backoff_s == 0.1
    assert config.retry_backoff_max_s == 1.0
    assert config.metadata_max_age_s == 300.0
    assert config.connections_max_idle_s == 540.0
    assert config.pinned_version is None
    assert config.ssl_context is None


def test_the_longest_backoff_is_at_least_the_first() -> None:
    config = net_config(**OPTIONS | {"retry_backoff_ms": 3000})
    assert config.retry_backoff_max_s == config.retry_backoff_s == 3.0


def test_idle_connections_may_be_kept_for_ever() -> None:
    config = net_config(**OPTIONS | {"connections_max_idle_ms": None})  # as in aiokafka
    assert config.connections_max_idle_s == math.inf


def test_an_empty_client_id_is_never_sent() -> None:  # it crashed 0.9.0.0, KAFKA-3088
    assert net_config(**OPTIONS | {"client_id": ""}).client_id == "aiokafka08"
    assert net_config(**OPTIONS | {"client_id": "billing"}).client_id == "billing"


def test_api_version_pins_a_line() -> None:
    config = net_config(**OPTIONS | {"api_version": "0.8.2"})
    assert config.pinned_version == BrokerVersion.of(BrokerLine.V0_8_2)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("request_timeout_ms", 0),
        ("request_timeout_ms", -1),
        ("request_timeout_ms", "40000"),
        ("request_timeout_ms", None),
        ("request_timeout_ms", True),
        ("request_timeout_ms", ForeignInteger(0)),
        ("request_timeout_ms", ForeignArray()),
        ("request_timeout_ms", 0.5),
        ("request_timeout_ms", 1.5),
        ("request_timeout_ms", math.nan),
        ("request_timeout_ms", math.inf),
        ("retry_backoff_ms", -1),
        ("retry_backoff_ms", "100"),
        ("metadata_max_age_ms", 0),
        ("connections_max_idle_ms", 0),
        ("connections_max_idle_ms", math.nan),
        ("client_id", 7),
        ("client_id", b"billing"),
        ("client_id", "x" * 32768),
        ("client_id", "\ud800"),
        ("api_version", "0.7"),
        ("api_version", 8),
        ("security_protocol", "ssl"),
        ("security_protocol", None),
        ("bootstrap_servers", "kafka1:0"),
    ],
)
def test_a_wrong_value_is_refused_with_the_option(option: str, value: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=option) as caught:
        net_config(**OPTIONS | {option: value})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("number", [ForeignInteger(3000), 3000.0])
def test_integers_of_other_types_are_accepted(number: Any) -> None:
    config = net_config(**OPTIONS | {"request_timeout_ms": number})
    assert config.request_timeout_s == 3.0


class _AsyncHook:
    async def __call__(self, event: object) -> None:
        """Do nothing."""


async def _async_hook(event: object, more: int = 0) -> None:
    """Do nothing."""


@pytest.mark.parametrize("hook", [_async_hook, partial(_async_hook, more=1), _AsyncHook()])
def test_async_function_is_refused_where_nothing_awaits_it(hook: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"on_event=.*: expected a function that"):
        callable_or_none("on_event", hook)


@pytest.mark.parametrize("hook", [None, print, partial(print, "x"), list, [].append])
def test_plain_callables_are_accepted(hook: Any) -> None:
    callable_or_none("on_event", hook)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "sasl_plain_username: None; expected"),
        ({"sasl_plain_username": "me"}, "sasl_plain_password: None; expected"),
        ({"sasl_plain_username": "me", "sasl_plain_password": ""}, "password: empty; expected"),
        ({"sasl_mechanism": "DIGEST-MD5"}, "'DIGEST-MD5': expected one of GSSAPI, PLAIN"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider: NoneType; expected"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "hunter2"}, "str; e"),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "PLAINTEXTSASL"])
def test_wrong_sasl_option_is_named(options: dict[str, Any], text: str, protocol: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text) as caught:
        net_config(**OPTIONS | {"security_protocol": protocol} | options)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("mechanism", "package"),
    [("SCRAM-SHA-256", "scramp"), ("SCRAM-SHA-512", "scramp"), ("GSSAPI", "gssapi")],
)
def test_missing_extra_says_how_to_install_it(
    mechanism: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    sasl = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "me",
        "sasl_plain_password": "hunter2",
    }
    with pytest.raises(KafkaConfigurationError, match=rf"{package}\. Install it: pip install"):
        net_config(**OPTIONS | sasl)


def test_sasl_over_tls_needs_a_context() -> None:
    sasl = {"sasl_plain_username": "me", "sasl_plain_password": "hunter2"}
    context = ssl.create_default_context()
    with pytest.raises(IllegalArgumentError, match="'SASL_SSL': expected an ssl_context too"):
        net_config(**OPTIONS | sasl | {"security_protocol": "SASL_SSL"})
    with pytest.raises(KafkaConfigurationError, match="Set security_protocol='SASL_SSL'"):
        net_config(
            **OPTIONS | sasl | {"security_protocol": "SASL_PLAINTEXT", "ssl_context": context}
        )
    config = net_config(
        **OPTIONS | sasl | {"security_protocol": "SASL_SSL", "ssl_context": context}
    )
    assert config.sasl is not None
    assert "hunter2" not in repr(config) + repr(vars(config.sasl).keys())


def test_tls_needs_a_context_and_a_context_needs_tls() -> None:
    context = ssl.create_default_context()
    with pytest.raises(IllegalArgumentError, match="expected an ssl_context too"):
        net_config(**OPTIONS | {"security_protocol": "SSL"})
    with pytest.raises(KafkaConfigurationError, match="Set security_protocol='SSL'"):
        net_config(**OPTIONS | {"ssl_context": context})
    with pytest.raises(IllegalArgumentError, match=r"ssl_context='ca.pem': .*create_ssl_context"):
        net_config(**OPTIONS | {"security_protocol": "SSL", "ssl_context": "ca.pem"})
    config = net_config(**OPTIONS | {"security_protocol": "SSL", "ssl_context": context})
    assert config.ssl_context is context


def test_checked_numbers_are_returned_as_integers() -> None:
    assert check_positive("batch_size", 1) == 1
    assert check_not_negative("linger_ms", 0) == 0
    assert at_least("partitions", 3.0, 3) == 3
    assert type(at_least("partitions", 3.0, 3)) is int
    with pytest.raises(IllegalArgumentError, match="partitions=2: expected an integer >= 3"):
        at_least("partitions", 2, 3)


def test_a_wrong_choice_lists_the_allowed_ones() -> None:
    check_one_of("acks", "all", ("all", 0, 1))
    with pytest.raises(IllegalArgumentError, match="acks='most': expected one of 'all', 0, 1"):
        check_one_of("acks", "most", ("all", 0, 1))


@pytest.mark.parametrize("client", [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient])
@pytest.mark.parametrize(
    "option", ["sasl_plain_username", "sasl_plain_password", "sasl_kerberos_service_name"]
)
def test_sasl_option_without_sasl_is_refused_without_its_value(client: type, option: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=option) as caught:
        client(**{option: "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("option", ["cafile", "capath", "certfile", "keyfile"])
def test_missing_certificate_file_is_named(option: str, tmp_path: Path) -> None:
    pem, missing = tmp_path / "client.pem", tmp_path / "missing.pem"
    pem.touch()
    files: dict[str, Any] = {"certfile": pem, option: missing}
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        create_ssl_context(**files)


@pytest.mark.parametrize("option", ["cafile", "certfile"])
def test_file_without_a_certificate_is_named(option: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    files: dict[str, Any] = {option: str(empty)}
    with pytest.raises(ssl.SSLError, match=rf"{option}='.*empty\.pem'") as caught:
        create_ssl_context(**files)
    assert caught.value.library in ("X509", "SSL")


def test_wrong_password_of_a_key_is_named() -> None:
    cert, key = TLS / "cert.pem", TLS / "encrypted_key.pem"
    create_ssl_context(certfile=cert, keyfile=key, password="right")
    wrong = r"encrypted_key\.pem'\): the private key is encrypted, and the password is wrong"
    with pytest.raises(ssl.SSLError, match=wrong):
        create_ssl_context(certfile=cert, keyfile=key, password=lambda: "wrong")
    with pytest.raises(ssl.SSLError, match="is encrypted: expected its password"):
        create_ssl_context(certfile=cert, keyfile=key, password="")


def test_encrypted_key_without_a_password_prompts_for_none() -> None:
    """OpenSSL would read it from the terminal, or from stdin without one."""
    code = (
        "import sys; from aiokafka08.helpers import create_ssl_context; "
        "create_ssl_context(certfile=sys.argv[1], keyfile=sys.argv[2])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, TLS / "cert.pem", TLS / "encrypted_key.pem"],
        input="right\n",
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.returncode == 1
    assert "is encrypted: expected its password" in done.stderr


def test_key_file_without_a_key_is_named() -> None:
    with pytest.raises(ssl.SSLError, match="the file has no private key"):
        create_ssl_context(certfile=TLS / "cert.pem")


def test_empty_names_of_authorities_are_none() -> None:
    """As with `ssl.create_default_context`: `os.environ.get("CA", "")` is usual."""
    create_ssl_context(cafile="", capath="")


def test_bad_certificate_data_is_named() -> None:
    with pytest.raises(ssl.SSLError, match="cadata: "):
        create_ssl_context(cadata="no PEM")


# --- the principal --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", AUTHORIZATION_ERRORS)
def test_error_about_a_missing_right_names_the_principal_once(
    kind: type[BrokerResponseError],
) -> None:
    user = {"sasl_plain_username": "alice", "sasl_plain_password": "s3cret"}
    config = net_config(**{**OPTIONS, "security_protocol": "SASL_PLAINTEXT", **user})
    error = broker_error(kind.errno, "here")
    assert config.named(config.named(error)) is error
    assert error.text.startswith(f"here: {kind.description}")
    assert error.text.endswith(" (principal 'alice')")
    assert error.text.count("alice") == 1
    assert "s3cret" not in repr(error)


def test_error_without_a_principal_or_about_something_else_stays() -> None:
    refused = broker_error(AUTHORIZATION_ERRORS[0].errno)
    assert "(principal" not in net_config(**OPTIONS).named(refused).text
    user = {"sasl_plain_username": "alice", "sasl_plain_password": "s3cret"}
    config = net_config(**{**OPTIONS, "security_protocol": "SASL_PLAINTEXT", **user})
    assert "alice" not in config.named(UnknownError("here")).text
