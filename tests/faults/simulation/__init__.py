"""The mixed scenario: what a seed does to clients, brokers, network and ZooKeeper, and its verdict.

`python -m tests.faults.simulation --seeds 100` runs it. `plan` draws a plan from a seed, `scenario`
plays it, `shrink` finds the part of a plan that still fails, `runner` runs many.
"""
