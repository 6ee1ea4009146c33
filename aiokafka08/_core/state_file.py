"""Small files that belong to one process at a time, and are replaced as a whole."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO


def lock_file(path: Path) -> IO[bytes]:
    """Create a file if it isn't there, and lock it until the result is closed.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: it can't be written.
    """
    import fcntl  # not on Windows

    with ExitStack() as stack:
        lock = stack.enter_context(path.open("ab"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stack.pop_all()
    return lock


def replace_file(path: Path, text: str) -> None:
    """Write a file anew: a crash leaves the old text or the new one.

    Raises:
        OSError: it can't be written.
    """
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
