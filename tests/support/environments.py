"""The environment of processes that tests start as users would."""

from __future__ import annotations

import os


def as_users(**variables: str) -> dict[str, str]:
    """Return this process's environment, with `variables`, and without asyncio's debug mode.

    The debug mode, which the tests have, would log how slow a busy machine is, on a stderr that a
    test reads.
    """
    return {**os.environ, "PYTHONASYNCIODEBUG": "", **variables}
