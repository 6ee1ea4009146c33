"""Mutated frames and message sets, by the million: `python -m tests.tools.fuzz --examples
10000000`.

Each example is bytes for one target: the decoder of requests or responses, the reader of message
sets (both twins), a client's connection, or an embedded broker. A target returns or raises a typed
error; anything else is a finding. `targets` has them and `server` the broker, `mutator` changes
bytes, `campaign` runs examples and measures, `coverage` lets atheris choose them.
"""
