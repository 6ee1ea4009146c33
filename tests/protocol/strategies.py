"""Hypothesis strategies derived from the declarations: annotations define a struct's values."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from aiokafka08.protocol.types import Fixed, NullSince, Since, Sized


def examples(count: int) -> settings:
    """Settings for a test that needs `count` examples only; ten times as many with --full."""
    return settings(max_examples=count * settings().max_examples // 100)


_NULL = type(None)
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}

texts = st.text(st.characters(codec="utf-8"), max_size=8)


def values(type_: Any, version: int, type_args: dict[Any, Any] | None = None) -> st.SearchStrategy:
    """Return a strategy for values of a wire type or struct class that `version` can carry."""
    type_args = type_args or {}
    if isinstance(type_, TypeVar):
        return values(type_args[type_], version, type_args)
    origin = typing.get_origin(type_)
    if origin is Annotated:
        for wire in type_.__metadata__:
            if isinstance(wire, Fixed):
                return _fixed(wire)
            if isinstance(wire, Sized):
                content = texts if wire.text else st.binary(max_size=16)
                has_none = wire.nullable and not wire.null_is_empty
                return st.none() | content if has_none else content
            if isinstance(wire, NullSince) and version < wire.first:
                [type_] = (arg for arg in typing.get_args(type_.__origin__) if arg is not _NULL)
                return values(type_, version, type_args)
        return values(type_.__origin__, version, type_args)
    if origin is list:
        return st.lists(values(typing.get_args(type_)[0], version, type_args), max_size=3)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(
            *(
                st.none() if arg is _NULL else values(arg, version, type_args)
                for arg in typing.get_args(type_)
            )
        )
    if origin is not None:
        return _struct(
            origin, version, dict(zip(origin.__parameters__, typing.get_args(type_), strict=True))
        )
    return _struct(type_, version, {})


def _fixed(wire: Fixed) -> st.SearchStrategy:
    if wire.code == "?":
        return st.booleans()
    bits = _BITS[wire.code]
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _struct(cls: Any, version: int, type_args: dict[Any, Any]) -> st.SearchStrategy:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {}
    for field in dataclasses.fields(cls):
        since = since_of(hints[field.name])
        if since is None or since.first <= version <= since.last:
            fields[field.name] = values(hints[field.name], version, type_args)
        else:
            fields[field.name] = st.just(since.absent)
    return st.builds(cls, **fields)


def since_of(type_: Any) -> Since | None:
    """Return the `Since` mark of an annotation, if it has one."""
    marks = getattr(type_, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, Since)), None)


def sample(type_: Any, version: int) -> Any:
    """Return a value with content in each field: two items per array, five bytes per text."""
    return _sample(type_, version, {})


def _sample(type_: Any, version: int, type_args: dict[Any, Any]) -> Any:
    if isinstance(type_, TypeVar):
        return _sample(type_args[type_], version, type_args)
    origin = typing.get_origin(type_)
    if origin is Annotated:
        for wire in type_.__metadata__:
            if isinstance(wire, Fixed):
                return wire.code == "?" or 7
            if isinstance(wire, Sized):
                return "héll" if wire.text else b"bytes"
        return _sample(type_.__origin__, version, type_args)
    if origin in (typing.Union, types.UnionType):
        (type_,) = (arg for arg in typing.get_args(type_) if arg is not type(None))
        origin = list
    if origin is list:
        return [_sample(typing.get_args(type_)[0], version, type_args) for _ in range(2)]
    if origin is not None:
        type_args = dict(zip(origin.__parameters__, typing.get_args(type_), strict=True))
        type_ = origin
    fields = {}
    for field in dataclasses.fields(type_):
        hint = typing.get_type_hints(type_, include_extras=True)[field.name]
        since = since_of(hint)
        if since is None or since.first <= version <= since.last:
            fields[field.name] = _sample(hint, version, type_args)
        else:
            fields[field.name] = since.absent
    return type_(**fields)
