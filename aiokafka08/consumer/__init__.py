"""The consumer: what to fetch and when, what is buffered, what the user takes.

`consumer` is the public class and only delegates, with `partitions`. Pure: `reach` (one partition's
fetch size and holes), `buffer` (its sets and records), `cursor` (both, and what answers mean),
`shares` (memory), `source` (what one broker is asked next), `subscription`. Runtime: `fetcher` (the
long polls), `positions` (where to begin), `feed` (what the user takes), `assignment` (what is read
at all). Seams: `membership`, `offset_store`. `range` reads a bounded range alone.
"""

from aiokafka08.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
