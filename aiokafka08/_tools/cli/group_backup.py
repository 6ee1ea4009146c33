"""Save the committed offsets of groups before a command changes them.

Invariant: a group with an offset that can't be saved isn't changed. A file that exists is never
changed. A new one can be read and written by its owner only, and has reached the disk before
`save_offsets` returns.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka08._core.zookeeper.nodes import shown_path
from aiokafka08._tools.cli.group_files import GroupOffset, NodeText, format_backup
from aiokafka08._tools.cli.notes import note
from aiokafka08._wording import counted, shorten, some_of
from aiokafka08.errors import (
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
)
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka08._tools.cli.settings import Settings
    from aiokafka08.admin.group_lag import StoredOffsets

# A partition in a backup; a node of ZooKeeper that holds no offset is a `NodeText`.
Saved = GroupOffset | NodeText


def backup_folder() -> Path:
    """Return the folder of backups for which the user names no file; it may not exist yet."""
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder, "aiokafka08")


def offsets_to_save(
    stored: StoredOffsets, partitions: Collection[TopicPartition] | None = None
) -> list[Saved]:
    """Return the entries of a backup for a group in one store.

    Args:
        stored: the offsets that the group has committed.
        partitions: the partitions that are about to change; None: all, and the group itself
            (default None).

    Raises:
        IllegalStateError: an offset can't be read, and so can't be saved.
    """
    wanted = [*stored.offsets, *stored.errors] if partitions is None else partitions
    errors: list[KafkaError] = [] if stored.error is None else [stored.error]
    errors += [stored.errors[tp] for tp in wanted if tp in stored.errors and tp not in stored.texts]
    if partitions is None:
        # A node whose list of children is refused may hide offsets. The other errors are about
        # nodes that aren't named after a partition, so they hide none.
        refused = GroupAuthorizationFailedError
        errors += [error for error in stored.others if isinstance(error, refused)]
    if errors:
        raise IllegalStateError(
            f"group {stored.group!r} isn't changed, since this offset can't be saved: "
            f"{errors[0].text}"
        )
    saved: list[Saved] = []
    for tp in sorted(wanted):
        if tp in stored.offsets:
            saved.append(GroupOffset(stored.group, stored.store, *tp, *stored.offsets[tp]))
        elif tp in stored.texts:
            text = stored.texts[tp].decode("utf-8", "surrogateescape")
            saved.append(NodeText(stored.group, *tp, text))
    return saved


class Backup:
    """The backup file of one command.

    Args:
        path: as for `save_offsets`.

    Attributes:
        has_missing: set by the command if partitions of the file don't exist.
    """

    def __init__(self, path: str | None) -> None:
        self.has_missing = False
        self._path = path
        self._offsets: Sequence[Saved] = ()
        self._file: Path | None = None

    def save(self, offsets: Sequence[Saved]) -> None:
        """Write the file, and note its path; nothing happens without offsets."""
        self._offsets = offsets
        if offsets:
            self._file = save_offsets(offsets, self._path)
            texts = len(self._texts())
            parts = [
                counted(number, noun)
                for number, noun in (
                    (len(offsets) - texts, "present offset"),
                    (texts, "text of a node without an offset"),
                )
                if number
            ]
            note(f"{' and '.join(parts)} saved in {self._file}")

    def note_way_back(self, settings: Settings, changed: int | None = None) -> None:
        """Note the command that commits the offsets of the file again.

        Args:
            settings: the cluster.
            changed: how many partitions have a new offset; None: the groups are deleted
                (default None).
        """
        if self._file is None:
            return
        texts = self._texts()
        kept = [
            f"{counted(number, 'partition')} {what}, and keep{'s' * (number == 1)} the new one"
            for number, what in (
                ((changed or 0) - len(self._offsets), "had no offset"),
                (len(texts), "had an unreadable one"),
            )
            if number > 0 and changed is not None
        ]
        if len(texts) < len(self._offsets):
            words = ["aiokafka08", "group", "import", str(self._file), "--execute"]
            words += ["--skip-missing"] * self.has_missing
            keep = f" ({'; '.join(kept)})" if kept else ""
            note(f"to go back{keep}: {shlex.join([*words, *settings.flags])}")
        if texts:
            change = "create" if changed is None else "set"
            note(how_to_write(texts, settings.zookeeper_connect, change))

    def _texts(self) -> list[NodeText]:
        return [one for one in self._offsets if isinstance(one, NodeText)]


def how_to_write(texts: Sequence[NodeText], zookeeper: str | None, change: str) -> str:
    """Return the texts of nodes that held no offset, and the command that restores the first one.

    Args:
        texts: at least one.
        zookeeper: its address; None if it isn't known.
        change: the command of ZooKeeper's client, "set" or "create".
    """
    nodes = [f"{shown_path(one.path)} held {shorten(one.text)}" for one in texts]
    words = ["zkCli.sh", "-server", zookeeper or "HOST:2181", change]
    words += [texts[0].path, texts[0].text]
    return (
        f"{some_of(nodes)}, which is no offset; import doesn't write it. To have it again: "
        f"{' '.join(map(_shell_word, words))}"
    )


def _shell_word(text: str) -> str:
    """Quote a text as one word for bash, with escapes for characters that aren't printable."""
    if text.isprintable():
        return shlex.quote(text)
    return (
        "$'"
        + "".join(
            character
            if character.isprintable() and character not in "'\\"
            else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
            for character in text
        )
        + "'"
    )


def save_offsets(offsets: Collection[Saved], path: str | None) -> Path:
    """Write offsets to a new file that `group import` reads, and return its absolute path.

    Args:
        offsets: at least one.
        path: the file; None: one in `backup_folder()`, named after the group and the time.

    Raises:
        IllegalArgumentError: the file exists, or can't be written.
    """
    data = format_backup(offsets)
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
            f"--backup {path}: the file exists; expected a new one. Nothing was changed"
        ) from None
    except OSError as error:
        raise IllegalArgumentError(
            f"the offsets before the change can't be saved: {error.filename}: {error.strerror}. "
            "Nothing was changed; name a new file with --backup"
        ) from None


def _name_of(offsets: Collection[Saved]) -> str:
    """Return the beginning of a file's name: the group's name in safe characters."""
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
