"""Names for topics and groups that no other test uses, also on clusters that outlive a session."""

from __future__ import annotations

import uuid


def unique_name(prefix: str = "t") -> str:
    """Return a new name that starts with `prefix`."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"
