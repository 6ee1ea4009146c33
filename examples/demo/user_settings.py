"""Leave out the settings of the user, for programs whose results must not depend on them.

The demo calls it before it imports the client; the tests (`tests/conftest.py`) and the sessions
(`noxfile.py`) do, too. This file needs only the standard library.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

KEPT = frozenset({"AIOKAFKA08_IMPL", "AIOKAFKA08_CACHE", "AIOKAFKA08_NO_REAL_BROKERS"})
"""Variables that say how to run, not what a client or command does."""
PREFIXES = ("AIOKAFKA08_", "KAFKA_", "KCAT_", "OTEL_")


def forget_user_settings(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove variables that clients and commands read, and hide the user's configuration files.

    The processes that this one starts inherit that. An empty configuration file that is named
    takes the place of those in HOME and XDG_CONFIG_HOME.

    Args:
        environment: what is changed (default: that of the process).
    """
    for name in [name for name in environment if name.startswith(PREFIXES)]:
        if name not in KEPT:
            del environment[name]
    environment["AIOKAFKA08_CONFIG"] = environment["KCAT_CONFIG"] = os.devnull
