"""The same code on aiokafka 0.14 and on this package, beside each other on one real broker.

Each test is a function that gets a `Library` and returns what it has observed. `compare` runs it
with both libraries, asserts that they agree, and returns the observation for further asserts.
"""
