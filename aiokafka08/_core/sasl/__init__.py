"""SASL mechanisms: what the client sends for what the broker sends, without any I/O on sockets.

One module per mechanism; `mechanism` has their interface, and `choose` makes the one that the
options describe. `_core.net.authentication` runs the steps on a connection.

Invariant: no password, token or key is in an error, a log line or a `repr`.
"""
