"""SASL mechanisms, without any I/O on sockets: the client's token for each token of the broker.

Invariant: no password, token or key is in an error, a log line or a `repr`.
"""
