"""Record what clients do, and judge it by what Kafka may and may not do.

    recorder = Recorder()
    producer = recorder.producer("p", AIOKafkaProducer(..., on_event=recorder.on_event("p")))
    ...                                     # use it as ever
    assert not check(recorder.operations)

docs/testing.md has the table of anomalies. Invariant: nothing here knows the origin of a history:
real brokers, the embedded cluster, a simulation, or a test that writes it by hand.
"""

from aiokafka08.testing.history.check import NORMAL, check, report
from aiokafka08.testing.history.operations import (
    Anomaly,
    Message,
    Operation,
    read_jsonl,
    write_jsonl,
)
from aiokafka08.testing.history.recorder import Recorder

__all__ = [
    "NORMAL",
    "Anomaly",
    "Message",
    "Operation",
    "Recorder",
    "check",
    "read_jsonl",
    "report",
    "write_jsonl",
]
