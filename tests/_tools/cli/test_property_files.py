"""The formats of configuration files."""

from __future__ import annotations

import pytest

from aiokafka08._tools.cli.property_files import parse_conf, parse_java, parse_profile
from aiokafka08.errors import IllegalArgumentError


def test_conf_has_names_values_and_comments() -> None:
    text = "# kcat\n\nbootstrap.servers = a:1,b:2\n  acks=all\nssl.key.password=a=b#c\n"
    assert parse_conf(text, "f").values == {
        "bootstrap.servers": "a:1,b:2",
        "acks": "all",
        "ssl.key.password": "a=b#c",
    }


@pytest.mark.parametrize("line", ["acks", "=all"])
def test_conf_line_without_name_or_value_raises_without_it(line: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        parse_conf(f"acks=1\n{line}\n", "kcat.conf")
    assert "configuration file kcat.conf, line 2: expected name=value" in str(caught.value)


def test_java_properties_are_parsed_as_by_java() -> None:
    text = "\n".join(
        [
            "# comment",
            "! comment",
            "a=1",
            "b : 2",
            "c 3",
            "  d\t=\t4 ",
            "e = one, \\",
            "    two",
            "key\\ with\\:signs = v=w",
            "unicode = \\u00e4\\t\\\\",
            "empty",
            "path = C:\\\\temp",
        ]
    )
    assert parse_java(text, "f").values == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "4 ",
        "e": "one, two",
        "key with:signs": "v=w",
        "unicode": "ä\t\\",
        "empty": "",
        "path": "C:\\temp",
    }


def test_java_property_may_end_the_file_with_a_backslash() -> None:
    for end in ("\\", "\\\n", "\\\r\n  # no comment"):
        values = parse_java(f"a=1\nlast=2{end}", "f").values
        assert values == {"a": "1", "last": "2# no comment" if "#" in end else "2"}


def test_only_line_ends_of_java_end_a_property() -> None:
    text = "a=1\x85\u2028\r\nb=2\x0c3\rc=4"
    assert parse_java(text, "f").values == {"a": "1\x85\u2028", "b": "2\x0c3", "c": "4"}


def test_java_properties_with_a_wrong_escape_raise() -> None:
    with pytest.raises(IllegalArgumentError, match=r"line 1: \\u; expected four hexadecimal"):
        parse_java("a=\\u12", "f")


PROFILES = """
default = "prod"

[profiles.prod]
bootstrap.servers = ["kafka1:9092", "kafka2:9092"]
request.timeout.ms = 5000
check.crcs = false

[profiles.test]
"bootstrap.servers" = "localhost"
"""


def test_profile_is_chosen_by_name_or_by_default() -> None:
    assert parse_profile(PROFILES, "f", None) == (
        "f, profile prod",
        {
            "bootstrap.servers": "kafka1:9092,kafka2:9092",
            "request.timeout.ms": "5000",
            "check.crcs": "false",
        },
    )
    assert parse_profile(PROFILES, "f", "test").values == {"bootstrap.servers": "localhost"}
    assert parse_profile("[profiles.a]\nacks = 1", "f", None).values == {}


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        (PROFILES, "none", "no profile 'none'; it has prod, test"),
        ('default = "x"', None, "no profile 'x'; it has none"),
        ("a = ", None, "not TOML"),
        ("acks = 1", None, r"unknown acks; expected tables \[profiles.NAME\]"),
        ("profiles = 1", None, "unknown profiles; expected tables"),
        ("[profiles.a]\nacks = 1999-01-01", "a", "acks is a date; expected a text"),
        ("[profiles.a]\nacks = [1]", "a", "acks is a list; expected a text"),
    ],
)
def test_wrong_profiles_raise(text: str, profile: str | None, message: str) -> None:
    with pytest.raises(IllegalArgumentError, match=f"configuration file f: {message}"):
        parse_profile(text, "f", profile)
