"""The cluster that the bridge copies from."""
