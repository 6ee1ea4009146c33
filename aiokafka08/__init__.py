"""An asyncio client of the Kafka 0.8 wire protocol, for brokers 0.8.0 to 3.9.

The names of this module are those of aiokafka 0.14, and the two types of what `send()` and
`send_many()` return: `DeliveryFuture` and `Deliveries`. The rest of this package's public API is in
`aiokafka08.abc`, `.admin`, `.coordinator`, `.errors`, `.helpers`, `.partitioner`, `.structs`,
`.telemetry` (events) and `.testing` (an embedded cluster). Each name is imported on first use; see
`lazy`. An import of one of aiokafka's internal modules raises an ImportError with the reason; see
`internals`.
"""

from typing import TYPE_CHECKING

from aiokafka08.internals import refuse_internals
from aiokafka08.lazy import import_when_used

if TYPE_CHECKING:
    from aiokafka08.abc import ConsumerRebalanceListener
    from aiokafka08.client import AIOKafkaClient
    from aiokafka08.consumer import AIOKafkaConsumer
    from aiokafka08.errors import ConsumerStoppedError, IllegalOperation
    from aiokafka08.producer import AIOKafkaProducer, Deliveries, DeliveryFuture
    from aiokafka08.structs import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
    )
else:
    __getattr__, __dir__ = import_when_used(
        __name__,
        {
            "abc": ["ConsumerRebalanceListener"],
            "admin": [],
            "client": ["AIOKafkaClient"],
            "consumer": ["AIOKafkaConsumer"],
            "errors": ["ConsumerStoppedError", "IllegalOperation"],
            "helpers": [],
            "partitioner": [],
            "producer": ["AIOKafkaProducer", "Deliveries", "DeliveryFuture"],
            "structs": [
                "ConsumerRecord",
                "OffsetAndMetadata",
                "OffsetAndTimestamp",
                "TopicPartition",
            ],
            "telemetry": [],
            "testing": [],
        },
    )

refuse_internals()

__version__ = "0.1.0"

__all__ = [
    "AIOKafkaClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "Deliveries",
    "DeliveryFuture",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]
