"""The wire protocol, without I/O.

`types` compiles declared structs to readers and writers, `requests` declares the requests and
responses, `frame` cuts the byte stream into frames, `connection` matches responses to requests,
`message_set` and `compression` encode and decode messages.

Invariant: nothing in here uses asyncio, sockets, clocks or logging.
"""
