"""Who gets which partitions: one class per way, and the base class for users' own."""
