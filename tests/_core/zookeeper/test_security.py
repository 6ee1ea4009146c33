"""`zookeeper_options` and its properties: what is accepted, and errors without secrets."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import Any

import pytest
from kazoo.protocol.serialization import Auth

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._core.zookeeper.security import (
    OPEN,
    PROPERTIES,
    options_of_properties,
    parse_security,
)
from aiokafka08._core.zookeeper.session import _shows_no_secret
from aiokafka08._tools.cli.settings import SETTABLE, Source, settings
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import parse_config
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError, KafkaConnectionError
from aiokafka08.testing import EmbeddedCluster
from tests.support.stream_server import StreamServer

pytestmark = pytest.mark.fast

SECRET = "hunter2"
DIGEST = {"auth_data": [("digest", f"alice:{SECRET}")]}
SASL = {"sasl_options": {"mechanism": "DIGEST-MD5", "username": "alice", "password": SECRET}}


def test_without_options_nothing_is_secured() -> None:
    assert parse_security(None, "zk") is OPEN
    assert OPEN.client_arguments() == {}
    assert OPEN.identity is None


def test_digest_is_passed_to_kazoo_and_named_without_its_password() -> None:
    security = parse_security(DIGEST, "zk")
    assert security.client_arguments() == {"auth_data": [("digest", f"alice:{SECRET}")]}
    assert security.identity == "digest user 'alice'"
    assert SECRET not in repr(security)


def test_acl_is_that_of_kafka() -> None:
    arguments = parse_security({**DIGEST, "set_acl": True}, "zk").client_arguments()
    shown = [(acl.id.scheme, acl.acl_list) for acl in arguments["default_acl"]]
    assert shown == [("auth", ["ALL"]), ("world", ["READ"])]


def test_host_name_is_checked_unless_certificates_arent() -> None:
    tls = {"use_ssl": True, "ca": "ca.pem"}
    assert parse_security(tls, "zk").client_arguments()["check_hostname"] is True
    off = parse_security({**tls, "verify_certs": False}, "zk").client_arguments()
    assert (off["verify_certs"], off["check_hostname"]) == (False, False)


def test_key_in_the_file_of_the_certificate_is_used() -> None:
    arguments = parse_security({"use_ssl": True, "certfile": "me.pem"}, "zk").client_arguments()
    assert arguments["keyfile"] == "me.pem"


def test_file_that_cannot_be_read_is_named() -> None:
    security = parse_security({"use_ssl": True, "ca": "/nowhere/ca.pem"}, "zk")
    with pytest.raises(KafkaConfigurationError, match=r"zookeeper_options.*/nowhere/ca\.pem"):
        security.ssl_context()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ("digest", IllegalArgumentError, "expected a dict"),
        ({"password": SECRET}, IllegalArgumentError, "'password'; expected one of auth_data"),
        ({"auth_data": f"alice:{SECRET}"}, IllegalArgumentError, "expected a list"),
        ({"auth_data": [("digest", SECRET)]}, IllegalArgumentError, "expected a list"),
        ({"auth_data": [("ip", SECRET)]}, IllegalArgumentError, "expected a list"),
        ({"auth_data": [("sasl", f"a:{SECRET}")]}, IllegalArgumentError, "use sasl_options"),
        ({"sasl_options": {"mechanism": "PLAIN"}}, IllegalArgumentError, "DIGEST-MD5"),
        ({"sasl_options": {**SASL["sasl_options"], "x": "y"}}, IllegalArgumentError, "expected {"),
        ({"sasl_options": {"mechanism": "GSSAPI"}}, KafkaConfigurationError, "Kerberos isn't"),
        ({"ca": "ca.pem"}, KafkaConfigurationError, "ca has no effect without use_ssl"),
        ({"use_ssl": "yes"}, IllegalArgumentError, "use_ssl: expected True or False"),
        ({"use_ssl": True, "ca": 7}, IllegalArgumentError, "ca: expected a non-empty text"),
        ({"set_acl": True}, KafkaConfigurationError, "needs an identity"),
    ],
)
def test_wrong_option_is_an_error_without_secrets(options: Any, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        parse_security(options, "zk")
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("client", [AIOKafkaAdminClient, AIOKafkaConsumer])
def test_options_without_an_address_are_an_error_of_the_client(client: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match="without zookeeper_connect"):
        client(zookeeper_options=DIGEST)


def test_sasl_without_its_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(KafkaConfigurationError, match="pip install pure-sasl"):
        parse_security(SASL, "zk").client_arguments()


# --- properties -----------------------------------------------------------------------------------


def of(**given: str) -> dict[str, Any] | None:
    """Return the options of properties; "__" stands for a dot."""
    return options_of_properties(
        {f"zookeeper.{name.replace('__', '.')}": value for name, value in given.items()}
    )


def test_properties_become_options() -> None:
    user = {"username": "alice", "password": SECRET}
    assert of() is None
    assert of(**user) == DIGEST
    assert of(**user, sasl__mechanism="digest-md5") == SASL
    found = of(
        **user,
        set__acl="true",
        ssl__client__enable="true",
        ssl__truststore__location="ca.pem",
        ssl__truststore__type="PEM",
    )
    assert found is not None
    assert (found["set_acl"], found["use_ssl"], found["ca"]) == (True, True, "ca.pem")
    parse_security(found, "zk")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"username": "alice"}, "zookeeper.password: missing; zookeeper.username needs it. Set it"),
        ({"password": SECRET}, "zookeeper.username: missing; zookeeper.password needs it. Set it"),
        (
            {"username": "alice", "password": ""},
            "zookeeper.password: empty; expected the password of 'alice'. Set it, or remove "
            "zookeeper.username",
        ),
        (
            {"username": "alice", "password": "", "sasl__mechanism": "DIGEST-MD5"},
            "zookeeper.password: empty",
        ),
        ({"sasl__mechanism": "DIGEST-MD5"}, "Kerberos isn't supported"),
        (
            {"username": "a", "password": SECRET, "sasl__mechanism": "GSSAPI"},
            "expected one of DIGEST-MD5",
        ),
        ({"ssl__ca__location": "ca.pem"}, "without zookeeper.ssl.client.enable=true"),
        (
            {"ssl__client__enable": "true", "ssl__truststore__location": "ca.jks"},
            "zookeeper.ssl.truststore.type",
        ),
    ],
)
def test_wrong_property_is_an_error_without_secrets(given: dict[str, str], text: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        of(**given)
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


def test_command_line_knows_the_properties_and_shows_no_password() -> None:
    assert set(PROPERTIES) <= set(SETTABLE)
    found = settings(
        [
            Source(
                "file",
                {
                    "bootstrap.servers": "k:1",
                    "zookeeper.connect": "zk:1",
                    "zookeeper.username": "alice",
                    "zookeeper.password": SECRET,
                },
            )
        ]
    )
    assert found.zookeeper_options == DIGEST
    assert SECRET not in repr(found)
    properties = {"bootstrap.servers": "k:1", "zookeeper.password": SECRET}
    alone = settings([Source("file", properties)])
    assert alone.zookeeper_options is None
    assert alone.notes == ("zookeeper.password=… has no effect: there is no zookeeper.connect",)


def test_bridge_has_them_as_properties_of_its_source() -> None:
    text = (
        'name = "b"\n[source]\nbootstrap = "k:1"\nzookeeper = "zk:1"\n'
        '[source.properties]\n"zookeeper.username" = "alice"\n'
        f'"zookeeper.password" = "{SECRET}"\n'
        '[target]\nbootstrap = "k:2"\n[topics]\ninclude = ["t"]\n'
    )
    config = parse_config(text)
    assert config.source.zookeeper_options == DIGEST
    assert SECRET not in repr(config)
    with pytest.raises(IllegalArgumentError, match=r"expected source\.zookeeper too"):
        parse_config(text.replace('zookeeper = "zk:1"\n', ""))


def test_requests_with_credentials_arent_logged() -> None:
    def record(*arguments: object) -> logging.LogRecord:
        return logging.LogRecord("kazoo", 5, "", 0, "Sending request(xid=%s): %s", arguments, None)

    assert not _shows_no_secret(record(-4, Auth(0, "digest", f"alice:{SECRET}")))
    assert _shows_no_secret(record(1, "GetData(path='/x')"))


async def test_reset_of_a_port_without_tls_is_its_answer() -> None:
    """A plain port takes the hello for the size of a request, and closes with bytes unread."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        StreamServer(serve) as plain,
        AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            request_timeout_ms=20_000,
            zookeeper_connect=plain.address,
            zookeeper_options={"use_ssl": True},
        ) as admin,
        asyncio.timeout(10),
    ):
        with pytest.raises(KafkaConnectionError, match=r"the TLS handshake failed: .*reset"):
            await admin.describe_cluster_nodes()
