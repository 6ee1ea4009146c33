"""What becomes of a bug of ours in the background: it ends the producer, and everybody hears of it.

Law: no unexpected exception of a task, timer or callback that sends is only logged, while senders
wait for what can't come any more.
"""

from __future__ import annotations

from collections.abc import Callable


class Guard:
    """`with guard:` around background work; may be entered again and again, also within itself.

    Args:
        on_crash: called with an exception that the work let out; the work ends there.
    """

    __slots__ = ("_on_crash",)

    def __init__(self, on_crash: Callable[[Exception], object]) -> None:
        self._on_crash = on_crash

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._on_crash(error)
        return True
