"""Loaded libraries that bring event loops or threads of their own, in C: uvloop and librdkafka.

Invariant: this module imports no library. A library that isn't loaded isn't listed.
"""

# They take sockets and time from the system, where `guard` doesn't see it, so their start is
# refused. A class in C can't be changed, and programs import it by name: each module that has it
# gets the replacement.

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

_CLIENTS: Final = ("Producer", "Consumer")


def foreign_starts() -> Iterator[tuple[Any, str, str]]:
    """Yield the owner, the name and a description of each start of such a library."""
    if (uvloop := sys.modules.get("uvloop")) is not None:
        yield uvloop.Loop, "__new__", "an event loop of uvloop"
    if (rdkafka := sys.modules.get("confluent_kafka.cimpl")) is not None:
        for name in _CLIENTS:
            resource = f"confluent_kafka.{name}, which has threads and sockets of its own"
            client = getattr(rdkafka, name)
            for subclass in client.__subclasses__():
                yield subclass, "__init__", resource
            yield from ((*place, resource) for place in _places(client))
        for subclass in rdkafka._AdminClientImpl.__subclasses__():
            resource = "confluent_kafka.admin.AdminClient, which has threads and sockets of its own"
            yield subclass, "__init__", resource


def _places(client: object) -> Iterator[tuple[Any, str]]:
    """Yield each loaded module with this object, and its name there."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None) or {}
        for name in [name for name, value in names.items() if value is client]:
            yield module, name
