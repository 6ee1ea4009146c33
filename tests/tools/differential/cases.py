"""A case: the steps that both targets go through, and its text as a test.

A connection's name says where it leads: "a" to broker 0, "b@2" to broker 2, "c@g0" to the
coordinator of the group "$g0", "d@!g0" to another broker. Connections are opened at their first
use; if the broker has closed one, its next use opens a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.tools.differential.topics import KINDS
from tests.tools.differential.wire import Request


@dataclass(frozen=True)
class Send:
    """Send requests in one write, and wait for their responses."""

    connection: str
    requests: tuple[Request, ...]
    waits: bool = False
    """True if a response may come only after a later step: then don't wait for it."""
    split: int = 0
    """Write this many bytes first, and the rest a moment later."""

    def __repr__(self) -> str:
        inner = "".join(f"            {one!r},\n" for one in self.requests)
        options = (", waits=True" if self.waits else "") + (
            f", split={self.split}" if self.split else ""
        )
        return f"Send({self.connection!r}, (\n{inner}        ){options})"


@dataclass(frozen=True)
class Bytes:
    """Send bytes that are no request; `open` if they leave a frame incomplete."""

    connection: str
    data: bytes
    open: bool = False


@dataclass(frozen=True)
class HalfClose:
    """Send FIN right behind these requests, and read on."""

    connection: str
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Close:
    """Close a connection."""

    connection: str


Step = Send | Bytes | HalfClose | Close


@dataclass(frozen=True)
class Case:
    """Steps for a number of brokers."""

    brokers: int
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        inner = "".join(f"        {step!r},\n" for step in self.steps)
        return f"Case({self.brokers}, (\n{inner}    ))"

    def symbols(self) -> set[str]:
        """Return the symbols of topics and groups that the requests name."""
        found: set[str] = set()
        for step in self.steps:
            if isinstance(step, Send | HalfClose):
                for request in step.requests:
                    _collect(request.body, found)
        return {one for one in found if one.startswith("$")}


def new_topics(step: Step) -> set[str]:
    """Return the symbols of topics that the step's Metadata requests may create."""
    found: set[str] = set()
    if isinstance(step, Send | HalfClose):
        for request in step.requests:
            if request.api == "Metadata":
                _collect(request.body, found)
    return {one for one in found if one.startswith("$") and one not in KINDS}


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, str):
        found.add(value)
    elif isinstance(value, list | tuple):
        for one in value:
            _collect(one, found)


def as_test(release: str, brokers: int, name: str, case: Case, comment: str) -> str:
    """Return the text of a test that runs the case."""
    told = "".join(f"    # {row}\n" for row in comment.splitlines())
    return (
        f'@pytest.mark.parametrize("on_pair", [({release!r}, {brokers})], indirect=True)\n'
        f"def test_{name}(differ: Differ) -> None:\n"
        f"{told}    assert differ({case!r}) == [None]\n"
    )
