"""The steps from the old cluster to the new one."""
