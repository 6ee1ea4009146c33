"""Sockets to brokers: connections, lanes, metadata, versions. `router` is the door.

Producer, consumer and admin go to the network through `net.router.Router` and nowhere else.
"""
