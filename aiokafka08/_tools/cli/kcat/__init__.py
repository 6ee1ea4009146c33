"""kcat's flags, the output of its `-L`, and how it chooses partitions, for `aiokafka08 kcat`."""
