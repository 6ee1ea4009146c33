"""The consumer: subscribe, fetch, buffer, return messages, commit positions.

`consumer` has the public class. `engine` owns the assigned partitions and connects the parts:

- `fetcher` fetches (with `fetch_plan`: which partitions next; `fetch_memory`: how many bytes).
- `cursor` is one partition (with `_core.ranges.next_fetch`: the offset and the size of its next
  fetch; `record_buffer`: its fetched message sets and decoded records).
- `start_offsets` finds positions, `collector` serves getone() and getmany(), `commits` commits.
- `observer` is the interface through which these parts report to the engine.

`subscription` is what the user wants to read. The package `membership` decides which of these
partitions this consumer reads. `config` checks the options. `_core.ranges` reads bounded ranges
without a consumer.

These modules use no event loop and no clock: `cursor`, `record_buffer`, `fetch_plan`,
`fetch_memory` and `subscription`.
"""

from aiokafka08.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
