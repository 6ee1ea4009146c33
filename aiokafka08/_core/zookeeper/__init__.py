"""Read and write ZooKeeper nodes: topics, groups, committed offsets.

Invariant: no other package of the client imports kazoo; `testing.simulation` raises its exceptions
in place of a server. `session` opens sessions, each of which `cluster_check` compares with the
brokers; the other modules have one kind of nodes each. The consumer's membership, the offset stores
and the admin client call them.
"""
