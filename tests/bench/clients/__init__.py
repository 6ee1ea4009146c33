"""One module per client; each has `produce` and `consume` functions by the names in `cases`."""
