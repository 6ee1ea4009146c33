"""The simulated world of this process: there can be only one at a time, and two targets use one."""

from __future__ import annotations

from collections.abc import Callable

_finish: list[Callable[[], None]] = []


def begin(finish: Callable[[], None]) -> None:
    """End the current world, if there is one; `finish` ends the one that the caller makes now."""
    end()
    _finish.append(finish)


def end() -> None:
    """End the current world, if there is one."""
    while _finish:
        _finish.pop()()
