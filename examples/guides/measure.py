"""Rates between two readings of a producer's metrics: docs/guides/tuning.md."""

import time


def reading(producer):
    """Return the time, the process's CPU time, and the producer's counters."""
    found = producer.metrics()
    names = ("messages_sent", "requests_sent", "bytes_sent")
    return (time.monotonic(), time.process_time(), *(found[name] for name in names))


def rates(before, after):
    """Return what a producer did between two readings; it must have sent something."""
    changes = zip(before, after, strict=True)
    seconds, cpu_seconds, messages, requests, size = (new - old for old, new in changes)
    return {
        "messages_per_s": messages / seconds,
        "cpu_s_per_million": cpu_seconds / messages * 1e6,
        "messages_per_request": messages / requests,
        "bytes_per_message": size / messages,
    }
