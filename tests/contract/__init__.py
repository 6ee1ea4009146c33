"""Tests of one contract: embedded clusters and real brokers behave alike.

`client/` shows how this package's clients behave, `wire/` how brokers answer single requests. Each
test runs unchanged on the embedded cluster and on real brokers of the same line.
"""
