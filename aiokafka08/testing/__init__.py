"""A Kafka 0.8 - 0.10 cluster inside your process, for tests and first steps.

    with EmbeddedCluster(brokers=3, version="0.8.2") as cluster:
        client_of_any_language(cluster.bootstrap_servers)

`cluster` is what tests call, and `controls` does most of it; `server` and `handlers` are the
brokers; `state`, `log` and `group` are what brokers remember. docs/brokers.md describes how they
must behave.

Invariant: outside this package, its modules import only `protocol`, `errors` and `structs` from
`aiokafka08`; this file imports `lazy` too. The brokers use no other code of the client, so that a
bug of the client can't hide behind the same bug in a broker. import-linter checks it.

The names below are imported at their first use, because pytest loads `pytest_plugin` in every
session.
"""

from typing import TYPE_CHECKING

from aiokafka08.lazy import import_when_used

if TYPE_CHECKING:
    from aiokafka08.testing.broker_lines import LINES
    from aiokafka08.testing.cluster import EmbeddedCluster, NodeInfo
    from aiokafka08.testing.controls import LoggedMessage, Offsets
    from aiokafka08.testing.faults import (
        Answer,
        Close,
        Corrupt,
        Delay,
        Fault,
        Hang,
        Omit,
        Silence,
        Truncate,
        WrongCorrelationId,
    )
    from aiokafka08.testing.runtime import Recorded
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "cluster": ["EmbeddedCluster", "NodeInfo"],
            "controls": ["LoggedMessage", "Offsets"],
            "faults": [
                "Answer",
                "Close",
                "Corrupt",
                "Delay",
                "Fault",
                "Hang",
                "Omit",
                "Silence",
                "Truncate",
                "WrongCorrelationId",
            ],
            "runtime": ["Recorded"],
            "broker_lines": ["LINES"],
        },
    )

__all__ = [
    "LINES",
    "Answer",
    "Close",
    "Corrupt",
    "Delay",
    "EmbeddedCluster",
    "Fault",
    "Hang",
    "LoggedMessage",
    "NodeInfo",
    "Offsets",
    "Omit",
    "Recorded",
    "Silence",
    "Truncate",
    "WrongCorrelationId",
]
