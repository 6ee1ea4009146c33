"""The consumer: subscribe, fetch, buffer, return messages, commit positions.

`consumer` has the public class, `engine` owns the assigned partitions and connects the parts.
`observer` is the interface through which the parts report to the engine.

Invariant: `cursor`, `record_buffer`, `fetch_plan`, `fetch_memory` and `subscription` use no event
loop and no clock.
"""

from aiokafka08.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
