"""Counters: `Tally` compares two streams of messages, `Findings` has the figures of the report,
`Package` those of Spark. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ROUND_MARK = b"@"
"""Separates module and round in the keys of the second and later rounds."""


class Tally:
    """The number of messages of each key, and a hash of their values in their order.

    The hash covers each value and a line feed after it. No value that is sent contains a line feed,
    so count and hash together identify the sequence.
    """

    def __init__(self) -> None:
        self.counts: Counter[bytes | None] = Counter()
        self.valueless: Counter[bytes | None] = Counter()
        self.size_bytes = 0
        self._hashes: dict[bytes | None, hashlib.blake2b] = {}

    @property
    def messages(self) -> int:
        """The number of messages of all keys."""
        return self.counts.total()

    def add(self, key: bytes | None, values: Sequence[bytes | None]) -> list[bytes]:
        """Count the next messages of a key, and return the values that aren't None."""
        given = [value for value in values if value is not None]
        if len(given) < len(values):
            self.valueless[key] += len(values) - len(given)
        text = b"\n".join([*given, b""])
        self.counts[key] += len(values)
        self.size_bytes += len(text) - len(given) + len(key or b"") * len(values)
        found = self._hashes.get(key)
        if found is None:
            found = self._hashes[key] = hashlib.blake2b(digest_size=16)
        found.update(text)
        return given

    def differences(self, read: Tally) -> list[str]:
        """Compare this tally of sent messages with one of read messages; one text per wrong key."""
        texts = []
        for key in sorted(self.counts.keys() | read.counts.keys(), key=lambda key: key or b""):
            sent_count, count = self.counts[key], read.counts[key]
            name = "without a key" if key is None else f"key {key.decode(errors='replace')!r}"
            if count != sent_count:
                texts.append(f"{name}: {sent_count:,} messages were sent, {count:,} read")
            elif read.valueless[key]:
                texts.append(f"{name}: {read.valueless[key]:,} messages have no value")
            elif self._hashes[key].digest() != read._hashes[key].digest():
                texts.append(
                    f"{name}: {count:,} messages were sent and read, but with other values or in "
                    "another order"
                )
        return texts


class Findings:
    """Figures about the source code in the topic."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        """Lines, by the module's name."""
        self.lengths: Counter[int] = Counter()
        """Lines, by their length in bytes."""

    def add(self, key: bytes | None, values: Sequence[bytes]) -> None:
        """Add messages of one key."""
        self.modules[module_name(key)] += len(values)
        self.lengths.update(map(len, values))

    def packages(self) -> dict[str, tuple[int, int]]:
        """Return modules and lines per top-level package or module, the largest first."""
        lines: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        for name, count in self.modules.items():
            package = package_name(name)
            lines[package] += count
            modules[package] += 1
        return {package: (modules[package], count) for package, count in lines.most_common()}


def module_name(key: bytes | None) -> str:
    """Return the module that a key names, without the round."""
    return (key or b"").partition(ROUND_MARK)[0].decode(errors="replace")


def package_name(module: str) -> str:
    """Return the top-level package of a module, or the module itself."""
    return module.partition(".")[0]


class Package(NamedTuple):
    """A top-level package or module: messages, bytes of their values, and comment lines."""

    messages: int
    size_bytes: int
    comments: int

    @property
    def mean_length(self) -> float:
        """Bytes per line."""
        return self.size_bytes / self.messages

    @property
    def comment_share(self) -> float:
        """Part of its lines that are comments."""
        return self.comments / self.messages


def add_up(packages: Iterable[Package]) -> Package:
    """Add up at least one package."""
    return Package(*map(sum, zip(*packages, strict=True)))


def largest(packages: dict[str, Package], most: int) -> dict[str, Package]:
    """Return the packages with the most messages."""
    order = sorted(packages, key=lambda name: (-packages[name].messages, name))
    return {name: packages[name] for name in order[:most]}


def count_packages(parts: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, Package]:
    """Count in Python what Spark must count, from each key and its lines."""
    counted: dict[str, Package] = {}
    for key, lines in parts:
        name = package_name(module_name(key))
        comments = sum(line.lstrip(b" \t\f").startswith(b"#") for line in lines)
        part = Package(len(lines), sum(map(len, lines)), comments)
        counted[name] = add_up([counted[name], part]) if name in counted else part
    return counted
