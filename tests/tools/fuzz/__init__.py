"""Mutated frames and message sets, by the million: `python -m tests.tools.fuzz --examples
10000000`.

Each example is bytes for one target: the decoder of requests or responses, the readers of message
sets and of record batches (both twins), a client's connection, an embedded broker, a gateway (from
its client, or from the broker behind it), or the calls of a client that read a log. A target
returns or raises a typed error, and each byte of a set is accounted for; anything else is a
finding. `targets` has them, `server` the broker, `gateway` the gateway and `calls` the client;
`mutator` changes bytes, `campaign` runs examples and measures, `coverage` lets atheris choose them.
"""
