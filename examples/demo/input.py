"""The input: every line of the Python standard library's source, as every machine has it.

The key of a message is the name of the module, its value a line without its line feed. Where there
are fewer lines than asked for (some systems leave the tests out), the same come again, with the
round in the key.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from examples.demo.tally import ROUND_MARK, Tally

AT_LEAST = 500_000
"""Messages, where nobody says how many."""

_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}


class Module(NamedTuple):
    """A source file."""

    name: bytes
    lines: list[bytes]


class Input:
    """What is to be sent: `messages` of them, in rounds over all modules.

    `lines` and `size_bytes` are those of one round; `sent` is what the topic must come to.
    """

    def __init__(self, modules: list[Module], messages: int | None = None) -> None:
        self.lines = sum(len(module.lines) for module in modules)
        self.size_bytes = sum(len(line) for module in modules for line in module.lines)
        if not self.lines:
            raise ValueError("no lines of source")
        self._modules = modules
        self.messages = max(self.lines, AT_LEAST) if messages is None else messages
        self.sent = Tally()
        for key, lines in self.parts():
            self.sent.add(key, lines)

    @property
    def rounds(self) -> int:
        """How often the modules are gone through; the last time perhaps not to their end."""
        return -(-self.messages // self.lines)

    def parts(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Keys, each with its lines."""
        left = self.messages
        for number in range(1, self.rounds + 1):
            for name, lines in self._modules:
                key = name if number == 1 else b"%b%b%d" % (name, ROUND_MARK, number)
                if lines and left:
                    yield key, lines[:left]
                left -= min(left, len(lines))


def library() -> Path:
    """The folder of the standard library of the Python that runs this."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(folder: Path) -> list[Path]:
    """Its source files, in a fixed order."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_THE_LIBRARY]
        found += [Path(parent, name) for name in names if name.endswith(".py")]
    return sorted(found)


def read_module(folder: Path, path: Path) -> Module:
    """A source file; the tests have some that aren't text, so its lines stay bytes."""
    parts = path.relative_to(folder).with_suffix("").parts
    if len(parts) > 1 and parts[-1] == "__init__":
        parts = parts[:-1]
    lines = path.read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    return Module(os.fsencode(".".join(parts)), lines)
