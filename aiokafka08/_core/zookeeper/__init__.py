"""Read and write ZooKeeper nodes: topics, groups, committed offsets.

Invariant: no other package of the client imports kazoo; `testing.simulation` raises its exceptions
in place of a server.
"""
