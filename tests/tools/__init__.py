"""Tools for developers that no pytest run collects."""
