"""Primitives for event loops and threads, and limits of rates. None knows Kafka's protocol."""
