"""Read records of topics without a group: from a position to a position.

`positions` parses what a user gives (an offset, a time, the last N), `read_plan` turns it into
ranges of offsets, and `read_records` reads these. The commands `consume` and `kcat` and the console
use it.
"""
