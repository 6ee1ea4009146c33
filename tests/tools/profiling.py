"""List the files of the package that a piece of work enters, for tests that limit their number."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import aiokafka08

PACKAGE = Path(aiokafka08.__file__).parent


@contextmanager
def entered_files(follow: Callable[[object], bool] | None = None) -> Iterator[list[str]]:
    """Collect the files of `aiokafka08` whose functions are called, in the order of the first call.

    Paths are relative to the package, with "/". Only this thread is profiled; pure Python only.

    Args:
        follow: collect only files with a function that gets an argument, or returns a result, for
            which this returns True. So the way of one object is followed, without the work that is
            done beside it.
    """
    files: dict[str, None] = {}
    entered: list[str] = []

    def profile(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if name in files or event not in ("call", "return"):
            return
        if follow is None:
            if event != "call":
                return
        elif not any(map(follow, _arguments(frame) if event == "call" else (arg,))):
            return
        files[name] = None
        path = Path(name)
        if path.is_relative_to(PACKAGE):
            entered.append(path.relative_to(PACKAGE).as_posix())

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield entered
    finally:
        sys.setprofile(previous)


def _arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name in frame.f_locals]
