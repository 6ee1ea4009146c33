"""The state that the stages of the demo share, and `on_loop()`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rich.console import Console

from aiokafka08.structs import RecordMetadata
from examples.demo.input import Input
from examples.demo.tally import Findings, Package
from examples.demo.timeline import Timeline

T = TypeVar("T")


class DemoError(Exception):
    """The demo can't continue; the text gives the user the reason and the remedy."""


class Speed(NamedTuple):
    """The speed of a stage, or of a part of one without messages (then `messages` is 0).

    `size_bytes` counts keys and values, before compression.
    """

    stage: str
    messages: int
    size_bytes: int
    seconds: float


class Killed(NamedTuple):
    """The leader that was killed in the middle of the ingest."""

    node: int
    led: int
    """The number of the topic's partitions that it led."""
    partitions: int
    """The number of the topic's partitions."""


class Acknowledged(NamedTuple):
    """Messages of one key that were acknowledged; `metadata` has the offset of each."""

    key: bytes
    values: Sequence[bytes]
    metadata: Sequence[RecordMetadata]


@dataclass
class Run:
    """One run of the demo. The stages fill in the fields after `kill_leader`."""

    bootstrap: str
    topic: str
    codec: str | None
    input: Input
    console: Console
    without_spark: bool = False
    kill_leader: Callable[[], Killed] | None = None
    sent: list[Acknowledged] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    killed: Killed | None = None
    repeated: list[tuple[bytes, bytes]] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    packages: dict[str, Package] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)


Stage = Callable[[Run], Sequence[Speed]]
"""Returns the speeds to report, in their order; none if it was skipped.

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
    except RuntimeError as error:
        # uvloop can't be closed if Ctrl-C has come while it was started, such as for its end.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    finally:
        work.close()  # Ctrl-C may come before it has begun: no warning then that nobody awaited it
