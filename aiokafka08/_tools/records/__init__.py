"""The formats of `consume`, `produce` and `kcat`: records to bytes, and bytes to messages.

Pure, but for `avro`, which asks a schema registry, and `files`, which writes files. `formats`
chooses an encoder or a decoder by the options; `types` has what they have in common.
"""
