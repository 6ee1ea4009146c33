"""The partition assignors, one module each, and the base class for the users' own assignors."""
