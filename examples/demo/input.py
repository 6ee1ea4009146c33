"""The input: every line of the source of Python's standard library, which every machine has.

The key of a message is the name of the module, its value a line without its line feed. If there are
fewer lines than requested (some systems don't install the tests), the lines are sent again, with
the number of the round in the key.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from examples.demo.tally import ROUND_MARK

AT_LEAST = 500_000
"""Minimum of messages without the option `--messages`."""

_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}


class Module(NamedTuple):
    """The lines of a source file."""

    name: bytes
    lines: list[bytes]


class Input:
    """The messages to send, in rounds over all modules.

    Attributes:
        messages: their number.
        lines: the lines of one round.
        total_bytes: the bytes of all messages, keys and values.
    """

    def __init__(self, modules: list[Module], messages: int | None = None) -> None:
        self.lines = sum(len(module.lines) for module in modules)
        if not self.lines:
            raise ValueError("no lines of source")
        self._modules = modules
        self.messages = max(self.lines, AT_LEAST) if messages is None else messages
        self.total_bytes = sum(
            len(key) * len(lines) + sum(map(len, lines)) for key, lines in self.parts()
        )

    @property
    def rounds(self) -> int:
        """Number of rounds over the modules; the last one may be incomplete."""
        return -(-self.messages // self.lines)

    def parts(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield each key with its lines."""
        left = self.messages
        for number in range(1, self.rounds + 1):
            for name, lines in self._modules:
                key = name if number == 1 else b"%b%b%d" % (name, ROUND_MARK, number)
                if lines and left:
                    yield key, lines[:left]
                left -= min(left, len(lines))


def library() -> Path:
    """Return the folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(folder: Path) -> list[Path]:
    """Return the source files below a folder, in a fixed order."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_THE_LIBRARY]
        found += [Path(parent, name) for name in names if name.endswith(".py")]
    return sorted(found)


def read_module(folder: Path, path: Path) -> Module:
    """Read a source file. Lines stay bytes, since some files of the tests aren't text."""
    parts = path.relative_to(folder).with_suffix("").parts
    if len(parts) > 1 and parts[-1] == "__init__":
        parts = parts[:-1]
    lines = path.read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    return Module(os.fsencode(".".join(parts)), lines)
