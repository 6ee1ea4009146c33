"""What the bytes mean. Sans I/O: no asyncio, sockets, clocks or logging in here.

`types` compiles declared structs, `api` declares them, `frame` cuts the stream, `connection`
matches answers to requests, `message_set` and `compression` are the messages themselves.
"""
