"""`MetricsEndpoint`: pages, compression, clients that misbehave, and its end."""

from __future__ import annotations

import gzip
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest

from aiokafka08._core.metrics.endpoint import MetricsEndpoint, Page

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[MetricsEndpoint]:
    made = MetricsEndpoint(
        "127.0.0.1",
        0,
        lambda: Page(TEXT, b"a 1\n", gzip.compress(b"a 1\n")),
        lambda: Page(TEXT, b"stuck\n", status=HTTPStatus.SERVICE_UNAVAILABLE),
        client_id="test",
    )
    yield made
    made.close()


def get(endpoint: MetricsEndpoint, path: str, **headers: str) -> tuple[int, bytes, str | None]:
    url = endpoint.url.removesuffix("/metrics") + path
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read(), response.headers["Content-Encoding"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers["Content-Encoding"]


def test_metrics_are_plain_or_compressed(endpoint: MetricsEndpoint) -> None:
    assert get(endpoint, "/metrics") == (200, b"a 1\n", None)
    status, body, encoding = get(endpoint, "/metrics?x=1", **{"Accept-Encoding": "br, gzip"})
    assert (status, gzip.decompress(body), encoding) == (200, b"a 1\n", "gzip")


def test_other_pages(endpoint: MetricsEndpoint) -> None:
    assert get(endpoint, "/healthz") == (503, b"stuck\n", None)
    assert b'href="/metrics"' in get(endpoint, "/")[1]
    assert get(endpoint, "/nothing") == (404, b"not found\n", None)


def test_head_has_no_body(endpoint: MetricsEndpoint) -> None:
    request = urllib.request.Request(endpoint.url, method="HEAD")
    with urllib.request.urlopen(request, timeout=10) as response:
        assert (response.headers["Content-Length"], response.read()) == ("4", b"")


def test_broken_clients_leave_others_alone(
    endpoint: MetricsEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that never sends its request, one that sends nonsense, and one that goes at once."""
    address = urlsplit(endpoint.url)
    where = (address.hostname, address.port)
    with socket.create_connection(where), socket.create_connection(where) as nonsense:
        nonsense.sendall(b"\x00\x01\r\n\r\n")
        with socket.create_connection(where) as gone:
            gone.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert get(endpoint, "/metrics")[0] == 200
    assert capfd.readouterr().err == ""


def test_close_ends_listening_while_a_client_waits() -> None:
    made = MetricsEndpoint(
        "127.0.0.1", 0, lambda: Page(TEXT, b""), lambda: Page(TEXT, b""), client_id="test"
    )
    address = urlsplit(made.url)
    with socket.create_connection((address.hostname, address.port)):
        made.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port)).close()


def test_port_in_use_is_an_error(endpoint: MetricsEndpoint) -> None:
    port = urlsplit(endpoint.url).port or 0
    page = Page(TEXT, b"")
    with pytest.raises(OSError, match="in use"):
        MetricsEndpoint("127.0.0.1", port, lambda: page, lambda: page, client_id="test")


def test_url_names_a_host_that_can_be_opened() -> None:
    page = Page(TEXT, b"")
    for host, shown in (("", "localhost"), ("::1", "[::1]")):
        made = MetricsEndpoint(host, 0, lambda: page, lambda: page, client_id="test")
        assert made.url.startswith(f"http://{shown}:")
        made.close()
