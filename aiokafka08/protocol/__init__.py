"""The wire protocol, without I/O.

`types` compiles declared structs to readers and writers, `requests` declares the requests and
responses, `api` has what these share, `frame` cuts the byte stream into frames, `connection`
matches responses to requests, `message_set` and `compression` encode and decode messages.
`message_set` has two implementations, a compiled one (optional) and a pure one; `twins` decides
which of them runs. All packages that talk to brokers or handle messages use these modules, which
import only `errors` and `structs` from outside.

Invariant: nothing in here uses asyncio, sockets, clocks or logging.
"""
