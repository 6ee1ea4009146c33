"""Read and write ZooKeeper nodes: topics, groups, committed offsets.

Invariant: no other package imports kazoo. `session` opens sessions; the other modules have one kind
of nodes each. The consumer's membership, the offset stores and the admin client call them.
"""
