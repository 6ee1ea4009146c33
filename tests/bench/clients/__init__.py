"""One module per client, and one file for Java's; each has functions by the names in `cases`."""
