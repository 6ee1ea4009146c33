"""A Kafka 0.8 - 0.10 cluster inside your process, for tests and first steps.

    with EmbeddedCluster(brokers=3, version="0.8.2") as cluster:
        client_of_any_language(cluster.bootstrap_servers)

docs/brokers.md describes how the brokers must behave.

Invariant: outside this package, its modules import only `protocol`, `errors` and `structs` from
`aiokafka08` (this file also `lazy`; import-linter checks it), so that a bug of the client can't
hide behind the same bug in a broker.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka08.testing import broker_lines as broker_lines
    from aiokafka08.testing import cluster as cluster
    from aiokafka08.testing import controls as controls
    from aiokafka08.testing import faults as faults
    from aiokafka08.testing import runtime as runtime
    from aiokafka08.testing.broker_lines import LINES as LINES
    from aiokafka08.testing.cluster import EmbeddedCluster as EmbeddedCluster
    from aiokafka08.testing.cluster import NodeInfo as NodeInfo
    from aiokafka08.testing.controls import LoggedMessage as LoggedMessage
    from aiokafka08.testing.controls import Offsets as Offsets
    from aiokafka08.testing.faults import Answer as Answer
    from aiokafka08.testing.faults import Close as Close
    from aiokafka08.testing.faults import Corrupt as Corrupt
    from aiokafka08.testing.faults import Delay as Delay
    from aiokafka08.testing.faults import Fault as Fault
    from aiokafka08.testing.faults import Hang as Hang
    from aiokafka08.testing.faults import Omit as Omit
    from aiokafka08.testing.faults import Silence as Silence
    from aiokafka08.testing.faults import Truncate as Truncate
    from aiokafka08.testing.faults import WrongCorrelationId as WrongCorrelationId
    from aiokafka08.testing.runtime import Recorded as Recorded
# At their first use, because pytest loads `pytest_plugin` in every session.
else:
    from aiokafka08._core.lazy import import_when_used

    __getattr__, __dir__ = import_when_used(__name__)
