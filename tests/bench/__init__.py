"""The benchmark: this client and its peers, one after the other, against the same real brokers.

`python -m tests.bench` (or `nox -s bench`) runs it. `cases` says what is measured and what the
goals are, `clients/` holds one file per client, `peers` gives each its environment, `run` starts a
process for each measurement, `worker` is that process, `report` turns the results into
docs/benchmarks.md. `growth` measures this client over partitions, brokers, round-trip times
(`delay`) and batch sizes. Two programs are apart from that: `python -m tests.bench.embedded`
measures the embedded cluster, `python -m tests.bench.spark` the data source.
"""
