"""Prometheus metrics of this process: families, their text, and the endpoint that serves it."""
