"""Which topics are copied, and under which name."""

from __future__ import annotations

import pytest

from aiokafka08._core.names import compile_patterns
from aiokafka08.bridge.topic_map import TopicMap, rename_rule
from aiokafka08.errors import IllegalArgumentError


def topic_map(
    include: list[str], exclude: list[str] | None = None, *rename: tuple[str, str]
) -> TopicMap:
    return TopicMap(
        compile_patterns("include", include),
        compile_patterns("exclude", exclude or []),
        tuple(rename_rule("rename", *rule) for rule in rename),
    )


def test_pattern_matches_whole_name() -> None:
    found = topic_map(["orders", "click.*"], ["clicks-tmp"])
    topics = ["orders", "orders2", "my-orders", "clicks", "clicks-tmp"]
    assert found.pairs(topics) == {"clicks": "clicks", "orders": "orders"}


def test_internal_topics_are_never_copied() -> None:
    topics = ["__consumer_offsets", "aiokafka08-bridge.x.offsets", "orders"]
    assert list(topic_map([".*"]).pairs(topics)) == ["orders"]


def test_pattern_that_matches_no_topic_is_named() -> None:
    topics = ["__consumer_offsets", "aiokafka08-bridge.x.offsets", "orders", "clicks"]
    assert topic_map(["orders", "cl.*"]).mismatch(topics) is None
    assert topic_map(["ordes", "clicks", "__.*"]).mismatch(topics) == (
        "topics.include: 'ordes', '__.*' matches no topic of the source. A pattern must match the "
        "whole name. The topics found: clicks, orders. Did you mean 'orders'?"
    )
    assert topic_map(["orders"], ["o.*"]).mismatch(topics) == (
        "topics.exclude leaves no topic of the source"
    )


def test_first_rename_rule_that_matches_counts() -> None:
    found = topic_map([".*"], [], ("a(.)", r"x.\1"), ("a.*", "y"))
    assert found.pairs(["a1", "abc", "b"]) == {"a1": "x.1", "abc": "y", "b": "b"}


def test_two_topics_of_one_name_are_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="'a' and 'b' would both become 'b'"):
        topic_map([".*"], [], ("a", "b")).pairs(["b", "a"])


@pytest.mark.parametrize("to", ["x y", "", ".", "..", "ü"])
def test_name_that_kafka_refuses_is_refused(to: str) -> None:
    with pytest.raises(IllegalArgumentError, match="would get the name"):
        topic_map([".*"], [], ("a", to)).target_name("a")


def test_rename_to_unknown_group_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match=r"to='x\.\\\\2': invalid group reference"):
        rename_rule("rename", "(a)", r"x.\2")


def test_pattern_of_a_shell_is_answered_with_a_regular_expression() -> None:
    with pytest.raises(IllegalArgumentError, match=r"include='\*': .*did you mean '\.\*'\?"):
        topic_map(["*"])
    mismatch = topic_map(["orders*"]).mismatch(["orders-eu"])
    assert mismatch is not None
    assert mismatch.endswith("did you mean 'orders.*'?")
