"""The format `files`: each record's value becomes a file of its own.

Invariant: no existing file is overwritten, and a file has its name only when it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from aiokafka08._tools.records.types import BytesRecord

# A file with this suffix stands for a message whose value is null.
NULL_SUFFIX: Final = ".null"


class FilesEncoder:
    """Write each value to `DIRECTORY/TOPIC-PARTITION-OFFSET`; nothing goes to stdout.

    The offset has 20 digits, so names sort by offset. Null becomes an empty file with the suffix
    ".null".

    Raises:
        OSError: the directory doesn't exist and can't be made.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory = directory

    def encode(self, records: Sequence[BytesRecord]) -> bytes:
        """Write the files.

        Raises:
            OSError: a file exists or can't be written.
        """
        for record in records:
            suffix = NULL_SUFFIX if record.value is None else ""
            name = f"{record.topic}-{record.partition}-{record.offset:020}{suffix}"
            path = os.path.join(self._directory, name)
            part = f"{path}.part"
            with open(part, "wb") as file:
                file.write(record.value or b"")
            try:
                os.link(part, path)  # unlike a rename, it doesn't overwrite
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from None
            finally:
                os.unlink(part)
        return b""
