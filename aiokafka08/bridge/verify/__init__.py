"""Compare the copy with the source, message by message."""
