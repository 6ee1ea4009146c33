"""Start real Kafka brokers on loopback for tests: each line from 0.8.0 to 4.1.

``from tests.brokers import RealCluster``; as a program: ``python -m tests.brokers 0.8.2.2``.

Invariant: this package imports nothing of ``aiokafka08``, so that it can't share the client's bugs.
"""

from tests.brokers.cluster import RealCluster
from tests.brokers.errors import (
    HarnessError,
    HarnessTimeoutError,
    MissingToolError,
    UnsupportedByBrokerError,
)
from tests.brokers.java_process import JavaProcess
from tests.brokers.ports import free_port
from tests.brokers.tools import JavaResult
from tests.brokers.topics import NewTopic
from tests.brokers.versions import VERSIONS

__all__ = [
    "VERSIONS",
    "HarnessError",
    "HarnessTimeoutError",
    "JavaProcess",
    "JavaResult",
    "MissingToolError",
    "NewTopic",
    "RealCluster",
    "UnsupportedByBrokerError",
    "free_port",
]
