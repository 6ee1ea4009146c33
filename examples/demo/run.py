"""What the stages share, and the little that all of them use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rich.console import Console

from examples.demo.input import Input
from examples.demo.tally import Findings

T = TypeVar("T")


class DemoError(Exception):
    """The demo can't go on; the text says why and what to do, for whoever typed the command."""


class Speed(NamedTuple):
    """How fast a stage was. `size_bytes` are those of keys and values, before compression."""

    stage: str
    messages: int
    size_bytes: int
    seconds: float


@dataclass
class Run:
    """One run of the demo. `findings` and `speeds` are filled in by the stages."""

    bootstrap: str
    topic: str
    codec: str | None
    input: Input
    console: Console
    findings: Findings = field(default_factory=Findings)
    speeds: list[Speed] = field(default_factory=list)


Stage = Callable[[Run], Speed]
"""Raises `DemoError` or the client's `KafkaError`."""


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed, else on asyncio's loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
