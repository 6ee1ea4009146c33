"""The formats of `consume`, `produce` and `kcat`: records to bytes, and bytes to messages.

Pure, except `avro`, which asks a schema registry, and `files`, which writes files.
"""
