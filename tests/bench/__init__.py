"""The benchmark: this client and its peers, one after the other, against the same real broker.

`python -m tests.bench` (or `nox -s bench`) runs it. `cases` says what is measured, `worker`
measures one case of one client in a process of its own, `clients/` holds one file per client,
`report` turns the results into a table. `python -m tests.bench.embedded` is apart from that: it
measures the embedded cluster, not clients.
"""
