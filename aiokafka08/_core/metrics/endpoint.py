"""`MetricsEndpoint`: serve `/metrics` and `/healthz` by HTTP.

Invariant: after `close()` nothing listens, and no thread that a client holds up prevents the end of
the process. Each client has its own thread, and its pages wait for no broker: a slow client delays
no refresh of the metrics, and a slow broker no scrape.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from aiokafka08._core.net.config import address_text

_log: Final = logging.getLogger("aiokafka08.monitoring")

# How long a client may take to send a request, or to read on
_CLIENT_TIMEOUT_S: Final = 10.0

_INDEX: Final = b"""<!doctype html><title>aiokafka08 exporter</title>
<h1>aiokafka08 exporter</h1><p><a href="/metrics">Metrics</a></p>
"""


class Page(NamedTuple):
    """The response for a path; `compressed` is the body in gzip, None to always send it plain."""

    content_type: str
    body: bytes
    compressed: bytes | None = None
    status: HTTPStatus = HTTPStatus.OK


NO_PAGES: Final[Mapping[str, Callable[[], Page]]] = {}


class MetricsEndpoint:
    """Listen at an address, and serve pages until `close()`.

    Args:
        host: the address to listen at; "" for all of IPv4, "::" for all addresses.
        port: the port; 0 for any free one.
        metrics: makes the page of `/metrics`; called in a thread.
        health: makes the page of `/healthz`; called in a thread.
        client_id: log lines begin with it.
        others: further pages, by path.

    Raises OSError if it can't listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], Page],
        health: Callable[[], Page],
        *,
        client_id: str,
        others: Mapping[str, Callable[[], Page]] = NO_PAGES,
    ) -> None:
        pages = {"/metrics": metrics, "/healthz": health, "/": _index, **others}

        class Handler(_Handler):
            """The handler of this endpoint's pages."""

        Handler.pages, Handler.client_id = pages, client_id
        self._server = (_Ipv6Server if ":" in host else _Server)((host, port), Handler)
        self._server.client_id = client_id
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="aiokafka08-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of `/metrics`, as seen from this machine."""
        host, port = self._server.server_address[:2]
        if host in ("0.0.0.0", "::"):
            host = "localhost"
        return f"http://{address_text((str(host), port))}/metrics"

    def close(self) -> None:
        """Stop listening; blocks for at most a tenth of a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_NOT_FOUND: Final = Page("text/plain; charset=utf-8", b"not found\n", status=HTTPStatus.NOT_FOUND)


def _index() -> Page:
    return Page("text/html; charset=utf-8", _INDEX)


class _Handler(BaseHTTPRequestHandler):
    """Serves `pages`, by path."""

    pages: Mapping[str, Callable[[], Page]]
    client_id: str
    protocol_version = "HTTP/1.1"
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        make = self.pages.get(self.path.partition("?")[0])
        page = _NOT_FOUND if make is None else make()
        body = page.body
        is_compressed = page.compressed is not None and "gzip" in self.headers.get(
            "Accept-Encoding", ""
        )
        if page.compressed is not None and is_compressed:
            body = page.compressed
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(body)))
        if is_compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Log a request at DEBUG, in place of printing it."""
        _log.debug("%s: %s: " + format, self.client_id, self.address_string(), *args)


class _Server(ThreadingHTTPServer):
    """Serves each client in a daemon thread, for which the process doesn't wait at its end."""

    client_id = ""
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        """Bind the socket, without the host-name look-up of `HTTPServer`."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Log why a client's connection failed; most often the client has gone."""
        _log.debug("%s: connection of %s failed", self.client_id, client_address, exc_info=True)


class _Ipv6Server(_Server):
    address_family = socket.AF_INET6
