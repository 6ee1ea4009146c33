"""The benchmark: this client and its peers, one after the other, against the same real brokers.

`python -m tests.tools.bench` (or `nox -s bench`) runs it:

- `cases` has the measurements and their goals; `growth` those over partitions, brokers, round-trip
  times (`delay`) and batch sizes.
- `clients/` has one file per client; `peers` installs the clients.
- `run` starts a process for each measurement; `worker` is the program in it, `measure` its meter.
- `report`, `growth_report` and `plot` write docs/benchmarks.md and its pictures.

Some programs are separate: `python -m tests.tools.bench.embedded` measures the embedded cluster,
`python -m tests.tools.bench.spark` the data source, `python -m tests.tools.bench.gateway` the
gateway, with `gateway_stub` as its target.
"""
