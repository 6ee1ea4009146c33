"""Read and write ZooKeeper nodes: topics, groups, committed offsets.

`cluster_writer` writes what brokers write, for a gateway in their place.

Invariant: no other package of the client imports kazoo; `testing.simulation` raises its exceptions
in place of a server.
"""
