"""`json_object()`: read JSON that has to be an object. Pure.

Invariant: data of any other shape, nested too deep or invalid, end in a ValueError, so that a
caller that turns ValueError into its own error has no other one to expect.
"""

from __future__ import annotations

import json
from typing import Any


def json_object(data: bytes | str) -> dict[str, Any]:
    """Return the JSON object in data from a file, a node or a record.

    Raises:
        ValueError: the data hold something else.
    """
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
