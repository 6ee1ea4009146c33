"""The docstrings of the public classes describe each argument, with its default.

A program's author reads them in an editor, without this project's pages and without aiokafka's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, Deliveries
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.helpers import create_ssl_context
from aiokafka08.producer import BatchBuilder

CLASSES = [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient]
METHODS = [
    (cls, name)
    for cls in (*CLASSES, BatchBuilder, Deliveries)
    for name, _ in inspect.getmembers(cls, inspect.isfunction)
    if not name.startswith("_")
]
REFUSED = {"delete_records", "describe_configs", "alter_configs", "send_offsets_to_transaction"}
"""Methods that always raise an error. Their arguments have no meaning here."""


DEFAULT = re.compile(r"(?:\(|; )(default (?:`[^`]+`|\"[^\"]*\"|\([^)]*\)|[^\s,;)]+))")
"""A default as docstrings show it, for example "(default 5)"."""


def described(docstring: str) -> dict[str, str]:
    """Return the text of each argument in the section "Args"."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.M | re.S)
    entries: dict[str, str] = {}
    if section is not None:
        for entry in re.split(r"^ {4}(?=\w)", section[1], flags=re.M)[1:]:
            names, _, text = entry.partition(":")
            entries |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return entries


def shown(default: object) -> str:
    """Return a default value as docstrings show it."""
    if isinstance(default, str):
        return f'"{default}"'
    if default is None or isinstance(default, bool | int | float | tuple):
        return repr(default)
    return f"`{type(default).__name__}()`"


def missing(function: Callable[..., Any], docstring: str) -> Iterator[str]:
    """Yield the parameters that a docstring doesn't describe, or whose default it doesn't have."""
    entries = described(docstring)
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("self", None)
    for name, parameter in parameters.items():
        required = parameter.default is parameter.empty
        if name not in entries:
            # A required argument may be in a sentence.
            if not required or f"`{name}`" not in docstring:
                yield name
        elif not required:
            default = f"default {shown(parameter.default)}"
            if set(DEFAULT.findall(entries[name])) != {default}:
                yield f"{name}: {default}"
    yield from (f"{name}: not a parameter" for name in entries.keys() - parameters)


@pytest.mark.parametrize("cls", [*CLASSES, NewTopic, NewPartitions])
def test_docstring_of_class_has_each_option_and_default(cls: type) -> None:
    assert not list(missing(cls, inspect.getdoc(cls) or ""))


@pytest.mark.parametrize(("cls", "name"), METHODS)
def test_docstring_of_method_has_arguments_and_defaults(cls: type, name: str) -> None:
    method, docstring = getattr(cls, name), inspect.getdoc(getattr(cls, name)) or ""
    assert docstring
    if name in REFUSED:
        return
    if as_there := re.search(r"The arguments are those of `(\w+)`", docstring):
        method, docstring = getattr(cls, as_there[1]), getattr(cls, as_there[1]).__doc__
        mine = inspect.signature(getattr(cls, name)).parameters.values()
        theirs = inspect.signature(method).parameters
        assert all(theirs[one.name].default == one.default for one in mine)
        docstring = inspect.cleandoc(docstring)
    assert not list(missing(method, docstring))


def test_docstring_of_ssl_helper_has_arguments_and_defaults() -> None:
    docstring = inspect.getdoc(create_ssl_context) or ""
    assert not list(missing(create_ssl_context, docstring))


def test_missing_argument_and_default_are_found() -> None:
    def call(a: int, b: int = 5, c: str = "x", d: int = 0) -> None: ...

    text = "Do it.\n\nArgs:\n    b: a number (default 5).\n    c: a text\n        (default 7).\n"
    assert list(missing(call, text + "    e: old.\n")) == [
        "a",
        'c: default "x"',
        "d",
        "e: not a parameter",
    ]
    assert list(missing(call, "Add `a`.\n" + text)) == ['c: default "x"', "d"]
