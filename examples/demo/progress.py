"""Show the progress of a stage: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

EVERY_S = 2.0


class Meter:
    """Context manager that counts messages up to `total`.

    The last rate that it shows is the one in the table at the end: `done` by `seconds`.

    Attributes:
        done: the messages so far.
        seconds: its duration, at the end.
    """

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self.done = 0
        self._bar = Progress(
            TextColumn("{task.description:<21}"),
            BarColumn(),
            TaskProgressColumn("[progress.percentage]{task.percentage:>3.0f} %"),
            TextColumn("{task.completed:>9,.0f} messages"),
            TextColumn("{task.fields[rate]}", style="progress.data.speed"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total, rate="")
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        self._begun = self._printed = time.perf_counter()
        return self

    def advance(self, count: int) -> None:
        """Add to the count."""
        self.done += count
        now = time.perf_counter()
        self._bar.update(self._task, completed=self.done, rate=self._rate(now - self._begun))
        due = now - self._printed >= EVERY_S and self.done < self._total
        if due and not self._console.is_terminal:
            self._printed = now
            self._print(now - self._begun)

    def _rate(self, seconds: float) -> str:
        return f"{self.done / max(seconds, 1e-9):,.0f}/s"

    def _print(self, seconds: float) -> None:
        self._console.print(
            f"{self._title}: {self.done:,} of {self._total:,} messages, {self._rate(seconds)}"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._begun
        self._bar.update(self._task, rate=self._rate(self.seconds))
        self._bar.stop()
        if kind is None and not self._console.is_terminal:
            self._print(self.seconds)
