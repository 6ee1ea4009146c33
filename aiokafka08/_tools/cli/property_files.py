"""Parse configuration files: kcat's and librdkafka's .conf, Java's .properties, TOML profiles.

Pure. Invariants: a line that doesn't fit the file's format raises an error with its number. An
error never shows a value, because it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from aiokafka08._core.names import did_you_mean
from aiokafka08._tools.cli.settings import Source
from aiokafka08.errors import IllegalArgumentError


def parse_conf(text: str, path: str) -> Source:
    """Parse `name=value` lines as kcat does; lines that begin with `#` are comments.

    Raises:
        IllegalArgumentError: a line has no `=`.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip():
            raise IllegalArgumentError(
                f"configuration file {path}, line {number}: expected name=value"
            )
        values[name.strip()] = value.strip()
    return Source(path, values)


_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:][ \t\f]*|[ \t\f]+)")


def parse_java(text: str, path: str) -> Source:
    """Parse a file of `java.util.Properties`.

    Name and value are separated by `=`, `:` or blanks. `#` and `!` begin comments. A backslash
    continues a line or begins an escape.

    Raises:
        IllegalArgumentError: a `\\u` isn't followed by four hexadecimal digits.
    """
    values: dict[str, str] = {}
    for number, logical in _logical_lines(text):
        separator = _SEPARATOR.search(logical)
        end = len(logical) if separator is None else separator.start(1)
        start = len(logical) if separator is None else separator.end(1)
        where = f"configuration file {path}, line {number}"
        values[_unescape(logical[:end], where)] = _unescape(logical[start:], where)
    return Source(path, values)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line, joined with the lines that continue it, and the number of its last one."""
    pending, number = "", 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        logical = pending + line
        backslashes = len(logical) - len(logical.rstrip("\\"))
        if backslashes % 2:
            pending = logical[:-1]
            continue
        pending = ""
        yield number, logical
    if pending:
        yield number, pending


def _unescape(text: str, where: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise IllegalArgumentError(f"{where}: \\u; expected four hexadecimal digits after it")
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)


def parse_profile(text: str, path: str, profile: str | None) -> Source:
    """Return the properties of a profile.

    The file has a table `[profiles.NAME]` for each profile, with properties as keys, and may have
    `default = "NAME"`.

    Args:
        text: the file's text.
        path: its path, for errors.
        profile: the profile's name; None for the default one, if the file names one.

    Raises:
        IllegalArgumentError: the text isn't TOML, lacks the profile, or has other keys or types.
    """
    import tomllib

    where = f"configuration file {path}"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise IllegalArgumentError(f"{where}: not TOML: {error}") from None
    unknown = document.keys() - {"default", "profiles"}
    profiles = document.get("profiles", {})
    if unknown or not isinstance(profiles, dict):
        raise IllegalArgumentError(
            f"{where}: unknown {', '.join(sorted(unknown)) or 'profiles'}; expected tables "
            '[profiles.NAME], and default = "NAME"'
        )
    name = profile if profile is not None else document.get("default")
    if name is None:
        return Source(path, {})
    if not isinstance(name, str) or not isinstance(profiles.get(name), dict):
        raise IllegalArgumentError(
            f"{where}: no profile {name!r}; it has {', '.join(sorted(profiles)) or 'none'}"
            f"{did_you_mean(str(name), profiles)}"
        )
    return Source(f"{path}, profile {name}", dict(_flatten(profiles[name], "", where)))


def _flatten(table: dict[str, Any], prefix: str, where: str) -> Any:
    """Yield names and texts. TOML parses a key such as `a.b` into nested tables."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}.", where)
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield name, str(value)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield name, ",".join(value)
        else:
            raise IllegalArgumentError(
                f"{where}: {name} is a {type(value).__name__}; expected a text, a number, a "
                "boolean or a list of texts"
            )
