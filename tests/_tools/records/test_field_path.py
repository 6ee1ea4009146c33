"""Paths of fields in JSON values."""

from __future__ import annotations

import json

import pytest

from aiokafka08._tools.records.field_path import Step, find, parse_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("id", ("id",)),
        ("order.items[0].id", ("order", "items", 0, "id")),
        ("$.order.id", ("order", "id")),
        (".order.id", ("order", "id")),
        ("$[12][0]", (12, 0)),
        ("[*].id", (None, "id")),
        ("$", ()),
        ('order["a.b"].c', ("order", "a.b", "c")),
        ('[""]', ("",)),
        ("$oid", ("$oid",)),
        ("café crème", ("café crème",)),
        *((wrong, None) for wrong in ("", "a..b", "a.", "a[", "a]", "a[-1]", "a[x]", "[0]b", "$.")),
        ("a[" + "9" * 10 + "]", None),
    ],
)
def test_path_is_parsed(text: str, path: tuple[Step, ...] | None) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("order.id", [17]),
        ("order.items[1].id", ["b"]),
        ("order.items.id", ["a", "b"]),
        ("order.items[*].id", ["a", "b"]),
        ("order.items[0]", [{"id": "a"}]),
        ("order.tags", [["x", ["y"]], "x", ["y"], "y"]),
        ("order.tags[1]", [["y"], "y"]),
        ("order.none", [None]),
        ("order.missing", []),
        ("order.items[2].id", []),
        ("order[0]", []),
        ("order.id.x", []),
    ],
)
def test_field_is_found_in_objects_and_arrays(path: str, found: list[object]) -> None:
    order = {"id": 17, "items": [{"id": "a"}, {"id": "b"}], "tags": ["x", ["y"]], "none": None}
    steps = parse_path(path)
    assert steps is not None
    assert json.loads(json.dumps([*find({"order": order}, steps)])) == found
