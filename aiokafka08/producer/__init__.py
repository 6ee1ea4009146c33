"""The producer: `AIOKafkaProducer` and its parts.

A message passes through these modules: `producer` (the public class) → `fast_path` or `intake`
(accept it) → `accumulator` (buffer it in a batch) → `sender` and `sink` (send the batch) →
`outcome` and `batch_delivery` (complete its future). `engine` builds the parts.
"""

from aiokafka08.producer.batch_builder import BatchBuilder
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.fast_path import DeliveryFuture
from aiokafka08.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer", "BatchBuilder", "Deliveries", "DeliveryFuture"]
