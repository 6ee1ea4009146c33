"""SASL below 1.0, token by token: the embedded cluster beside 0.10.2.2 (docs/brokers.md 14)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import scramp

from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest, VersionRange
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.sasl import PASSWORDS
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.target import Target
from tests.conformance.contract.wire.wire_client import WireClient

RELEASE = "0.10.2.2"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)


@pytest.fixture(params=["embedded_0.10", pytest.param(RELEASE, marks=pytest.mark.real)])
def wire(request: pytest.FixtureRequest) -> Iterator[WireClient]:
    """A connection to a SASL listener with the users of `tests.brokers.sasl`."""
    if request.param == RELEASE:
        clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
        _, _, port = clusters.get(RELEASE, sasl=True).sasl_bootstrap_servers.rpartition(":")
        with WireClient(("127.0.0.1", int(port))) as connection:
            yield connection
        return
    with EmbeddedCluster(version="0.10", sasl=PASSWORDS) as cluster:
        node = cluster.nodes[0]
        with WireClient((node.host, node.port)) as connection:
            yield connection


def choose(wire: WireClient, mechanism: str) -> int:
    """Choose a mechanism; return the error code."""
    response = wire.request(SaslHandshakeRequest(mechanism))
    assert {*MECHANISMS} <= {*response.mechanisms}
    code: int = response.error_code
    return code


def send_token(wire: WireClient, token: bytes) -> None:
    """Send a token: a size and its bytes, without the header of a request."""
    wire.socket.sendall(len(token).to_bytes(4, "big") + token)


def plain(wire: WireClient, token: bytes) -> None:
    """Choose PLAIN and send its token."""
    assert choose(wire, "PLAIN") == 0
    send_token(wire, token)


def authenticate(wire: WireClient, mechanism: str, password: str = "alice-secret") -> None:
    """Take all steps of a mechanism, as the user alice."""
    if mechanism == "PLAIN":
        plain(wire, b"\0alice\0" + password.encode())
        assert wire.read_frame() == b""
        return
    assert choose(wire, mechanism) == 0
    client = scramp.ScramClient([mechanism], "alice", password)
    send_token(wire, client.get_client_first().encode())
    client.set_server_first(wire.read_frame().decode())
    send_token(wire, client.get_client_final().encode())
    client.set_server_final(wire.read_frame().decode())


def serves(wire: WireClient) -> bool:
    """Return whether the connection answers requests."""
    return len(wire.request(MetadataRequest([])).brokers) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_authenticated_connection_serves_requests(wire: WireClient, mechanism: str) -> None:
    authenticate(wire, mechanism)
    assert serves(wire)


def test_api_versions_may_come_before(wire: WireClient) -> None:
    versions = wire.request(ApiVersionsRequest())
    assert versions.error_code == 0
    assert VersionRange(17, 0, 0) in versions.api_versions
    authenticate(wire, "PLAIN")
    assert serves(wire)


def test_unsupported_mechanism_is_answered_then_closed(wire: WireClient) -> None:
    assert choose(wire, "OAUTHBEARER") == 33
    assert wire.is_closed()


def test_second_handshake_is_an_illegal_state(wire: WireClient) -> None:
    authenticate(wire, "PLAIN")
    assert choose(wire, "PLAIN") == 34
    assert serves(wire)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(b"\0alice\0wrong", id="wrong_password"),
        pytest.param(b"\0nobody\0alice-secret", id="unknown_user"),
        pytest.param(b"\0\0alice-secret", id="no_user"),
        pytest.param(b"\0alice\0", id="no_password"),
        pytest.param(b"alice", id="one_part"),
        pytest.param(b"\0alice\0alice-secret\0x", id="four_parts"),
        pytest.param(b"\0\xff\0\xfe", id="not_utf8"),
        pytest.param(b"mallory\0alice\0alice-secret", id="acts_as_another"),
    ],
)
def test_bad_plain_token_closes_silently(wire: WireClient, token: bytes) -> None:
    plain(wire, token)
    assert wire.is_closed()


def test_user_may_act_as_itself(wire: WireClient) -> None:
    plain(wire, b"alice\0alice\0alice-secret")
    assert wire.read_frame() == b""
    assert serves(wire)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_wrong_scram_password_closes_at_the_last_step(wire: WireClient, mechanism: str) -> None:
    with pytest.raises(EOFError, match="closed after 0 of 4 bytes"):
        authenticate(wire, mechanism, "wrong")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"n,,n=nobody,r=abcdefgh", id="unknown_user"),
        pytest.param(b"garbage", id="garbage"),
        pytest.param(b"n,,\xff\xfe", id="not_utf8"),
    ],
)
def test_bad_first_scram_message_closes_silently(wire: WireClient, first: bytes) -> None:
    assert choose(wire, "SCRAM-SHA-256") == 0
    send_token(wire, first)
    assert wire.is_closed()


def test_request_before_the_handshake_closes(wire: WireClient) -> None:
    wire.send(MetadataRequest([]))
    assert wire.is_closed()


def test_request_in_place_of_a_token_closes(wire: WireClient) -> None:
    assert choose(wire, "PLAIN") == 0
    wire.send(ApiVersionsRequest())
    assert wire.is_closed()


def test_handshake_of_a_later_version_closes(wire: WireClient) -> None:
    wire.send(SaslHandshakeRequest("PLAIN"), version=1)
    assert wire.is_closed()


def test_large_request_before_the_authentication_closes(wire: WireClient) -> None:
    wire.socket.sendall((600_000).to_bytes(4, "big") + bytes(600_000))
    assert wire.is_closed()


@on_lines(lambda line: ApiKey.SASL_HANDSHAKE in line.apis)
def test_listener_without_sasl_answers_a_handshake(target: Target) -> None:
    with WireClient(target.address(0)) as wire:
        response = wire.request(SaslHandshakeRequest("PLAIN"))
        assert response == SaslHandshakeResponse(34, ["GSSAPI"])
        assert serves(wire)
