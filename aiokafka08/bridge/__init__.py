"""The bridge: copy topics from a cluster of 0.8 to 3.9 to a modern one, exactly once.

`config` reads the TOML file, `topic_map` says which topic goes where, `copy.offset_runs` which
offset is which, `copy.run_formats` how the target keeps that. The sink is confluent-kafka (extra
`bridge`), which is imported at its first use only. docs/design.md draws the way of a record.
"""
