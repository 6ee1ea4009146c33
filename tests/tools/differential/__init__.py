"""Compare the embedded cluster with real brokers: the same random requests to both.

`generate` makes a case from a seed: steps that send raw requests over several connections. `run`
carries a case out on a target (`targets`), `compare` finds the first difference between two
records, `shrink` makes the case as short as possible, and `known` lists the differences that the
embedded cluster doesn't model. `campaign` does this for many seeds.

    nox -s differential -- --seeds 500 --line 0.8.2.2

Invariant: outside `targets` this package imports nothing of `aiokafka08`. It has a codec of its own
(`schemas`, `wire`, `sets`), so that a bug of the package's codec can't hide a difference.
"""
