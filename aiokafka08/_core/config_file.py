"""Read a configuration file of TOML: sections, keys, their checks and defaults.

    SECTIONS = {"": {"name": Key(a_text, is_required=True)}, "copy": {"rate": Key(a_rate)}}

The section "" has the keys before the first section.

Invariants: a key that isn't in the sections is an error that names similar ones. An error names the
file, the key, the value (unless it may be a secret) and what is expected.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiokafka08._core.concurrency.rate import parse_rate
from aiokafka08._core.properties import expected_one_of, hide_value
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError, KafkaError


@dataclass(frozen=True, slots=True)
class Key:
    """A key. Its check returns the value, or raises ValueError with what is expected."""

    check: Callable[[object], Any]
    default: Any = None
    is_required: bool = False


_OPEN_TO_OTHERS: Final = 0o027

Sections = Mapping[str, Mapping[str, Key]]


def a_text(value: object) -> str:
    """Check a text; return it without spaces around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a non-empty string")
    return value.strip()


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise ValueError("a list of non-empty strings")
    return tuple(value)


def a_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def an_integer(least: int, most: int = 2**31 - 1) -> Callable[[object], int]:
    """Return the check of an integer in a range."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"an integer from {least} to {most}")
        return value

    return check


def seconds(least: float, most: float) -> Callable[[object], float]:
    """Return the check of a time in a range."""

    def check(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:  # type: ignore[operator]
            raise ValueError(f"seconds from {least:g} to {most:g}")
        return float(value)  # type: ignore[arg-type]

    return check


def one_of(*values: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError(expected_one_of(values))
        return value

    return check


def a_table(value: object) -> dict[str, str]:
    """Check a table of properties; numbers and booleans become the text that Kafka expects."""
    if not isinstance(value, dict):
        raise ValueError("a table of properties")
    texts: dict[str, str] = {}
    for name, setting in value.items():
        if isinstance(setting, bool):
            texts[name] = str(setting).lower()
        elif isinstance(setting, str | int | float):
            texts[name] = str(setting)
        else:
            raise ValueError(f"a string, number or boolean for {name}")
    return texts


def a_rate(value: object) -> float:
    """Check a rate; return bytes per second."""
    try:
        return parse_rate(str(value))
    except IllegalArgumentError:
        raise ValueError('bytes per second > 0, such as "20MB/s" or "512KiB/s"') from None


def check_sections(text: str, known: Sections) -> dict[str, dict[str, Any]]:
    """Return section → key → checked value, with defaults, of the text of a file.

    Raises:
        TOMLDecodeError: it isn't TOML.
        IllegalArgumentError: a key or value is wrong; its text lacks the file (see `named`).
    """
    return check_document(tomllib.loads(text), known)


def check_document(document: Mapping[str, Any], known: Sections) -> dict[str, dict[str, Any]]:
    """Do what `check_sections` does, for a file or a part of it that has been parsed."""
    sections = {name: keys for name, keys in known.items() if name}
    tables: dict[str, Any] = {"": {k: v for k, v in document.items() if k not in sections}}
    for section in sections:
        tables[section] = document.get(section, {})
        if not isinstance(tables[section], dict):
            raise IllegalArgumentError(
                f"{section}={shorten(tables[section])}: expected a section [{section}]"
            )
    values: dict[str, dict[str, Any]] = {}
    for section, keys in known.items():
        prefix = f"{section}." if section else ""
        for name in tables[section]:
            if name not in keys:
                raise _unknown(prefix, name, (*keys, *(sections if not section else ())))
        values[section] = {
            name: _value(f"{prefix}{name}", key, tables[section].get(name))
            for name, key in keys.items()
        }
    return values


def _unknown(prefix: str, name: str, names: tuple[str, ...]) -> IllegalArgumentError:
    from difflib import get_close_matches

    similar = get_close_matches(name, names, n=3)
    expected = f"similar: {', '.join(similar)}" if similar else f"expected {expected_one_of(names)}"
    return IllegalArgumentError(f"{hide_value(prefix + name)}: unknown key; {expected}")


def _value(name: str, key: Key, value: object) -> Any:
    if value is None:
        if key.is_required:
            raise IllegalArgumentError(f"{name}: missing; the key has no default")
        return key.default
    try:
        return key.check(value)
    except ValueError as error:
        # A table of properties may have a secret.
        shown = name if key.check is a_table else f"{name}={shorten(value)}"
        raise IllegalArgumentError(f"{shown}: expected {error}") from None


def read_file(path: Path, expected: str) -> str:
    """Return the text of a file.

    Raises:
        IllegalArgumentError: it can't be read; the error names the file and `expected`.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else str(error)
        raise IllegalArgumentError(f"{path}: {detail}; expected {expected}") from None


def require_private(path: Path, content: str) -> None:
    """Refuse a file with secrets if others can use it, or its group can write it.

    PostgreSQL and sshd check their keys in a similar way. If the file is missing, do nothing: its
    reader raises the error.

    Raises:
        IllegalArgumentError: others can read it, or the group can write it.
    """
    if os.name == "posix" and path.exists() and path.stat().st_mode & _OPEN_TO_OTHERS:
        raise IllegalArgumentError(f"{path}: it has {content}, and others can use it. chmod 600 it")


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Begin the texts of errors with the file's name while the block parses the file.

    A KafkaError or TOMLDecodeError of the block becomes an IllegalArgumentError.
    """
    try:
        yield
    except tomllib.TOMLDecodeError as error:
        raise IllegalArgumentError(f"{path}: not TOML: {error}") from None
    except KafkaError as error:
        raise IllegalArgumentError(f"{path}: {error.text}") from None
