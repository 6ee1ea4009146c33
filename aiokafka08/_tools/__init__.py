"""The command line and the modules of its commands; none of it is public."""
