"""The command line and what its commands stand on; none of it is public."""
