"""Hours with real brokers that are killed: memory, descriptors, tasks and timers stay flat.

`python -m tests.tools.soak --minutes 60` runs it. `workload` is what the clients do, `gauges` what
is measured, `__main__` the command.
"""
