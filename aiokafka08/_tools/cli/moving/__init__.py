"""How `consume`, `produce`, `bench` and `kcat` move messages.

`producing` sends what `input_messages` reads. `consuming` writes what `read_records` (or, in a
group, `read_group`) reads from the ranges of `read_plan`, which `positions` computes. `pipes` is
stdin and stdout, `rate` the limit of `--rate`, `benchmark` the work of `bench`.
"""
