"""Producing messages: `AIOKafkaProducer` and what it is made of.

`producer` is the public face, `intake` the way in, `accumulator` what waits, `sender` and `link`
the way out, `settle`, `batch_delivery` the end of a message.
"""

from aiokafka08.producer.batch_builder import BatchBuilder
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.fast_path import DeliveryFuture
from aiokafka08.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer", "BatchBuilder", "Deliveries", "DeliveryFuture"]
