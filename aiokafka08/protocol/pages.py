"""Memory for large buffers, in pages of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmap import mmap


def allocate_pages(size_bytes: int) -> mmap:
    """Return writable zeros.

    Its pages become resident when they are written, and go back to the operating system with the
    last view: malloc would keep them.
    """
    import mmap  # here, since not every program connects

    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes)
    # Shared memory, the default, takes twice as long to fill and to free.
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
