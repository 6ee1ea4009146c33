"""What a broker's log says of the clients under test."""

from __future__ import annotations

import re

CLIENT_HAS_GONE = ("\njava.io.IOException: Broken pipe", "\njava.io.IOException: Connection reset")
TOPIC_IS_DELETED = "ERROR Error when freeing index buffer "


def entries(log: str) -> list[str]:
    """Return the entries of a log, stack traces included, but those of other clients and topics."""
    found = re.findall(r"^\[.*\n(?:[^\[].*\n)*", log, flags=re.MULTILINE)
    others = (*CLIENT_HAS_GONE, TOPIC_IS_DELETED)
    return [one for one in found if not any(text in one for text in others)]
