"""Which files of the package a piece of work enters, for the tests that bound its hops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import aiokafka08

PACKAGE = Path(aiokafka08.__file__).parent


@contextmanager
def entered_files() -> Iterator[list[str]]:
    """Collect the files of `aiokafka08` whose functions are called, in the order of the first call.

    Paths are relative to the package, with "/". Only this thread is profiled; pure Python only.
    """
    files: dict[str, None] = {}
    entered: list[str] = []

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        if name not in files:
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
