"""Read ranges of partitions, without a group: from an offset to an offset."""
