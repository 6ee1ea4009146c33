"""A schema registry in a thread, and values in Confluent's wire format."""

from __future__ import annotations

import io
import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "what", "type": "string"},
        {"name": "count", "type": ["null", "int"], "default": None},
    ],
}


class Registry(ThreadingHTTPServer):
    """A schema registry whose schemas a test sets; number 7 is `SCHEMA`.

    Attributes:
        bodies: the responses, by the number of the schema; others are 404.
        status: the status of the responses.
        paths: what was requested.
        answers: requests wait while it isn't set.
        pause_s: the time between two bytes of a response.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: dict[int, bytes] = {}
        self.add(7, SCHEMA)
        self.status = 200
        self.paths: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        self.pause_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, number: int, schema: Any, **fields: Any) -> None:
        """Register a schema; `fields` are further ones of the response."""
        self.bodies[number] = json.dumps({"schema": json.dumps(schema), **fields}).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Registry)
        server.paths.append(self.path)
        server.answers.wait(30)
        number = self.path.removeprefix("/schemas/ids/")
        data = server.bodies.get(int(number))
        self.send_response(404 if data is None else server.status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        data = data or b'{"error_code": 40403, "message": "no"}'
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not server.pause_s:
            self.wfile.write(data)
            return
        with suppress(OSError):  # the client gives up
            for byte in data:
                time.sleep(server.pause_s)
                self.wfile.write(bytes([byte]))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """Run a registry."""
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.answers.set()
            server.shutdown()
            thread.join()


def avro_message(number: int, value: Any, schema: Any = SCHEMA) -> bytes:
    """Return a value with the number of its schema."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + data.getvalue()
