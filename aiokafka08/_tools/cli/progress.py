"""A progress bar on stderr for long work with a known end.

Invariant: nothing is drawn in the first `DELAY_S` seconds, without a known end, or if stderr isn't
a terminal.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

DELAY_S: Final = 2.0


class Progress:
    """Shows how much of the work is done. Leave the context to remove the bar.

    Args:
        label: shown before the bar.
        total: the size of the work; None: not known, so there is no bar.
        unit: the unit of the work, such as "messages"; "bytes" also shows the speed.
        is_shown: False if the bar would disturb the output (default True).
    """

    def __init__(self, label: str, total: int | None, unit: str, *, is_shown: bool = True) -> None:
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0
        self._is_shown = bool(total) and is_shown and sys.stderr is not None and sys.stderr.isatty()
        self._draw_at = time.monotonic() + DELAY_S
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, count: int) -> None:
        """Count work as done, and draw the bar if it is time."""
        self._done += count
        if not self._is_shown:
            return
        if self._bar is None:
            if time.monotonic() < self._draw_at:
                return
            self._bar = self._open()
            self._task = self._bar.add_task(self._label, total=self._total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=self._done)

    def _open(self) -> RichProgress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        amount = (
            (DownloadColumn(), TransferSpeedColumn())
            if self._unit == "bytes"
            else (MofNCompleteColumn(),)
        )
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *amount,
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
