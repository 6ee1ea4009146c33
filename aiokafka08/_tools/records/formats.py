"""Choose encoders and decoders by the options of `consume`, `produce` and `kcat`.

Invariant: a wrong combination of options is an error before anything is read. Pure, except for the
schema registry of `avro`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aiokafka08._tools.records.delimiters import unescape
from aiokafka08._tools.records.raw import (
    CODINGS,
    RawDecoder,
    RawInput,
    RawLayout,
    raw_encoder,
)
from aiokafka08._tools.records.types import RecordDecoder, RecordEncoder, TextDecoder
from aiokafka08._tools.records.unpack import unpacker
from aiokafka08.errors import IllegalArgumentError

NULL_TEXT: Final = b"NULL"

# Returns the leader of a partition, -1 if it isn't known.
BrokerOf = Callable[[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serdes:
    """How keys and values are turned into text; None: the bytes stay as they are."""

    key: TextDecoder | None = None
    value: TextDecoder | None = None
    key_is_json: bool = False
    value_is_json: bool = False


def parse_serdes(option: str, specs: Iterable[str], registry: str | None) -> Serdes:
    """Return the functions of `-s`.

    Args:
        option: the option, for errors.
        specs: its values, each a pack string or "avro". One with the prefix "key=" or "value="
            applies only to keys or to values.
        registry: the URL of the schema registry, for "avro"; None: there is none.

    Raises:
        IllegalArgumentError: a pack string is wrong, or "avro" has no registry.
        KafkaConfigurationError: "avro" needs packages that aren't installed.
    """
    chosen: dict[str, str] = {}
    for spec in specs:
        name, equals, text = spec.partition("=")
        if equals and name in ("key", "value"):
            chosen[name] = text
        else:
            chosen = {"key": spec, "value": spec}
    functions: dict[str, TextDecoder] = {}
    avro: TextDecoder | None = None
    for name, text in chosen.items():
        if text != "avro":
            functions[name] = unpacker(option, text)
            continue
        if not registry:
            raise IllegalArgumentError(
                f"{option}=avro: expected the URL of a schema registry too (-r URL)"
            )
        # Imported at its first use, since the packages of `avro` are an extra.
        if avro is None:
            from aiokafka08._tools.records.avro import avro_deserializer

            avro = avro_deserializer(registry)
        functions[name] = avro
    return Serdes(
        key=functions.get("key"),
        value=functions.get("value"),
        key_is_json=chosen.get("key") == "avro",
        value_is_json=chosen.get("value") == "avro",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The options for the output of records."""

    format: str = "raw"
    template: str | None = None
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    # Write "NULL" for null.
    null: bool = False
    # The directory of the format "files".
    directory: str | None = None
    serdes: Serdes = Serdes()
    # Records may have headers.
    headers: bool = False


def record_encoder(options: OutputOptions) -> RecordEncoder:
    """Return the encoder for the options of `consume`.

    Raises:
        IllegalArgumentError: they don't go together, or one is wrong.
    """
    serdes, null_text = options.serdes, NULL_TEXT if options.null else None
    if options.format == "files":
        if options.directory is None:
            raise IllegalArgumentError("--format=files: expected --directory too")
        from aiokafka08._tools.records.files import FilesEncoder

        return FilesEncoder(options.directory)
    if options.directory is not None:
        raise IllegalArgumentError(f"--directory={options.directory}: expected --format files too")
    if options.template is not None:
        from aiokafka08._tools.records.template import TemplateEncoder

        return TemplateEncoder(
            "--template",
            options.template,
            key=serdes.key,
            value=serdes.value,
            null_text=null_text or b"",
            headers=options.headers,
        )
    if options.format == "jsonl":
        from aiokafka08._tools.records.json_lines import JsonLinesEncoder, field_of

        return JsonLinesEncoder(
            field_of(serdes.key, is_json=serdes.key_is_json),
            field_of(serdes.value, is_json=serdes.value_is_json),
            headers=options.headers,
        )
    layout = RawLayout(
        delimiter=options.delimiter,
        key_delimiter=options.key_delimiter,
        coding=CODINGS[options.format],
        null_text=null_text,
    )
    return raw_encoder(layout, serdes.key, serdes.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """The options for the input of messages."""

    format: str = "raw"
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    # Empty keys and values are null.
    null: bool = False
    keep_partition: bool = False
    keep_timestamp: bool = False
    # Leave out messages without any byte.
    is_kcat: bool = False
    max_bytes: int = 1048576


def record_decoder(options: InputOptions) -> RecordDecoder:
    """Return the decoder for the options of `produce`; `format` isn't "files".

    Raises:
        IllegalArgumentError: they don't go together, or one is wrong.
    """
    if options.format == "jsonl":
        from aiokafka08._tools.records.json_lines import JsonLinesDecoder

        return JsonLinesDecoder(
            keep_partition=options.keep_partition,
            keep_timestamp=options.keep_timestamp,
            max_bytes=options.max_bytes,
        )
    for option, is_set in (
        ("--keep-partition", options.keep_partition),
        ("--keep-timestamp", options.keep_timestamp),
    ):
        if is_set:
            raise IllegalArgumentError(
                f"{option} with --format {options.format}: expected --format jsonl, which has the "
                "field"
            )
    if not options.delimiter:
        raise IllegalArgumentError("--delimiter='': expected at least one byte")
    layout = RawLayout(
        delimiter=options.delimiter,
        key_delimiter=options.key_delimiter,
        coding=CODINGS[options.format],
    )
    return RawDecoder(
        layout,
        RawInput(
            empty_to_null=options.null,
            is_kcat=options.is_kcat,
            max_bytes=options.max_bytes,
        ),
    )


def key_delimiter(text: str | None) -> bytes | None:
    """Return the bytes of `--key-delimiter`.

    Raises:
        IllegalArgumentError: it is empty, or has a wrong escape.
    """
    if text is None:
        return None
    delimiter = unescape("--key-delimiter", text)
    if not delimiter:
        raise IllegalArgumentError("--key-delimiter='': expected at least one byte")
    return delimiter


def kcat_encoder(
    *,
    json: bool,
    template: str | None,
    delimiter: bytes,
    key_delimiter: bytes | None,
    null: bool,
    serdes: Iterable[str],
    registry: str | None,
) -> Callable[[BrokerOf], RecordEncoder]:
    """Return a function that makes the encoder for kcat's flags -J, -f, -D, -K, -Z, -s and -r.

    Raises:
        IllegalArgumentError: a template or a pack string is wrong, or -s avro has no -r.
    """
    made = parse_serdes("kcat -s", serdes, registry)
    null_text = NULL_TEXT if null else None
    if json:
        from aiokafka08._tools.records.json_lines import EnvelopeEncoder, envelope_field

        key = envelope_field("key", made.key if made.key_is_json else None)
        value = envelope_field("payload", made.value if made.value_is_json else None)
        end = delimiter.decode(errors="surrogateescape")
        return lambda broker_of: EnvelopeEncoder(broker_of, end, key, value)
    encoder: RecordEncoder
    if template is not None:
        from aiokafka08._tools.records.template import TemplateEncoder

        encoder = TemplateEncoder(
            "kcat -f",
            template,
            key=made.key,
            value=made.value,
            null_text=null_text or b"",
            like_kcat=True,
        )
    else:
        # Without -K, kcat writes an Avro key directly before the value.
        if made.key_is_json and key_delimiter is None:
            key_delimiter = b""
        layout = RawLayout(
            delimiter=delimiter,
            key_delimiter=key_delimiter,
            null_text=null_text,
            empty_is_null=null,
        )
        encoder = raw_encoder(layout, made.key, made.value)
    return lambda broker_of: encoder
