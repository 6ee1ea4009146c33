"""All requests and responses of the protocol, declared once: one module per family of APIs.

The layouts follow the 0.8 and 0.9 protocol guides except where real brokers deviate
(docs/brokers.md). Message sets are opaque bytes here.

Invariant: each struct is declared once, with the versions of its fields. This file imports nothing,
so a client imports only the requests that it sends: a producer none of groups and their offsets.
"""
