"""The cluster that the bridge copies to."""
