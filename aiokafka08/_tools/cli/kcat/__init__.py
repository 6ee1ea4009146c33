"""kcat's flags, the output of its `-L`, and its choice of partitions, for `aiokafka08 kcat`."""
