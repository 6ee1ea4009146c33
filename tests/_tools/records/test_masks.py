"""Hidden keys, values and fields; texts that are found as they are."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08._tools.records.masks import Masks
from aiokafka08._tools.records.selection import RecordFilter
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import ConsumerRecord


def record(value: bytes | None, key: bytes | None = b"k", topic: str = "cards") -> Any:
    return ConsumerRecord(topic, 0, 0, None, None, key, value, None, 0, 0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            b'{"a": 1.10, "card": {"number": 4111, "x": [1]}}',
            '{"a": 1.10, "card": {"number": "(hidden)", "x": [1]}}',
        ),
        (b'{"card": "4111"}', '{"card": "(hidden)"}'),
        (
            b'[{"card": [{"number": "4111"}, 4111]}]',
            '[{"card": [{"number": "(hidden)"}, "(hidden)"]}]',
        ),
        (
            b'{"b": "\\"1", "n": 12345678901234567890123, "e": 1e400}',
            '{"b": "\\"1", "n": 12345678901234567890123, "e": 1e400}',
        ),
        ('{"card": {"number": 1}, "b": "\ue000"}'.encode(), "(hidden)"),
        (b'{"card": {"number": 1}, "b": "\\uE000\\""}', "(hidden)"),
        (b'{"card": "\\ud800"', "(hidden)"),
        (b'{"b": "\\ud800"}', "(hidden)"),
        (b"[" * 100_000, "(hidden)"),
        (b"4111", "(hidden)"),
        (b'"4111"', "(hidden)"),
        (b"\xff\xfe", "(hidden)"),
    ],
)
def test_fields_are_hidden_and_the_rest_keeps_its_digits(value: bytes, shown: str) -> None:
    hide = Masks(["cards=card.number"]).of("cards")
    assert hide is not None
    assert hide(record(value)).value == shown.encode()


@pytest.mark.parametrize("path", ["card.number", 'card["bank.Card"].number.string'])
def test_fields_of_unions_are_hidden_with_and_without_the_type(path: str) -> None:
    card = '{"id": 1, "card": {"bank.Card": {"number": %s, "holder": "ann"}}}'
    hide = Masks([f"cards={path}"]).of("cards", has_unions=True)
    assert hide is not None
    shown = hide(record((card % '{"string": "4111"}').encode())).value
    assert shown is not None
    assert b"4111" not in shown
    assert b'"holder": "ann"' in shown
    assert hide(record(b'["a", 4111]')).value == b'["(hidden)", "(hidden)"]'


def test_mask_of_a_value_that_repeats_a_name_is_fast() -> None:
    value = b'{"a": ' * 100 + b"4111" + b"}" * 100
    hide = Masks(["cards=" + ".".join("a" * 20)]).of("cards", has_unions=True)
    assert hide is not None
    assert b"4111" not in (hide(record(value)).value or b"")


def test_keys_and_values_are_hidden_wholly() -> None:
    masks = Masks(["cards=key", "c*=value", "o?=key"])
    hide = masks.of("cards")
    assert hide is not None
    hidden = hide(record(b"x", b"y"))
    assert (hidden.key, hidden.value) == (b"(hidden)", b"(hidden)")
    assert (hide(record(None, None)).key, hide(record(None, None)).value) == (None, None)
    assert masks.of("orders") is None
    for wrong in (
        "cards",
        "=key",
        "cards=",
        "cards=a,,b",
        "cards=a..b",
        "cards=a[-1]",
        "cards=a[x",
    ):
        with pytest.raises(IllegalArgumentError, match="expected TOPIC=FIELD"):
            Masks([wrong])


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("items[1].id", '{"items": [{"id": 1}, {"id": "(hidden)"}], "a.b": 3}'),
        ("items.id", '{"items": [{"id": "(hidden)"}, {"id": "(hidden)"}], "a.b": 3}'),
        ("$.items[*]", '{"items": ["(hidden)", "(hidden)"], "a.b": 3}'),
        ('["a.b"]', '{"items": [{"id": 1}, {"id": 2}], "a.b": "(hidden)"}'),
        ("items[7].id", '{"items": [{"id": 1}, {"id": 2}], "a.b": 3}'),
        ("[0]", "(hidden)"),
        ("$", "(hidden)"),
    ],
)
def test_path_of_a_filter_hides_what_the_filter_finds(field: str, shown: str) -> None:
    value = b'{"items": [{"id": 1}, {"id": 2}], "a.b": 3}'
    hide = Masks([f"cards={field}"]).of("cards")
    assert hide is not None
    hidden = hide(record(value))
    assert (hidden.value or b"").decode().strip('"') == shown
    for text in "123":
        if RecordFilter(fields=[f"{field}={text}"]).accepts(record(value)):
            assert not RecordFilter(fields=[f"{field}={text}"]).accepts(hidden)
