"""An asyncio client of the Kafka 0.8 wire protocol, for brokers 0.8.0 to 3.9.

The names of this module are those of aiokafka 0.14, and the two types of what `send()` and
`send_many()` return: `DeliveryFuture` and `Deliveries`. The rest of this package's public API is in
`aiokafka08.abc`, `.admin`, `.coordinator`, `.errors`, `.helpers`, `.partitioner`, `.structs`,
`.telemetry` (events) and `.testing` (an embedded cluster). Each name is imported on first use; see
`_core.lazy`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka08 import abc as abc
    from aiokafka08 import admin as admin
    from aiokafka08 import client as client
    from aiokafka08 import consumer as consumer
    from aiokafka08 import errors as errors
    from aiokafka08 import helpers as helpers
    from aiokafka08 import partitioner as partitioner
    from aiokafka08 import producer as producer
    from aiokafka08 import structs as structs
    from aiokafka08 import telemetry as telemetry
    from aiokafka08 import testing as testing
    from aiokafka08.abc import ConsumerRebalanceListener as ConsumerRebalanceListener
    from aiokafka08.client import AIOKafkaClient as AIOKafkaClient
    from aiokafka08.consumer import AIOKafkaConsumer as AIOKafkaConsumer
    from aiokafka08.errors import ConsumerStoppedError as ConsumerStoppedError
    from aiokafka08.errors import IllegalOperation as IllegalOperation
    from aiokafka08.producer import AIOKafkaProducer as AIOKafkaProducer
    from aiokafka08.producer import Deliveries as Deliveries
    from aiokafka08.producer import DeliveryFuture as DeliveryFuture
    from aiokafka08.structs import ConsumerRecord as ConsumerRecord
    from aiokafka08.structs import OffsetAndMetadata as OffsetAndMetadata
    from aiokafka08.structs import OffsetAndTimestamp as OffsetAndTimestamp
    from aiokafka08.structs import TopicPartition as TopicPartition
else:
    from aiokafka08._core.lazy import import_when_used

    __getattr__, __dir__ = import_when_used(__name__)

__version__ = "0.1.0"
