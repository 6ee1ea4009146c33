"""Refuse imports of aiokafka's internal modules with the reason.

A program that moves from aiokafka may import modules that aiokafka doesn't document, such as
`aiokafka.protocol.admin`. This package has other internals, and none of these modules. `aiokafka08`
calls `refuse_internals()`. The finder is the last one, so Python asks it only for modules that
don't exist.

Invariant: the finder raises nothing, and finds only the modules in the table. Their import raises.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_REQUESTS = "Requests to brokers have no public interface here; `aiokafka08.admin` has calls"

_INSTEAD = {
    "admin.new_partitions": "`NewPartitions` is in `aiokafka08.admin`",
    "cluster": (
        "What an assignor gets is `aiokafka08.coordinator.assignors.abstract.ClusterMetadata`"
    ),
    "codec": "The producer's option `compression_type` selects a codec",
    "conn": "`AbstractTokenProvider` is in `aiokafka08.abc`",
    "consumer.group_coordinator": "The consumer's `on_event` shows what its group does",
    "consumer.subscription_state": "The consumer has `subscription()` and `assignment()`",
    "coordinator.assignors.sticky.sorted_set": "`StickyPartitionAssignor` doesn't need it",
    "producer.transaction_manager": "This client has no transactions",
    "record": "The consumer decodes messages, and the producer's `create_batch()` encodes them",
    "util": "It has nothing to do with Kafka",
    "protocol.abstract": _REQUESTS,
    "protocol.admin": _REQUESTS,
    "protocol.commit": _REQUESTS,
    "protocol.coordination": _REQUESTS,
    "protocol.fetch": _REQUESTS,
    "protocol.group": _REQUESTS,
    "protocol.message": _REQUESTS,
    "protocol.metadata": _REQUESTS,
    "protocol.offset": _REQUESTS,
    "protocol.produce": _REQUESTS,
    "protocol.struct": _REQUESTS,
    "protocol.transaction": _REQUESTS,
}


class InternalsFinder:
    """A finder for `sys.meta_path` that finds aiokafka's internal modules, and their loader."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return a spec of one of aiokafka's internal modules; None for any other."""
        package, _, module = name.partition(".")
        if package != "aiokafka08" or module not in _INSTEAD:
            return None
        return ModuleSpec(name, cls())  # type: ignore[arg-type]  # importing `abc.Loader` is slow

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Refuse the import.

        Raises:
            ImportError: always; the text says what to use. It isn't a ModuleNotFoundError, since
                `from aiokafka08 import conn` would drop the text of that.
        """
        name = module.__name__.removeprefix("aiokafka08.")
        raise ImportError(
            f"no module {module.__name__!r}: aiokafka.{name} is internal to aiokafka, and this "
            f"package is built in another way. {_INSTEAD[name]}",
            name=module.__name__,
        )


def refuse_internals() -> None:
    """Install the finder, unless it is there."""
    if InternalsFinder not in sys.meta_path:
        sys.meta_path.append(InternalsFinder)
