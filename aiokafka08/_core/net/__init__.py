"""Connections to brokers: lanes, metadata, broker versions, retries.

Producer, consumer, admin and Spark reach the network through `_core.net.router.Router` only.
"""
