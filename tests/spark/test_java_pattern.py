"""Patterns find in topic names what Java's find, or are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.java_pattern import compile_java_pattern

NAMES = ["bar", "art", "other", "a-b.c_9", "AR", "x", "aXb", "t10", "__x", "a.b", "a", "aab", "b"]
PATTERNS = [
    *(
        "",
        "ar",
        "^ar",
        "ar$",
        "^a$",
        "a.*",
        "a|b",
        "b[a-z]r",
        "[^a-d]",
        "[.]",
        "[-.]",
        "[a-]",
        "[&]",
    ),
    *("[a|b]", "[^^a]", "[^-b]", r"[\-x]", r"[\w.-]+_", r"^[^\W_]+$", "}", "]", "b[-]c"),
    *(
        r"^\w+$",
        r"\W",
        r"\D{2,3}",
        r"\d",
        r"\S$",
        r"\Aa",
        r"b\Z",
        r"b\z",
        r"\bb",
        r"a\B",
        r"\.",
        r"a\-b",
    ),
    *(
        "(?i)ar",
        "(?i)[^x]$",
        "(?i)[b-d]",
        "(?i)[_-b]",
        "(?i:AR)t",
        "(?i)a(?-i:X)b",
        "(?i)a(?-i:[x])b",
    ),
    *("(?i:A)[X]b", "(?-i:a)[x]b", "(?i:(?:[x]))b", "(?s).", "(?im)^a.x", "(?i)\u212a"),
    *(
        "a++b",
        "a*+a",
        "a?+a",
        "a{2}",
        "a{1,}?b",
        "(?>a+)b",
        "(?=b)b",
        "(?!a)b",
        "(?<!a)b",
        "(?<=a)[.]",
    ),
    *(r"\Qa.b\E", r"\Qa.b", r"\Qaa\E+b", r"\Q(?i)\E|[X]", "(?<n>a)b", "(a|x)b"),
]


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_finds_what_java_finds(spark: Any, pattern: str) -> None:
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)
    compiled = compile_java_pattern(pattern)
    found = {name: compiled.search(name) is not None for name in NAMES}
    assert found == {name: java.matcher(name).find() for name in NAMES}


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("(", "missing )"),
        ("a(?i)b", "'(?i)' at 1; expected syntax that"),
        ("(?P<n>a)", "'(?P<n' at 0"),
        ("(?x)a", "'(?x)' at 0"),
        (r"a\p{IsGreek}", r"'\\p{IsGreek}' at 1"),
        (r"[a\p{Lower}]", r"'\\p{Lower}' at 2"),
        (r"\R", r"'\\R' at 0"),
        (r"\x61", r"'\\x' at 0"),
        (r"\E", r"'\\E' at 0"),
        (r"\b{g}", "'{' at 2"),
        ("a{,2}", "'{' at 1"),
        ("[]a]", "']' at 1"),
        ("[^]a]", "']' at 2"),
        ("[a-z&&[def]]", "'&&' at 4"),
        ("[^[ab]]", "'[' at 2"),
        ("[a--b]", "'-' at 2"),
        (r"[\Qa\E]", r"'\\Q' at 1"),
        ("[a", "the class at 0 isn't closed"),
        ("[z-a]", "bad character range z-a"),
        (r"[\w-.]", r"bad character range \w-."),
        ("a\\", r"'\\' at 1"),
        (r"(a)\11", r"'\\11' at 3"),
        (r"(?<n>a)\k<n>", r"'\\k' at 7"),
        ("(?<=a*)b", "look-behind requires fixed-width pattern"),
        ("a{99999999999}", "the repetition number is too large"),
    ],
)
def test_pattern_that_is_not_shared_is_refused_by_name(pattern: str, shown: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        compile_java_pattern(pattern)
    assert str(caught.value).split(": ", 1)[1].startswith(f"subscribePattern={pattern!r}: ")
    assert shown in str(caught.value)
    assert "name the topics by the option subscribe" in str(caught.value)


@given(st.text("ab[]^&|~-\\pP{}LQEdw(?<>i:)*+$.1x", max_size=12))
def test_any_pattern_is_compiled_or_refused(pattern: str) -> None:
    try:
        compile_java_pattern(pattern)
    except IllegalArgumentError:
        pass
