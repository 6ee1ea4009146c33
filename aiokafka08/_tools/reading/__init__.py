"""Read records of topics without a group: from a position to a position.

`positions` parses the user's texts, `read_plan` turns them into ranges of offsets, and
`read_records` reads these.
"""
