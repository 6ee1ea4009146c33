"""The layout of tables in the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aiokafka08._tools.cli.commands import bridge_groups
from aiokafka08._tools.cli.commands.group import LAG_GROUPING
from aiokafka08._tools.cli.table import Grouping, Row, Style, cell_text, table_text
from aiokafka08._tools.cli.terminal import encodable

TOPIC = "orders.customer-events.v2"
GROUP = "billing.invoice-writers.production"
MEMBERS = [f"kafka-python-2.0.2-3f8b{n}c2e-77f1-4c7a-9c0b-5a1e0d2b4f9{n}" for n in range(3)]
LAG_FIELDS = ("group", "store", "topic", "partition", "committed", "end", "lag", "member")
LAGS = [
    {
        "group": group,
        "store": "kafka",
        "topic": TOPIC,
        "partition": number,
        "committed": 1000,
        "end": 1200 + number,
        "lag": 200 + number,
        "member": MEMBERS[number],
    }
    for group in (GROUP, "settlement")
    for number in range(3)
]
NONE = Grouping()
BY_GROUP = Grouping(("group", "store"), ("lag",))


def table(
    rows: Sequence[Row], fields: Sequence[str], width: int | None, grouping: Grouping = NONE
) -> list[str]:
    text = table_text(rows, fields, Style(width), grouping=grouping)
    assert text.endswith("\n")
    return text.splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_are_whole_and_ids_differ_in_each_width(width: int) -> None:
    lines = table(LAGS, LAG_FIELDS, width, BY_GROUP)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(name in text for name in (TOPIC, GROUP, "settlement"))
    shown = {line.split()[-1] for line in lines if "kafka-py" in line}
    assert len(shown) == len(MEMBERS)


def test_equal_columns_are_a_caption_and_empty_ones_go() -> None:
    """No error is no news."""
    fields = ["topic", "store", "lag", "member", "error"]
    rows = [{"topic": name, "store": "kafka", "lag": 7} for name in ("a", "b")]
    lines = table(rows, fields, 80)
    assert lines[0] == "store: kafka  empty: member"
    assert [line.split() for line in lines[2:]] == [
        ["topic", "lag"],
        ["─────", "───"],
        ["a", "7"],
        ["b", "7"],
    ]


def test_each_group_has_its_total_and_all_have_one() -> None:
    lines = table(LAGS, LAG_FIELDS, 120, BY_GROUP)
    assert f"group: {GROUP}  store: kafka" in lines
    assert lines.count("total: lag 603") == 2
    assert lines[-1] == "all: lag 1206"


def test_total_says_how_many_values_are_unknown() -> None:
    rows = [row | {"lag": row["lag"] if row["partition"] else None} for row in LAGS[:3]]
    assert table(rows, LAG_FIELDS, 80, BY_GROUP)[-1] == "total: lag 403 (unknown for 1)"


def test_groups_of_one_row_each_stay_in_one_table() -> None:
    rows = [LAGS[0] | {"group": name, "topic": f"{name}-events"} for name in ("a", "b", "c")]
    lines = table(rows, LAG_FIELDS, 120, BY_GROUP)
    assert sum(line.startswith("group ") for line in lines) == 1
    assert lines[-1] == "all: lag 600"
    assert not any(line.startswith("total:") for line in lines)


def test_total_counts_what_two_rows_measure_once() -> None:
    """As a partition of a group in two stores: by the smallest known value."""
    stores = [{"store": store, "lag": lag} for store, lag in (("kafka", 3), ("zookeeper", 47))]
    rows = [LAGS[0] | store | {"group": group} for group in ("a", "b") for store in stores]
    rows += [row | {"partition": 1, "lag": None} for row in rows]
    grouping = Grouping(("group", "store"), ("lag",), ("group", "topic", "partition"))
    lines = table(
        sorted(rows, key=lambda row: (row["group"], row["store"])), LAG_FIELDS, 120, grouping
    )
    assert lines.count("total: lag 47 (unknown for 1)") == 2
    assert lines[-1] == "all: lag 6 (unknown for 2)"


def lags_of(group: str, stores: Sequence[str], partitions: int) -> list[dict[str, Any]]:
    """Return rows as `group lag` orders them; in the first store the lag is 20, then 30."""
    return [
        LAGS[0]
        | {"group": group, "store": store, "partition": number, "lag": 20 + 10 * at, "member": None}
        for number in range(partitions)
        for at, store in enumerate(stores)
    ]


def test_group_in_both_stores_is_one_section_with_one_total() -> None:
    rows = lags_of("billing", ["kafka"], 2) + lags_of("mixed", ["kafka", "zookeeper"], 2)
    lines = table(rows, LAG_FIELDS, 80, Grouping(*LAG_GROUPING))
    assert [line for line in lines if line.startswith("group:")] == [
        "group: billing",
        "group: mixed",
    ]
    mixed = lines[lines.index("group: mixed") + 3 :]
    assert [line.split()[:2] for line in mixed[:4]] == [
        ["kafka", "0"],
        ["zookeeper", "0"],
        ["kafka", "1"],
        ["zookeeper", "1"],
    ]
    assert mixed[4:] == ["total: lag 40", "", "all: lag 80"]


def test_group_with_more_rows_than_most_has_its_total_below() -> None:
    """Most groups have one row here, so there are no sections."""
    rows = [row for name in "abc" for row in lags_of(name, ["kafka"], 1)]
    rows += lags_of("mixed", ["kafka", "zookeeper"], 1)
    lines = table(rows, LAG_FIELDS, 80, Grouping(*LAG_GROUPING))
    assert lines[-3:] == ["", "mixed: lag 20", "all: lag 80"]


def test_carried_offsets_of_a_group_in_both_stores_are_one_section() -> None:
    rows = [
        {"group": group, "topic": "orders", "partition": number, "store": store, "outcome": "move"}
        for group in ("a", "b")
        for number, store in enumerate(("kafka", "zookeeper", "kafka", "zookeeper"))
    ]
    lines = table(rows, list(rows[0]), 80, Grouping(*bridge_groups.GROUPING))
    assert [line for line in lines if line.startswith("group:")] == ["group: a", "group: b"]


def test_total_leaves_out_rows_that_do_not_count() -> None:
    rows = [row | {"end": 0, "lag": None} if row["partition"] else row for row in LAGS[:3]]
    grouping = BY_GROUP._replace(counts=lambda row: row["end"] != 0)
    assert table(rows, LAG_FIELDS, 80, grouping)[-1] == "total: lag 200"
    assert table(rows[1:], LAG_FIELDS, 80, grouping)[-1] == "total: lag 0"


def test_long_first_column_gets_lines_of_its_own() -> None:
    name = f"{TOPIC}.with-a-long-end-of-its-name"
    rows = [{"topic": f"{name}-{n}", "partitions": n, "leaderless": 0} for n in range(2)]
    assert table(rows, ["topic", "partitions", "leaderless"], 60) == [
        "topic",
        "  partitions  leaderless",
        "────────────  ──────────",
        f"{name}-0",
        "           0           0",
        f"{name}-1",
        "           1           0",
    ]


def test_wide_row_becomes_a_block() -> None:
    row = {"step": "consumers", "ready": False, "detail": f"stop the members ({MEMBERS[0]})"}
    assert table([row], ["step", "ready", "detail"], 60) == [
        "step    consumers",
        "ready   no",
        "detail",
        "  stop the members",
        f"  ({MEMBERS[0]})",
    ]


def test_headers_are_broken_after_underscores_only() -> None:
    row = {"source_offset": 5, "target_offset": 7, "reason": "the target is at seven already"}
    lines = table([row], list(row), 50)
    assert [line.split() for line in lines[:2]] == [
        ["source_", "target_"],
        ["offset", "offset", "reason"],
    ]


def test_table_of_no_width_has_all_columns() -> None:
    lines = table(LAGS, LAG_FIELDS, None, BY_GROUP)
    assert lines[0].split() == list(LAG_FIELDS)
    assert len(lines) == 2 + len(LAGS)


@pytest.mark.parametrize("width", [20, 80, None])
def test_table_without_rows_is_one_header_or_says_so(width: int | None) -> None:
    lines = table([], LAG_FIELDS, width, BY_GROUP)
    assert lines == ["no rows"] if width == 20 else lines[0].split() == list(LAG_FIELDS)


def test_partitions_of_a_topic_are_put_together() -> None:
    assert cell_text(["a/2", "a/0", "b/7", "a/1", "a/11"]) == "a/0-2,11 b/7"
    assert cell_text(["a/2", "c"]) == "a/2,c"
    assert cell_text([2, 0, 1]) == "2,0,1"


def test_escapes_and_invisible_characters_are_shown() -> None:
    assert cell_text("a\x1b[31mb\x9b\u202e\u200b\u3000\n") == (
        "a\\x1b[31mb\\x9b\\u202e\\u200b\\u3000\\n"
    )


def test_table_for_ascii_has_substitutes() -> None:
    stream = TextIOWrapper(BytesIO(), encoding="ascii")
    style = Style(60, encodable=lambda text: encodable(text, stream))
    text = table_text(LAGS, LAG_FIELDS, style, grouping=BY_GROUP)
    assert text.isascii()
    assert "..." in text
    assert "---" in text
    assert max(map(len, text.splitlines())) <= 60


def test_wide_characters_take_two_columns() -> None:
    lines = table([{"a": "日本", "b": 1}, {"a": "x", "b": 2}], ["a", "b"], 80)
    assert lines == ["a     b", "────  ─", "日本  1", "x     2"]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 10**12),
    st.text(max_size=30),
    st.lists(st.integers(0, 5), max_size=4),
)
ROW = dict.fromkeys(("group", "lag_s", "member"), VALUES)


@given(
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(("group", "lag_s", "member"), VALUES)), max_size=6
    ),
    st.integers(1, 100),
)
def test_any_rows_have_a_layout(rows: list[dict[str, Any]], width: int) -> None:
    """Whatever the values are: no error, no control character."""
    text = table_text(rows, list(ROW), Style(width), grouping=Grouping(("group",)))
    assert all(line.isprintable() for line in text.splitlines())
