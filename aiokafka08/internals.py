"""Refuse imports of aiokafka's internal modules with the reason.

A program that moves from aiokafka may import modules that aiokafka doesn't document, such as
`aiokafka.protocol.admin`. This package has other internals, and none of these modules. `aiokafka08`
calls `refuse_internals()`. The finder is the last one, so Python asks it only for modules that
don't exist.

Invariant: for a module that isn't in the table the finder finds nothing and raises nothing.
"""

from __future__ import annotations

import sys

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
    """A finder for `sys.meta_path` that finds nothing, but knows the modules of aiokafka."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Return None.

        Raises:
            ImportError: the module is one of aiokafka's internal ones; the text says what to use.
                It isn't a ModuleNotFoundError, since `from aiokafka08 import conn` would drop the
                text of that.
        """
        package, _, module = name.partition(".")
        if package == "aiokafka08" and module in _INSTEAD:
            raise ImportError(
                f"no module {name!r}: aiokafka.{module} is internal to aiokafka, and this package "
                f"is built in another way. {_INSTEAD[module]}",
                name=name,
            )


def refuse_internals() -> None:
    """Install the finder, unless it is there."""
    if InternalsFinder not in sys.meta_path:
        sys.meta_path.append(InternalsFinder)
