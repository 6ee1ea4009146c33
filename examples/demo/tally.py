"""What is counted: `Tally` proves that two streams of messages are the same, `Findings` is what the
report tells about one, `Package` what Spark finds. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ROUND_MARK = b"@"
"""Between a module's name and the round, in keys of the second round and later ones."""


class Tally:
    """Per key: how many messages there are, and a hash of their values in their order.

    The hash is that of the values with a line feed behind each. No value that is sent has one in
    it, so with the count it leaves nothing open.
    """

    def __init__(self) -> None:
        self.counts: Counter[bytes | None] = Counter()
        self.valueless: Counter[bytes | None] = Counter()
        self.size_bytes = 0
        self._hashes: dict[bytes | None, hashlib.blake2b] = {}

    @property
    def messages(self) -> int:
        """How many there are, of all keys."""
        return self.counts.total()

    def add(self, key: bytes | None, values: Sequence[bytes | None]) -> list[bytes]:
        """Count the next messages of a key; gives the values without those that are None."""
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
        """How what was read differs from this, which was sent: a text for each key that does."""
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
                    f"{name}: {count:,} messages were sent and read, but not the same ones in the "
                    "same order"
                )
        return texts


class Findings:
    """What the topic says about the code in it."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        """Lines, by the module's name."""
        self.lengths: Counter[int] = Counter()
        """Lines, by their length in bytes."""

    def add(self, key: bytes | None, values: Sequence[bytes]) -> None:
        """Take in messages of one key."""
        self.modules[module_name(key)] += len(values)
        self.lengths.update(map(len, values))

    def packages(self) -> dict[str, tuple[int, int]]:
        """Per top-level package or module: how many modules it has, and how many lines; those with
        the most lines first."""
        lines: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        for name, count in self.modules.items():
            package = package_name(name)
            lines[package] += count
            modules[package] += 1
        return {package: (modules[package], count) for package, count in lines.most_common()}


def module_name(key: bytes | None) -> str:
    """The module that a key names, whatever the round."""
    return (key or b"").partition(ROUND_MARK)[0].decode(errors="replace")


def package_name(module: str) -> str:
    """The top-level package of a module, or the module itself."""
    return module.partition(".")[0]


class Package(NamedTuple):
    """A top-level package or module: its messages, the bytes of their values, and how many of its
    lines are nothing but a comment."""

    messages: int
    size_bytes: int
    comments: int

    @property
    def mean_length(self) -> float:
        """Bytes in a line."""
        return self.size_bytes / self.messages

    @property
    def comment_share(self) -> float:
        """Of its lines."""
        return self.comments / self.messages


def add_up(packages: Iterable[Package]) -> Package:
    """Several as one; at least one."""
    return Package(*map(sum, zip(*packages, strict=True)))


def largest(packages: dict[str, Package], most: int) -> dict[str, Package]:
    """So many of them, those with the most messages first."""
    order = sorted(packages, key=lambda name: (-packages[name].messages, name))
    return {name: packages[name] for name in order[:most]}


def count_packages(parts: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, Package]:
    """What Spark must come to, from keys, each with its lines."""
    counted: dict[str, Package] = {}
    for key, lines in parts:
        name = package_name(module_name(key))
        comments = sum(line.lstrip(b" \t\f").startswith(b"#") for line in lines)
        part = Package(len(lines), sum(map(len, lines)), comments)
        counted[name] = add_up([counted[name], part]) if name in counted else part
    return counted
