"""Counters: `Findings` has the figures of the report, `Package` those of Spark. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

ROUND_MARK = b"@"
"""Separates module and round in the keys of the second and later rounds."""


class Findings:
    """Figures about the source code in the topic."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        """Messages, by the module's name."""

    def add(self, counts: Mapping[bytes | None, int]) -> None:
        """Add numbers of messages, by key."""
        for key, count in counts.items():
            self.modules[module_name(key)] += count

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


def percent_text(share: float) -> str:
    """Return a share as text, such as "6.5 %": the same in the tables and in the picture."""
    return f"{100 * share:.1f} %"


def count_packages(parts: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, Package]:
    """Count in Python what Spark must count, from each key and its lines."""
    counted: dict[str, Package] = {}
    for key, lines in parts:
        name = package_name(module_name(key))
        comments = sum(line.lstrip(b" \t\f").startswith(b"#") for line in lines)
        part = Package(len(lines), sum(map(len, lines)), comments)
        counted[name] = add_up([counted[name], part]) if name in counted else part
    return counted
