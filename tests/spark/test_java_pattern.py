"""Patterns find in topic names what Java's find, or are refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.java_pattern import translate_pattern

NAMES = ["bar", "art", "other", "a-b.c_9", "AR", "x", "aXb", "t10", "__x", "a.b", "a", "aab", "b"]
PATTERNS = [
    *("ar", "^ar", "ar$", "a.*", "b[a-z&&[^x]]r", "[a-z&&[def]]", "[^a-d&&[c-f]]", "[a-c[x-z]]"),
    *(
        r"\p{Alpha}+\z",
        r"\p{Lower}\P{Lower}",
        r"\pL\d",
        r"\p{Upper}",
        r"[\p{Digit}_]+$",
        r"\p{Punct}",
    ),
    *(r"\Qa.b\E", r"\Qa.b", r"^\w+$", r"\W", r"\D{2,3}", r"\h", r"\H", r"\S$", r"\Aa", r"b\Z"),
    *("(?<n>a)\\k<n>", "(a)\\1", "(?i)ar", "(?i)[^x]$", "(?i)[b-d&&[^c]]", "(?i:AR)t", "(?>a+)b"),
    *("a++b", "a*+a", "a?+a", "a{2}", "(?=b)b", "(?<!a)b", "(?<=a)[.]", "[-.]", "[a-]", r"[\-x]"),
    *(
        r"[\w&&[^a-z]]",
        "[^[ab]]",
        "[^a]",
        r"\x61\u0062",
        r"\.",
        r"a\-b",
        "[a&&b]",
        "[a-z&&[^aeiou]&&[^b]]",
    ),
    *("}", "]", "a|b", "", "(?s).", "[.]", r"\bb", r"a\B", "[&]", "(?i)a(?-i:X)b"),
    *("(?i:A)[X]b", "(?-i:a)[x]b", r"\Q(?i)\E|[X]", "(?i)a(?-i:[x])b", "(?i:(?:[x]))b"),
]


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_finds_what_java_finds(spark: Any, pattern: str) -> None:
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)
    translated = re.compile(translate_pattern(pattern))
    found = {name: translated.search(name) is not None for name in NAMES}
    assert found == {name: java.matcher(name).find() for name in NAMES}


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("(", "missing )"),
        ("a(?i)b", "'(?i)' at 1; expected a group"),
        ("(?P<n>a)", "'(?P<' at 0"),
        ("(?x)a", "'(?x)' at 0"),
        (r"\p{IsGreek}", r"'\\p{IsGreek}' at 0"),
        (r"(?i)\p{Lower}", "with the flag i"),
        (r"\R", r"'\R' at 0"),
        (r"\X", r"'\X' at 0"),
        ("a{,2}", "'{' at 1; expected a quantifier"),
        ("[]a]", "an empty class"),
        ("[a&&]", "an empty class or operand"),
        ("[a", "'[' at 0 isn't closed"),
        ("[z-a]", "the range"),
        ("a\\", "ends with a backslash"),
        (r"(a)\11", "a back-reference with two digits"),
    ],
)
def test_untranslatable_pattern_is_refused_by_name(pattern: str, shown: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        translate_pattern(pattern)
    assert str(caught.value).split(": ", 1)[1].startswith(f"subscribePattern={pattern!r}: ")
    assert shown in str(caught.value)


@given(st.text("ab[]^&-\\pP{}LQEdw(?<>i:)*+|$.1x", max_size=12))
def test_any_pattern_is_translated_or_refused(pattern: str) -> None:
    try:
        re.compile(translate_pattern(pattern))
    except IllegalArgumentError:
        pass
