"""Decode Avro in Confluent's wire format with a registry's schemas, for `-s avro` and the console.

`avro_json` turns the values into JSON. `avro_deserializer` is for programs that may wait for the
registry, `AvroReader` for an event loop.

Invariants: a schema isn't requested again while it is kept. Size and time of a response are
bounded. Errors of a request don't contain the registry's password, but may quote the response. The
packages of the extra `avro` are imported only here.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from aiokafka08._core.limited_log import one_line
from aiokafka08._tools.records.avro_json import AvroSchema, TooLongError
from aiokafka08._tools.records.types import TextDecoder
from aiokafka08._wording import shorten
from aiokafka08.errors import KafkaConfigurationError, KafkaConnectionError

_HEADER: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 10.0
_SCHEMA_BYTES: Final = 1024 * 1024
_SCHEMA_DEPTH: Final = 400

_WAIT_S: Final = 3.0
"""How long a reader waits for a schema."""
_RETRY_S: Final = 10.0
"""How long to wait before a schema that couldn't be fetched is requested again."""
_KEPT: Final = 200
_KEPT_BYTES: Final = 4 * 1024 * 1024
"""How many schemas a reader keeps, and their size as JSON in all."""
_AT_ONCE: Final = 2
_INLINE: Final = 16 * 1024
"""The largest size of a value, and of its JSON, that is decoded without a thread."""
_TURN_S: Final = 0.005
"""How long values are decoded before the event loop can run other tasks."""
_REQUESTS: Final = 100
"""The most schemas that a reader requests within `_RETRY_S`. Messages may name any number."""


def avro_deserializer(url: str) -> TextDecoder:
    """Return the function that turns bytes into JSON.

    The function raises ValueError for bytes that don't fit. It requests each new schema with a
    blocking call of up to `_TIMEOUT_S`, and raises KafkaConnectionError if the registry doesn't
    respond.

    Args:
        url: the schema registry.

    Raises:
        KafkaConfigurationError: the extra `avro` isn't installed, or the URL is wrong.
    """
    registry, schemas = SchemaRegistry(url), dict[int, AvroSchema]()

    def to_json(data: bytes) -> str:
        schema_id = schema_id_of(data)
        if schema_id not in schemas:
            schemas[schema_id], _ = registry.request(schema_id, _TIMEOUT_S)
        return schemas[schema_id].to_json(data[_HEADER.size :])

    return to_json


def schema_id_of(data: bytes) -> int:
    """Return the id of the schema that the first bytes name; ValueError if they name none."""
    if len(data) < _HEADER.size or data[0] != 0:
        raise ValueError(
            f"not Avro with a schema id: {len(data)} bytes; expected a zero byte, four bytes "
            "of the id, and data"
        )
    schema_id: int = _HEADER.unpack_from(data)[1]
    return schema_id


class SchemaRegistry:
    """A schema registry at a URL, which may have user and password.

    Raises:
        KafkaConfigurationError: the extra `avro` isn't installed, or the URL is wrong.
    """

    def __init__(self, url: str) -> None:
        try:
            import fastavro
            import httpx
        except ModuleNotFoundError as error:
            raise KafkaConfigurationError(
                f"Avro needs {error.name}, which isn't installed. Install it with: "
                "pip install 'aiokafka08[avro]'"
            ) from None
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            parsed = httpx.URL()
        if parsed.scheme not in ("http", "https") or not parsed.host:
            shown = url.rpartition("@")[2]  # without user and password
            raise KafkaConfigurationError(
                f"schema registry {shown!r}: expected a URL such as http://registry:8081"
            )
        self._url, self._httpx, self._fastavro = url.rstrip("/"), httpx, fastavro
        self._client = httpx.Client(
            headers={
                "Accept": "application/vnd.schemaregistry.v1+json, application/json",
                "Accept-Encoding": "identity",  # so that size is bounded
            },
            limits=httpx.Limits(max_keepalive_connections=0),  # so nothing has to be closed
            verify=parsed.scheme == "https",  # http needs no CA certificates; loading takes long
        )
        self._name = f"schema registry {str(parsed.copy_with(userinfo=b'')).rstrip('/')!r}"

    def request(self, schema_id: int, timeout_s: float) -> tuple[AvroSchema, int]:
        """Request a schema; return it and the size of its JSON. This blocks.

        Raises:
            ValueError: there is no such schema, or it isn't one that can be read.
            KafkaConnectionError: the registry doesn't respond in time.
        """
        deadline, content = time.monotonic() + timeout_s, b""
        url = f"{self._url}/schemas/ids/{schema_id}"
        try:
            with self._client.stream("GET", url, timeout=timeout_s) as response:
                if response.status_code == self._httpx.codes.NOT_FOUND:
                    raise ValueError(f"the schema registry has no schema {schema_id}")
                response.raise_for_status()
                for part in response.iter_raw():
                    content += part
                    if len(content) > _SCHEMA_BYTES:
                        raise ValueError(f"schema {schema_id} has more than 1 MiB")
                    if time.monotonic() > deadline:
                        raise self._httpx.ReadTimeout("timed out")
        except self._httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise ValueError(self.unanswered(schema_id, f"HTTP status {status}")) from None
        except (self._httpx.HTTPError, OSError) as error:
            # The text may quote the response.
            why = one_line(str(error)) or type(error).__name__
            raise KafkaConnectionError(self.unanswered(schema_id, why)) from error
        return self._parsed(schema_id, content), len(content)

    def unanswered(self, schema_id: int, why: str) -> str:
        """Return the text of the error for a request that failed."""
        return f"{self._name}: no answer for schema {schema_id}: {why}"

    def _parsed(self, schema_id: int, content: bytes) -> AvroSchema:
        try:
            answer = json.loads(content)
            text, kind = str(answer["schema"]), answer.get("schemaType", "AVRO")
        except (ValueError, TypeError, LookupError, RecursionError):
            raise ValueError(self.unanswered(schema_id, "the response has none")) from None
        if kind != "AVRO" or answer.get("references"):
            raise ValueError(f"schema {schema_id} isn't Avro, or refers to others")
        try:
            schema = json.loads(text)
            _check_depth(schema)  # the parser, in C, may overflow the stack
            return AvroSchema(self._fastavro.parse_schema(schema))
        # The parser raises errors of any kind for schemas that have a wrong form.
        except Exception as error:
            raise ValueError(f"schema {schema_id} isn't valid: {shorten(str(error))}") from None


class AvroReader:
    """Turns keys and values into JSON without blocking the event loop.

    Args:
        url: the schema registry, as for `SchemaRegistry`.
    """

    def __init__(self, url: str) -> None:
        self._registry = SchemaRegistry(url)
        self._answers: dict[int, asyncio.Task[_Answer]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._requested: deque[float] = deque(maxlen=_REQUESTS)
        self._failed: _Answer | None = None
        self._busy_s = 0.0

    async def to_json(self, data: bytes, max_chars: int) -> tuple[str, int]:
        """Return the JSON of a key or value, and the id of its schema.

        Raises:
            ValueError: the bytes don't fit, or the registry hasn't their schema.
            KafkaConnectionError: the registry doesn't respond, or had `_REQUESTS` requests lately.
        """
        schema_id = schema_id_of(data)
        schema, body = await self._schema(schema_id), data[_HEADER.size :]
        began = time.monotonic()
        try:
            if len(body) <= _INLINE:
                return schema.to_json(body, min(_INLINE, max_chars)), schema_id
        except TooLongError:
            pass  # it may still fit into `max_chars`
        finally:
            self._busy_s += time.monotonic() - began
            if self._busy_s > _TURN_S:
                self._busy_s = 0.0
                await asyncio.sleep(0)
        return await asyncio.to_thread(schema.to_json, body, max_chars), schema_id

    async def _schema(self, schema_id: int) -> AvroSchema:
        now, task = time.monotonic(), self._answers.pop(schema_id, None)
        if task is None or task.cancelled() or (task.done() and task.result().until <= now):
            self._check_requests(schema_id, now)
            self._requested.append(now)
            task = asyncio.create_task(self._request(schema_id))
        self._answers[schema_id] = task  # moved to the end: the first ones are unused the longest
        answer = await asyncio.shield(task)
        if answer.schema is None:
            raise (answer.error or ValueError()).with_traceback(None)
        return answer.schema

    def _check_requests(self, schema_id: int, now: float) -> None:
        """Raise KafkaConnectionError after a recent failure or too many recent requests."""
        if self._failed is not None and now < self._failed.until:
            raise (self._failed.error or ValueError()).with_traceback(None)
        if len(self._requested) == _REQUESTS and now < self._requested[0] + _RETRY_S:
            raise KafkaConnectionError(
                f"schema {schema_id} isn't requested: {_REQUESTS} others were within {_RETRY_S:g} s"
            )

    async def _request(self, schema_id: int) -> _Answer:
        answer = _Answer()
        try:
            async with asyncio.timeout(_WAIT_S), self._turns:
                answer.schema, answer.size = await asyncio.to_thread(
                    self._registry.request, schema_id, _WAIT_S
                )
                return answer
        except ValueError as error:
            answer.error = error
        except TimeoutError:
            self._failed = answer
            text = self._registry.unanswered(schema_id, f"none within {_WAIT_S:g} s")
            answer.error = KafkaConnectionError(text)
        except KafkaConnectionError as error:
            self._failed = answer
            answer.error = error
        finally:
            self._drop_answers()
        answer.until = time.monotonic() + _RETRY_S
        return answer

    def _drop_answers(self) -> None:
        kept = [
            (schema_id, task.result().size)
            for schema_id, task in self._answers.items()
            if task.done() and not task.cancelled()
        ]
        size = sum(size for _, size in kept)
        for at, (schema_id, one) in enumerate(kept):
            if len(kept) - at <= _KEPT and size <= _KEPT_BYTES:
                return
            del self._answers[schema_id]
            size -= one


@dataclass(slots=True)
class _Answer:
    """A schema, or the error of the request for it; used until the time `until`."""

    schema: AvroSchema | None = None
    size: int = 0
    error: ValueError | KafkaConnectionError | None = None
    until: float = math.inf


def _check_depth(schema: Any) -> None:
    level = [schema] if isinstance(schema, dict | list) else []
    for _ in range(_SCHEMA_DEPTH):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [child for one in inner for child in one if isinstance(child, dict | list)]
        if not level:
            return
    raise ValueError(f"nested more than {_SCHEMA_DEPTH} deep")
