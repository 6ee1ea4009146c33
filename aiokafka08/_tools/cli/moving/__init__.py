"""Move messages, for `consume`, `produce`, `bench` and `kcat`."""
