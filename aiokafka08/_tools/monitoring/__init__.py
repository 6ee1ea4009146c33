"""Watch a cluster: samples of its state, estimates from samples over time, Prometheus metrics.

Invariant: nothing here changes a cluster, and no topic is requested by name, so none is created.
"""
