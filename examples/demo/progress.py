"""Show the progress of a stage: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn
from rich.text import Text

EVERY_S = 2.0


class _Rate(TextColumn):
    """The average rate since the start, as everywhere in the demo."""

    def render(self, task: Task) -> Text:
        rate = task.completed / task.elapsed if task.completed and task.elapsed else 0
        return Text(f"{rate:,.0f}/s", style="progress.data.speed")


class Meter:
    """Context manager that counts `done` up to `total`; `seconds` is its duration at the end."""

    def __init__(self, console: Console, title: str, total: int, unit: str) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._unit = unit
        self.done = 0
        self._bar = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn(f"{{task.completed:>9,.0f}} {unit}"),
            _Rate(""),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total, start=False)
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._bar.start_task(self._task)
        self._bar.start()
        self._begun = self._printed = time.perf_counter()
        return self

    def advance(self, count: int) -> None:
        """Add to the count."""
        self.done += count
        self._bar.advance(self._task, count)
        now = time.perf_counter()
        if not self._console.is_terminal and now - self._printed >= EVERY_S:
            self._printed = now
            self._print(now - self._begun)

    def _print(self, seconds: float) -> None:
        self._console.print(
            f"{self._title}: {self.done:,} of {self._total:,} {self._unit}, "
            f"{self.done / max(seconds, 1e-9):,.0f}/s",
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._begun
        self._bar.stop()
        if kind is None and not self._console.is_terminal:
            self._print(self.seconds)
