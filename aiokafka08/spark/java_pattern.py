r"""Compile the regular expressions of `subscribePattern`, which are Java's. Pure.

Invariant: in each legal topic name (ASCII letters, digits, ".", "_", "-") the compiled pattern
finds what Java finds, or `compile_java_pattern` raises an error that names the construct. So only
syntax that means the same in both languages passes. Three constructs are rewritten: \Q…\E,
(?<name>…) and \z. Among others, these are refused: nested classes, && in a class, \p{…},
back-references, flags other than i, m and s, and (?i) and the like after the start of the pattern.
"""

# Spark's own source finds the pattern anywhere in a topic's name (`java.util.regex`, `find`).

from __future__ import annotations

import re
from typing import Final

from aiokafka08.errors import IllegalArgumentError

_ESCAPE: Final = r"\\(?:[dDwWsS]|[^A-Za-z0-9])"
_CLASS_ITEM: Final = (
    rf"(?:{_ESCAPE}|(?!&&|--|~~|\|\|)[^]\[\\])"  # Java has && here, Python warns of the others
)
_FLAGS: Final = re.compile(r"\(\?[ims]+\)")
_TOKEN: Final = re.compile(
    rf"""
    [^\\\[(){{*+?]                                     # a character, ^ $ . | ] and }}
    | {_ESCAPE} | \\[AbB] | \\(?P<end>[zZ])
    | \\Q(?!\\E)(?P<quoted>.+?)(?:\\E|\Z)
    | \[\^?+{_CLASS_ITEM}+\]
    | \((?!\?) | \) | \(\?(?:[:=!>]|<[=!]|[ims]*(?:-[ims]+)?:)
    | \(\?<(?P<name>[A-Za-z][A-Za-z0-9]*)>
    | [*+?] | \{{[0-9]+(?:,[0-9]*)?\}}
    """,
    re.VERBOSE | re.DOTALL,
)
_REFUSED: Final = re.compile(
    rf"""
    (?:\[\^?+{_CLASS_ITEM}*)?                          # the part of a class that is shared
    (?P<shown>\\[A-Za-z]\{{\w*\}}|\\[0-9]+|\\.?|&&|\[|\(\?[^:)]{{0,3}}[:)]?|.?)
    """,
    re.VERBOSE | re.DOTALL,
)


def compile_java_pattern(pattern: str) -> re.Pattern[str]:
    """Compile the pattern, for `search` in a topic's name.

    Raises:
        IllegalArgumentError: the pattern is wrong, or has syntax that Java and Python don't share.
    """
    flags = _FLAGS.match(pattern)
    parts = [flags.group()] if flags else []
    at = flags.end() if flags else 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _error(pattern, _refused_construct(pattern, at))
        if token["quoted"]:
            parts.append(re.escape(token["quoted"]))
        elif token["name"]:
            parts.append(f"(?P<{token['name']}>")
        else:
            parts.append(r"\Z" if token["end"] else token.group())
        at = token.end()
    try:
        return re.compile("".join(parts), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise _error(pattern, str(error)) from error


def _refused_construct(pattern: str, at: int) -> str:
    refused = _REFUSED.match(pattern, at)
    assert refused is not None  # it matches any text
    if not refused["shown"]:
        return f"the class at {at} isn't closed"
    return f"{refused['shown']!r} at {refused.start('shown')}"


def _error(pattern: str, problem: str) -> IllegalArgumentError:
    return IllegalArgumentError(
        f"subscribePattern={pattern!r}: {problem}; expected syntax that the regular expressions of "
        "Java and Python share. Write it in another way, or name the topics by the option subscribe"
    )
