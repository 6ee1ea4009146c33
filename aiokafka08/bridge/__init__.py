"""The bridge: copy topics from a cluster of 0.8 to 3.9 to a modern one, exactly once.

The sink is confluent-kafka (extra `bridge`). Invariant: it is imported at its first use only.
docs/design.md walks with a record.
"""
