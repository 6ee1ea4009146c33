"""The console: its pages on embedded clusters, its guard, and a browser that opens it."""
