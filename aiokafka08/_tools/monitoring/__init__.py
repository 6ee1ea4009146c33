"""Watch a cluster: samples of its state, estimates from samples over time, Prometheus metrics.

`cluster_sample` has the values, `sampler` reads them from a cluster, `cluster_history` keeps them
over time. `metric_families` turns both into metrics, `refresher` does all this in the background,
and `_core.metrics.endpoint` serves the result by HTTP. The command `exporter` uses all of it; the
command `doctor` reads samples.

Invariant: nothing here changes a cluster, and no topic is requested by name, so none is created.
"""
