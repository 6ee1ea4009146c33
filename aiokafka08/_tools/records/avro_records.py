"""`decoded`: return a record with JSON in place of Avro, where possible.

The console calls it before it applies masks and filters, so that these see the JSON that is shown.

Invariant: a record that can't be decoded keeps its bytes and gets a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from aiokafka08._tools.records.avro import AvroReader
from aiokafka08._tools.records.headers import opened
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.errors import KafkaConnectionError
from aiokafka08.structs import ConsumerRecord

AVRO_FORMS: Final = {"avro": ("key", "value"), "value=avro": ("value",), "key=avro": ("key",)}
"""The values of the option `-s` of `aiokafka08 consume`, and the parts that each decodes."""

_MAX_CHARS: Final = 1_000_000
_MAX_BYTES: Final = 1_000_000


@dataclass(slots=True)
class DecodedRecord(ConsumerRecord[bytes, bytes]):
    """A message with JSON in place of Avro; embedded headers aren't in the value any more.

    Attributes:
        schemas: the schema id of each decoded part, by "key" or "value".
        notes: why something wasn't decoded.
    """

    schemas: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def forget_hidden(self, hidden: bytes) -> None:
        """Forget the schema of each part that a mask has replaced by `hidden`, which isn't JSON."""
        kept = {"key": self.key, "value": self.value}
        self.schemas = {part: one for part, one in self.schemas.items() if kept[part] != hidden}


async def decoded(
    reader: AvroReader, parts: Sequence[str], record: BytesRecord, *, is_masked: bool
) -> DecodedRecord:
    """Return a message with its Avro as JSON.

    Args:
        reader: decodes the bytes.
        parts: what to decode: "key", "value", or both.
        record: the message.
        is_masked: True if parts of it will be hidden. Embedded headers are left out then, and notes
            quote no bytes.
    """
    result = DecodedRecord(*(getattr(record, one.name) for one in fields(ConsumerRecord)))
    if "value" in parts and record.value is not None:
        value, headers = opened(record.value)
        if await _decode(reader, "value", value or b"", result, is_masked) and not is_masked:
            result.headers = [*result.headers, *((name, data or b"") for name, data in headers)]
    if "key" in parts and record.key is not None:
        await _decode(reader, "key", record.key, result, is_masked)
    return result


async def _decode(
    reader: AvroReader, part: str, data: bytes, result: DecodedRecord, is_masked: bool
) -> bool:
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES // 10**6} MB")
        text, result.schemas[part] = await reader.to_json(data, _MAX_CHARS)
    except KafkaConnectionError as error:
        why = "the schema registry doesn't answer" if is_masked else error.text
    except ValueError as error:
        why = "it isn't, or its schema isn't known" if is_masked else str(error)
    else:
        setattr(result, part, text.encode())
        return True
    result.notes.append(f"The {part} isn't shown as Avro: {why}")
    return False
