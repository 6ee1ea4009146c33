"""Event-loop primitives that the producer and the consumer share. No Kafka, no I/O."""
