"""How `consume`, `produce`, `bench` and `kcat` move messages.

`producing` sends what `input_messages` reads. `consuming` writes what `_tools.reading` (or, in a
group, `read_group`) reads. `pipes` is stdin and stdout, `rate` the limit of `--rate`, `benchmark`
the work of `bench`.
"""
