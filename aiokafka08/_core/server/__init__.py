"""A kit for servers of size-prefixed frames: connections that share time, memory and reading.

It knows no requests: a server makes a `Listener` per port and a `ConnectionHandler` per connection,
which gets one frame at a time. The brokers of the embedded cluster are such a server.

Invariant: it imports nothing of the package but `protocol`, `errors` and `environment`.
"""
