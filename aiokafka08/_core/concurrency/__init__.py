"""Event-loop primitives that the producer and the consumer share. They know nothing of Kafka."""
