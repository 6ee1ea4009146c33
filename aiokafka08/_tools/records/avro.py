"""`-s avro`: keys and values in Confluent's wire format as JSON, with schemas of a registry.

The JSON is that of the Avro specification, as kcat writes it: a value of a union is
`{"type": value}`, bytes are text.

Invariants: a schema is requested once. The packages of the extra `avro` are imported only here.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final

from aiokafka08._tools.records.types import TextDecoder
from aiokafka08.errors import KafkaConfigurationError, KafkaConnectionError

_HEADER: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 10.0


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
    try:
        import fastavro
        import httpx
        from schema_registry.client import SchemaRegistryClient
    except ModuleNotFoundError as error:
        raise KafkaConfigurationError(
            f"-s avro needs {error.name}, which isn't installed. Install it with: "
            "pip install 'aiokafka08[avro]'"
        ) from None
    try:
        client = SchemaRegistryClient(
            url={"url": url.rstrip("/")}, timeout=httpx.Timeout(_TIMEOUT_S)
        )
    except (AssertionError, ValueError) as error:
        raise KafkaConfigurationError(
            f"schema registry {url!r}: {error}; expected a URL such as http://registry:8081"
        ) from None
    schemas: dict[int, Any] = {}

    def schema_of(schema_id: int) -> Any:
        if schema_id not in schemas:
            try:
                schema = client.get_by_id(schema_id)
            except Exception as error:
                raise KafkaConnectionError(
                    f"schema registry {url!r}: no answer for schema {schema_id}: {error}"
                ) from error
            if schema is None:
                raise ValueError(f"the schema registry has no schema {schema_id}")
            schemas[schema_id] = fastavro.parse_schema(schema.raw_schema)
        return schemas[schema_id]

    def to_json(data: bytes) -> str:
        if len(data) < _HEADER.size or data[0] != 0:
            raise ValueError(
                f"not Avro with a schema id: {len(data)} bytes; expected a zero byte, four bytes "
                "of the id, and data"
            )
        schema = schema_of(_HEADER.unpack_from(data)[1])
        text = io.StringIO()
        try:
            value = fastavro.schemaless_reader(
                io.BytesIO(data[_HEADER.size :]), schema, None, return_record_name=True
            )
            fastavro.json_writer(text, schema, [value])
        except (EOFError, ValueError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"the bytes don't fit their schema: {error!r}") from error
        return text.getvalue().strip()

    return to_json
