"""Templates, with the tokens of kcat and the modifiers of kcl; and pack strings."""

from __future__ import annotations

import struct

import pytest

from aiokafka08._tools.records.template import TemplateEncoder
from aiokafka08._tools.records.unpack import unpacker
from aiokafka08.errors import IllegalArgumentError
from tests._tools.records.sample_records import record

ONE = record(b"tea", b"k", offset=258, timestamp=1_700_000_000_123)
NOTHING = record(None, None, offset=0)


@pytest.mark.parametrize(
    ("template", "data"),
    [
        ("%s %S %k %K %T %t %p %o %%\\n", b"tea 3 k 1 1700000000123 orders 3 258 %\n"),
        ("%R", b"\0\0\0\3"),
        ("%v=%V", b"tea=3"),
        ("%v{base64} %v{base64raw} %v{hex}", b"dGVh dGVh 746561"),
        ("%k{base64} %k{base64raw}", b"aw== aw"),
        ("%v{unpack[Bs]}", b"116ea"),
        ("%d{strftime[%F %T]}|%d", b"2023-11-14 22:13:20|1700000000123"),
        ("%o{hex64} %o{hex4} %o{ascii} %o{bool}", b"0000000000000102 2 258 true"),
        ("%o{big16}%o{little32}%p{big8}%o{byte}", b"\1\2\2\1\0\0\3\2"),
        ("\\x41\\66\\t%{%}", b"AB\t{}"),
        ("", b""),
    ],
)
def test_tokens_are_filled_in(template: str, data: bytes) -> None:
    assert TemplateEncoder("-f", template).encode([ONE]) == data


def test_null_is_nothing_and_minus_one() -> None:
    encoder = TemplateEncoder("-f", "[%s%k] %S %K %T %d{strftime[%F]} %v{hex}")
    assert encoder.encode([NOTHING]) == b"[] -1 -1 -1 -1 "
    assert TemplateEncoder("-f", "%R").encode([NOTHING]) == b"\xff\xff\xff\xff"
    assert (
        TemplateEncoder("-f", "%o{big64}%S{little16}").encode([NOTHING]) == b"\0" * 8 + b"\xff\xff"
    )


def test_null_text_is_for_null_and_in_kcat_for_empty() -> None:
    empty = record(b"", b"")
    encoder = TemplateEncoder("-f", "%s|%k;", null_text=b"NULL")
    assert encoder.encode([NOTHING, empty]) == b"NULL|NULL;|;"
    encoder = TemplateEncoder("-f", "%s|%k;", null_text=b"NULL", like_kcat=True)
    assert encoder.encode([NOTHING, empty]) == b"NULL|NULL;NULL|NULL;"


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("%x", "'%x' has no meaning; expected one of %s %v"),
        ("100%", "'%' has no meaning"),
        ("% ", "'% ' has no meaning"),
        ("%v{go}", "'{go}' has no meaning; expected one of base64"),
        ("%v{unpack[z]}", "'z' has no meaning"),
        ("%o{hex5}", "'{hex5}' has no meaning; expected one of ascii"),
        ("%t{hex}", "expected none after %t"),
        ("%d{go[2006]}", "expected strftime[...]"),
        ("\\q", "has no meaning; expected \\n"),
    ],
)
def test_wrong_template_is_refused(template: str, error: str) -> None:
    with pytest.raises(IllegalArgumentError) as raised:
        TemplateEncoder("-f", template)
    assert raised.value.text.startswith("-f=")
    assert error in raised.value.text


@pytest.mark.parametrize(
    ("pack", "data", "text"),
    [
        ("i", struct.pack(">i", -5), "-5"),
        ("<i", struct.pack("<i", -5), "-5"),
        (
            "b B h H i I q Q",
            struct.pack(">bBhHiIqQ", -1, 255, -1, 65535, -1, 2**32 - 1, -1, 2**64 - 1),
            "-1 255 -1 65535 -1 4294967295 -1 18446744073709551615",
        ),
        ("<h>h", b"\1\0\0\1", "11"),
        ("cs", b"abc", "abc"),
        ("i", b"\0\0\0\1rest", "1"),
        ("i$", b"\0\0\0\1", "1"),
        ("s$", b"", ""),
    ],
)
def test_pack_string_decodes_bytes(pack: str, data: bytes, text: str) -> None:
    assert unpacker("-s", pack)(data) == text


@pytest.mark.parametrize(("pack", "data"), [("i", b"123"), ("i$", b"12345"), ("c", b"")])
def test_bytes_that_do_not_fit_are_refused(pack: str, data: bytes) -> None:
    with pytest.raises(ValueError, match="bytes"):
        unpacker("-s", pack)(data)


@pytest.mark.parametrize("pack", ["", "z", "i5"])
def test_wrong_pack_string_is_refused(pack: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"-s=.*expected a pack string"):
        unpacker("-s", pack)


def test_headers_are_empty_in_scripts_of_kcat() -> None:
    """kcat's own examples have %h; it is nothing without headers."""
    encoder = TemplateEncoder("kcat -f", "%s [%h]", like_kcat=True)
    assert encoder.encode([record(b"tea")]) == b"tea []"
    with pytest.raises(IllegalArgumentError, match=r"%h: message formats 0 and 1 have no headers"):
        TemplateEncoder("--template", "%s [%h]")
