"""Everything that reads or writes ZooKeeper: the only package that imports kazoo."""
