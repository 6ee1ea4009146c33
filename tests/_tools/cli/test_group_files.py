"""Files of committed offsets: each format there and back, and errors that name the line."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.zookeeper.session import is_node_name
from aiokafka08._tools.cli.group_files import (
    GroupOffset,
    NodeText,
    OffsetFileFormat,
    format_backup,
    format_offsets,
    parse_offsets,
)
from aiokafka08.errors import IllegalArgumentError

OFFSETS = [
    GroupOffset("billing", "zookeeper", "orders", 0, 7, ""),
    GroupOffset("billing", "zookeeper", "orders", 1, 2**63 - 1, ""),
    GroupOffset("größe, 2", "zookeeper", "a-1", 0, 0, ""),
]


@pytest.mark.parametrize("format", get_args(OffsetFileFormat))
def test_each_format_is_read_as_it_was_written(format: OffsetFileFormat) -> None:
    text = format_offsets(OFFSETS, format)
    read = parse_offsets(text, "f")
    if format == "csv":
        assert [one._replace(store="zookeeper") for one in read] == OFFSETS
    else:
        assert read == OFFSETS


def test_json_keeps_metadata_and_store() -> None:
    offsets = [GroupOffset("g", "kafka", "t", 0, 7, "a\n€"), GroupOffset("g", None, "t", 0, 8, "")]
    offsets += [GroupOffset("h", "kafka", "t", 0, 7, "a\u2028b\x85c\x1d")]
    for format in ("json", "jsonl"):
        assert parse_offsets(format_offsets(offsets, format), "f") == offsets


def test_zookeeper_lines_are_those_of_kafkas_tool() -> None:
    lines = "/consumers/billing/offsets/orders/0:7\n/consumers/billing/offsets/orders/10:8\n"
    read = parse_offsets(lines, "f")
    assert read == [
        GroupOffset("billing", "zookeeper", "orders", 0, 7, ""),
        GroupOffset("billing", "zookeeper", "orders", 10, 8, ""),
    ]
    assert format_offsets(read, "zookeeper") == lines


def test_csv_with_and_without_the_group() -> None:
    assert parse_offsets("orders,0,7\n\norders, 1, 8\n", "f") == [
        GroupOffset(None, None, "orders", 0, 7, ""),
        GroupOffset(None, None, "orders", 1, 8, ""),
    ]
    assert parse_offsets('"g,1",orders,0,7', "f")[0].group == "g,1"


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.sampled_from('{[/ \ufeff"')
)
def test_any_group_of_zookeeper_is_read_as_it_was_written(end: str, begin: str) -> None:
    for group in (end, begin + end):
        offsets = [GroupOffset(group, "zookeeper", "t", number, 7, "") for number in range(2)]
        for format in get_args(OffsetFileFormat):
            if format == "zookeeper" and not is_node_name(group):
                with pytest.raises(IllegalArgumentError, match="can't be a node of ZooKeeper"):
                    format_offsets(offsets, format)
                continue
            data = format_offsets(offsets, format).encode()
            read = parse_offsets(data.decode("utf-8-sig"), "f")
            assert [one._replace(store="zookeeper") for one in read] == offsets


@pytest.mark.parametrize("group", [" g", "g ", "a\nb", "a\u2028b", 'a"b'])
def test_csv_keeps_the_whole_name_of_a_group(group: str) -> None:
    offsets = [GroupOffset(group, None, "orders", 0, 7, "")]
    assert parse_offsets(format_offsets(offsets, "csv"), "f") == offsets


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "f: no offsets; expected at least one"),
        ("[]", "f: no offsets"),
        ("[{", "f: not valid JSON"),
        ("[" * 100_000, "f: not valid JSON"),
        ('[{"topic": "t", "partition": 0, "offset": 1}, 5]', "f, item 2: 5; expected an object"),
        ('[{"partition": 0, "offset": 1}]', "f, item 1: topic=None; expected str"),
        ('[{"topic": "t", "partition": "0", "offset": 1}]', "partition='0'; expected int"),
        ('[{"topic": "t", "partition": 0, "offset": true}]', "offset=True; expected int"),
        ('{"topic": "t", "partition": 0, "offset": -1}', "f, line 1: offset -1; expected 0"),
        ('{"topic": "t", "partition": -1, "offset": 1}', "f, line 1: partition -1"),
        ('{"topic": "t", "partition": 0, "offset": 1, "store": "disk"}', "store='disk'"),
        ('{"topic": "t", "partition": 0, "offset": 1}\n{', "f, line 2: not valid JSON"),
        ("/consumers/g/offsets/t/0:1\n/consumers/g/offsets/t/x:1", "f, line 2: '/consumers/g/"),
        ("/consumers/g/offsets/t/1-0:1", "line 1.*expected /consumers/GROUP/offsets/"),
        ("orders,0", "f, line 1: 'orders,0'; expected TOPIC,PARTITION,OFFSET or"),
        ("orders,0,-1", "f, line 1"),
        ("a,b,c,0,1", "f, line 1"),
        ("x" * 200_000 + ",0,1", "line 1: not CSV: field larger than"),
        ("x" * 1000, "line 1: 'x+…; expected"),
        ("orders,0,99999999999999999999", "line 1"),
        ("orders,0,9999999999999999999", "offset 9999999999999999999; expected"),
        ("t,0,1\nt,0,2", "f, line 2: a second offset for t/0"),
        ("g,t,0,1\ng,t,0,1", "f, line 2: a second offset for t/0 of group 'g'"),
    ],
)
def test_wrong_file_is_refused_with_its_line(text: str, error: str) -> None:
    with pytest.raises(IllegalArgumentError, match=error):
        parse_offsets(text, "f")


def test_backup_keeps_texts_that_import_reads_and_others_refuse() -> None:
    odd = b"junk \xff \xed\xa0\x80 '\\".decode("utf-8", "surrogateescape")
    offset, node = GroupOffset("g", "kafka", "t", 0, 7, "m"), NodeText("g", "t", 1, odd)
    text = format_backup([offset, node]).decode()
    texts: list[NodeText] = []
    assert (parse_offsets(text, "f", texts), texts) == ([offset], [node])
    with pytest.raises(IllegalArgumentError, match="item 2: offset=None; expected int"):
        parse_offsets(text, "f")
