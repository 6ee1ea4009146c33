"""Answers that are kept whole while parts of them are still to be decoded.

Pure. A fetched set is a view into the frame that it came in, with the sets of other partitions: to
copy each out would cost more than to decode it. But one partition that nobody reads must not keep
the memory of all others. Law: of the frames that are kept at most `limit_bytes` belong to nobody
any more; beyond that, what is still wanted of the oldest frame is copied out of it.
"""

from __future__ import annotations

from typing import Protocol


class Part(Protocol):
    """One who holds views of a frame; hashed by identity."""

    def move_out(self) -> None:
        """Copy what is still wanted, and hold no view any more."""


class FrameStore:
    """The frames that one consumer keeps.

    Attributes:
        limit_bytes: see the module.
        spare_bytes: what is kept and belongs to nobody.
    """

    __slots__ = ("_kept", "limit_bytes", "spare_bytes")

    def __init__(self) -> None:
        self.limit_bytes = self.spare_bytes = 0
        self._kept: dict[ReceivedFrame, None] = {}  # the oldest first

    def new(self, size_bytes: int) -> ReceivedFrame:
        """A frame that has come; it is kept from its first part on."""
        return ReceivedFrame(self, size_bytes)

    def keep(self, frame: ReceivedFrame) -> None:
        """It has a part now."""
        self._kept[frame] = None
        self.spare_bytes += frame.spare_bytes

    def let_go(self, frame: ReceivedFrame) -> None:
        """Nobody has a part of it any more."""
        del self._kept[frame]
        self.spare_bytes -= frame.spare_bytes

    def trim(self) -> None:
        """Heed the law."""
        while self.spare_bytes > self.limit_bytes:
            next(iter(self._kept)).clear()


class ReceivedFrame:
    """One answer, by its parts.

    Attributes:
        spare_bytes: what isn't in its parts.
    """

    __slots__ = ("_frames", "_parts", "spare_bytes")

    def __init__(self, frames: FrameStore, size_bytes: int) -> None:
        self.spare_bytes = size_bytes
        self._frames = frames
        self._parts: dict[Part, int] = {}

    def add(self, part: Part, size_bytes: int) -> None:
        """So many of its bytes are this part's."""
        if not self._parts:
            self._frames.keep(self)
        self._parts[part] = size_bytes
        self._spare(-size_bytes)

    def finished(self, part: Part) -> None:
        """Nobody needs the part any more."""
        size_bytes = self._parts.pop(part, None)
        if size_bytes is None:
            return  # it has moved out
        self._spare(size_bytes)
        if not self._parts:
            self._frames.let_go(self)
        self._frames.trim()

    def clear(self) -> None:
        """Have all parts move out."""
        for part in self._parts:
            part.move_out()
        self._parts.clear()
        self._frames.let_go(self)

    def _spare(self, more_bytes: int) -> None:
        self.spare_bytes += more_bytes
        self._frames.spare_bytes += more_bytes
