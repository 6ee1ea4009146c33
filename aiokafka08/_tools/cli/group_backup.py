"""Save the committed offsets of groups before a command changes them.

`group reset` and `group import` call it between their plan and the first commit.

Invariant: a file that exists is never changed. A new one can be read and written by its owner only,
and has reached the disk before `save_offsets` returns.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from aiokafka08._tools.cli.group_files import GroupOffset, format_offsets
from aiokafka08.errors import IllegalArgumentError


def backup_folder() -> Path:
    """Return where the files are unless the user names one; it may not exist yet."""
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder, "aiokafka08")


def save_offsets(offsets: Collection[GroupOffset], path: str | None) -> Path:
    """Write offsets to a new file that `group import` reads, and return its absolute path.

    Args:
        offsets: at least one.
        path: the file; None: one in `backup_folder()`, named after the group and the time.

    Raises:
        IllegalArgumentError: the file exists, or can't be written.
    """
    data = format_offsets(offsets, "json").encode("utf-8", "surrogateescape")
    try:
        if path is not None:
            return _write_new(Path(path), data)
        folder = backup_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{_name_of(offsets)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        number = 1
        while True:
            try:
                return _write_new(folder / f"{name}{f'-{number}' * (number > 1)}.json", data)
            except FileExistsError:
                number += 1
    except FileExistsError:
        raise IllegalArgumentError(
            f"--backup {path}: the file exists; expected a new one. Nothing was committed"
        ) from None
    except OSError as error:
        raise IllegalArgumentError(
            f"the offsets before the change can't be saved: {error.filename}: {error.strerror}. "
            "Nothing was committed; name a new file with --backup"
        ) from None


def _name_of(offsets: Collection[GroupOffset]) -> str:
    """Return the beginning of a file's name: the group's name where it is fit for that."""
    groups = {str(offset.group) for offset in offsets}
    text = groups.pop() if len(groups) == 1 else f"{len(groups)}-groups"
    return f"offsets-{re.sub('[^A-Za-z0-9._-]+', '_', text)[:80]}"


def _write_new(path: Path, data: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path.absolute()
