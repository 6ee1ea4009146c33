"""Translate the regular expressions of `subscribePattern` from Java's syntax to Python's.

Pure. Spark's own source finds the pattern anywhere in a topic's name (`java.util.regex`, `find`).

Invariant: in each legal topic name (ASCII letters, digits, ".", "_", "-") the translation finds
what Java finds, or `translate_pattern` raises an error that names the construct. Hence character
classes are sets of these characters, and other characters and several lines don't matter.

Called by `options`. tests/spark/test_java_pattern.py compares the translations with Java's.
"""

from __future__ import annotations

import re
import string
from typing import Final, NoReturn

from aiokafka08.errors import IllegalArgumentError

_DIGITS: Final = frozenset(string.digits)
_LETTERS: Final = frozenset(string.ascii_letters)
NAME_CHARACTERS: Final = _LETTERS | _DIGITS | frozenset("._-")
"""The characters of topic names."""
_CLASSES: Final = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": frozenset[str](),
    "h": frozenset[str](),
    "v": frozenset[str](),
}
"""Java's predefined classes, in lower case; the names in upper case are the complements."""
_PROPERTIES: Final = {
    "Lower": frozenset(string.ascii_lowercase),
    "Upper": frozenset(string.ascii_uppercase),
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": frozenset("._-"),
    "Graph": NAME_CHARACTERS,
    "Print": NAME_CHARACTERS,
    "ASCII": NAME_CHARACTERS,
    "XDigit": frozenset(string.hexdigits),
    "Space": frozenset[str](),
    "Blank": frozenset[str](),
    "Cntrl": frozenset[str](),
    "L": _LETTERS,
    "IsAlphabetic": _LETTERS,
    "IsDigit": _DIGITS,
    "Lu": frozenset(string.ascii_uppercase),
    "Ll": frozenset(string.ascii_lowercase),
    "N": _DIGITS,
}
"""The properties `\\p{…}` that have a translation."""
_QUANTIFIER: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_GROUP: Final = re.compile(
    r"\(\?(?:[:=!>]|<[=!]|<(?P<name>[A-Za-z][A-Za-z0-9]*)>|(?P<on>[ims]*)(?:-(?P<off>[ims]+))?:)"
)
_FLAGS: Final = re.compile(r"\(\?[ims]+\)")


def translate_pattern(pattern: str) -> str:
    """Return the pattern in Python's syntax, for `re.search` in a topic's name.

    Raises:
        IllegalArgumentError: the pattern is wrong, or has a construct without a translation.
    """
    return _Translator(pattern).translate()


class _Translator:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._ignores_case = [False]  # the flag i: of the pattern, and of each open group

    def translate(self) -> str:
        flags = _FLAGS.match(self._pattern)
        parts = [flags.group()] if flags else []
        self._at = flags.end() if flags else 0
        self._ignores_case = [flags is not None and "i" in flags.group()]
        while self._at < len(self._pattern):
            parts.append(self._next())
        translated = "".join(parts)
        try:
            re.compile(translated)
        except (re.error, OverflowError, RecursionError) as error:
            self._refuse(str(error), "a regular expression")
        return translated

    def _next(self) -> str:
        text, at = self._pattern, self._at
        if text[at] == "\\":
            if text.startswith("\\Q", at):
                return re.escape(self._quoted())
            if named := re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>").match(text, at):
                self._at = named.end()
                return f"(?P={named[1]})"
            return self._escape()
        if text[at] == "[":
            return _as_class(self._class())
        if text.startswith("(?", at):
            group = _GROUP.match(text, at)
            if group is None:
                shown = text[at : at + 4]
                self._refuse(
                    f"{shown!r} at {at}",
                    "a group that Java and Python have: (…), (?:…), (?=…), (?!…), (?<=…), (?<!…), "
                    "(?>…), (?<name>…), (?i:…), or (?i) at the beginning",
                )
            self._at = group.end()
            self._open_group(group["on"] or "", group["off"] or "")
            return f"(?P<{group['name']}>" if group["name"] else group.group()
        if text[at] == "{":
            quantifier = _QUANTIFIER.match(text, at)
            if quantifier is None:
                self._refuse(f"'{{' at {at}", r"a quantifier like {2} or {2,3}, or \{")
            self._at = quantifier.end()
            return quantifier.group()
        if text[at] == "(":
            self._open_group()
        elif text[at] == ")" and len(self._ignores_case) > 1:
            self._ignores_case.pop()
        self._at += 1
        return text[at]

    def _open_group(self, on: str = "", off: str = "") -> None:
        """Enter a group whose flags are those around it, with and without these."""
        ignores_case = ("i" in on or self._ignores_case[-1]) and "i" not in off
        self._ignores_case.append(ignores_case)

    def _escape(self) -> str:
        """Return the translation of a backslash and what belongs to it, outside of a class."""
        text, at = self._pattern, self._at
        following = text[at + 1 : at + 2]
        if following in ("A", "b", "B", "z", "Z"):
            if text.startswith("\\b{", at):
                self._refuse(f"'\\b{{' at {at}", r"\b")
            self._at += 2
            return {"z": "\\Z"}.get(following, "\\" + following)
        if following in tuple("123456789"):
            if text[at + 2 : at + 3].isdigit():
                self._refuse(f"a back-reference with two digits at {at}", r"\1 to \9, or \k<name>")
            self._at += 2
            return "\\" + following
        characters = self._escaped_characters()
        if isinstance(characters, str):
            return re.escape(characters)
        return _as_class(characters)

    def _escaped_characters(self) -> str | frozenset[str]:
        """Return the character, or the set of characters, that an escape stands for."""
        text, at = self._pattern, self._at
        following = text[at + 1 : at + 2]
        if not following:
            self._refuse("it ends with a backslash", r"\\ for a backslash")
        if following.lower() in _CLASSES:
            self._at += 2
            found = _CLASSES[following.lower()]
            return found if following.islower() else NAME_CHARACTERS - found
        if following in "pP":
            match = re.compile(r"\\[pP](?:\{(\w+)\}|(\w))").match(text, at)
            name = (match[1] or match[2]) if match else ""
            if match is None or name not in _PROPERTIES:
                shown = match.group() if match else text[at : at + 2]
                self._refuse(
                    f"{shown!r} at {at}", f"one of {', '.join(_PROPERTIES)}, or a class []"
                )
            if self._ignores_case[-1]:
                self._refuse(f"{match.group()!r} at {at} with the flag i", "a class like [a-zA-Z]")
            self._at = match.end()
            found = _PROPERTIES[name]
            return found if following == "p" else NAME_CHARACTERS - found
        if match := re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))").match(text, at):
            self._at = match.end()
            return chr(int(match[1] or match[2], 16))
        if following.isascii() and following.isalnum():
            self._refuse(f"'\\{following}' at {at}", "the character itself, or a class []")
        self._at += 2
        return following

    def _quoted(self) -> str:
        start = self._at + 2
        end = self._pattern.find("\\E", start)
        self._at = len(self._pattern) if end < 0 else end + 2
        return self._pattern[start:] if end < 0 else self._pattern[start:end]

    # --- classes ----------------------------------------------------------------------------------

    def _class(self) -> frozenset[str]:
        """Return the characters of a class; nested classes and && as in Java."""
        text, start = self._pattern, self._at
        self._at += 1
        negated = text.startswith("^", self._at)
        self._at += negated
        accepted, union = NAME_CHARACTERS, frozenset[str]()
        is_empty = True
        while True:
            if self._at >= len(text):
                self._refuse(f"'[' at {start} isn't closed", "']'")
            if text[self._at] == "]":
                if is_empty:
                    self._refuse(f"an empty class or operand at {self._at}", r"\] for a bracket")
                self._at += 1
                break
            if text.startswith("&&", self._at):
                if is_empty or text.startswith("&", self._at + 2):
                    self._refuse(
                        f"an empty operand of && at {self._at}", "a class like [a-z&&[^b]]"
                    )
                self._at += 2
                accepted, union, is_empty = accepted & union, frozenset(), True
                continue
            is_empty = False
            union |= self._class() if text[self._at] == "[" else self._class_item()
        accepted &= union
        if self._ignores_case[-1]:
            accepted = frozenset(one for c in accepted for one in (c.lower(), c.upper()))
        return NAME_CHARACTERS - accepted if negated else accepted

    def _class_item(self) -> frozenset[str]:
        """Return a character, a range, or what an escape stands for."""
        text = self._pattern
        first = self._class_character()
        if not isinstance(first, str):
            return first
        if text.startswith("-", self._at) and text[self._at + 1 : self._at + 2] not in (
            "",
            "]",
            "[",
        ):
            if text.startswith("-&&", self._at):
                self._refuse(f"'-&&' at {self._at}", r"\-")
            at = self._at
            self._at += 1
            last = self._class_character()
            if not isinstance(last, str) or last < first:
                self._refuse(f"the range at {at - 1}", "a range like a-z")
            return frozenset(c for c in NAME_CHARACTERS if first <= c <= last)
        return frozenset(first) & NAME_CHARACTERS

    def _class_character(self) -> str | frozenset[str]:
        text, at = self._pattern, self._at
        if text[at] == "\\":
            if text.startswith(("\\Q", "\\E"), at):
                self._refuse(
                    f"'{text[at : at + 2]}' in a class at {at}", "the characters themselves"
                )
            return self._escaped_characters()
        self._at += 1
        return text[at]

    def _refuse(self, what: str, expected: str) -> NoReturn:
        raise IllegalArgumentError(
            f"subscribePattern={self._pattern!r}: {what}; expected {expected}"
        )


def _as_class(characters: frozenset[str]) -> str:
    """Return a class of Python with these characters of topic names."""
    if not characters:
        return "(?!)"
    return "[" + "".join(re.escape(one) for one in sorted(characters)) + "]"
