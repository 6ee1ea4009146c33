"""The argument of aiokafka's `delete_records`, which the client refuses."""

from __future__ import annotations


class RecordsToDelete:
    """The records of a partition before `before_offset`."""

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset
