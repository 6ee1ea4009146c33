"""Memory for large buffers, in pages of its own.

`frame` and the embedded cluster (`testing`) allocate with it.
"""

from __future__ import annotations

import sys


def allocate_pages(size_bytes: int) -> memoryview:
    """Return a writable buffer of zeros.

    Its pages become resident when they are written, and go back to the operating system with the
    last view: malloc would keep them.
    """
    import mmap  # here, since few programs have buffers of this size

    if sys.platform == "win32":
        return memoryview(mmap.mmap(-1, size_bytes))
    # Shared memory, the default, takes twice as long to fill and to free.
    return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
