"""What aiokafka's `delete_records` takes.

Programs construct it; `admin.client` refuses the call.
"""

from __future__ import annotations


class RecordsToDelete:
    """The records of a partition before `before_offset`."""

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset
