"""What the stages share, and the little that all of them use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rich.console import Console

from examples.demo.input import Input
from examples.demo.tally import Findings, Package

T = TypeVar("T")


class DemoError(Exception):
    """The demo can't go on; the text says why and what to do, for whoever typed the command."""


class Speed(NamedTuple):
    """How fast a stage was, or a part of one that has no messages yet (then `messages` is 0).

    `size_bytes` are those of keys and values, before compression.
    """

    stage: str
    messages: int
    size_bytes: int
    seconds: float


@dataclass
class Run:
    """One run of the demo. What follows `console` is filled in by the stages; `packages` only where
    Spark could run."""

    bootstrap: str
    topic: str
    codec: str | None
    input: Input
    console: Console
    findings: Findings = field(default_factory=Findings)
    packages: dict[str, Package] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)


Stage = Callable[[Run], Sequence[Speed]]
"""Gives the times to report, in their order; none where it was left out.

Raises `DemoError` or the client's `KafkaError`.
"""


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed, else on asyncio's loop."""
    try:
        try:
            from uvloop import new_event_loop
        except ImportError:
            return asyncio.run(work)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work)
    finally:
        work.close()  # Ctrl-C may come before it has begun: no warning then that nobody awaited it
