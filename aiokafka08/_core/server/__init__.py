"""A kit for servers of size-prefixed frames: connections that share time, memory and reading.

It knows no requests: a server makes a `Listener` per port and a `ConnectionHandler` per connection,
which gets one frame at a time. The brokers of the embedded cluster are such a server.

- `listener` accepts connections (`listening`: from sockets or a simulated network), and ends them.
- `connection` cuts frames, hands them to its handler, and writes the responses in order.
- `resources` has what the connections of a server share: `scheduler` for the event loop's time,
  `memory_limit` for what they hold, `read_budget` for the reading of large requests.
- `work` is how a handler splits what takes long. `transports` adds to asyncio's transports.

Invariant: it imports nothing of the package but `protocol`, `errors` and `environment`.
"""
