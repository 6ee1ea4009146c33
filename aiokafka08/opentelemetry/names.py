"""The names of metrics and attributes, by the conventions for messaging (docs/frameworks.md).

Pure. `old_names` translates attributes into those of version 1.24 of the conventions.
"""

from __future__ import annotations

from typing import Final

Attributes = dict[str, str | int | bool]

OPT_IN_VARIABLE: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
"""The environment variable that `instrument()` reads: "messaging/dup" in it adds the old names."""

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.43.0"
"""The conventions that have the names below."""

DURATION: Final = "messaging.client.operation.duration"
"""The metric of the time that an operation takes."""

SENT: Final = "messaging.client.sent.messages"
"""The metric of the messages that were sent."""

CONSUMED: Final = "messaging.client.consumed.messages"
"""The metric of the messages that were received."""

OLD_METRICS: Final = {
    (DURATION, "send"): "messaging.publish.duration",
    (DURATION, "poll"): "messaging.receive.duration",
    (SENT, "send"): "messaging.publish.messages",
    (CONSUMED, "poll"): "messaging.receive.messages",
}
"""What version 1.24 of the conventions calls a metric of an operation."""

OLD_ATTRIBUTES: Final = {
    "messaging.operation.type": "messaging.operation",
    "messaging.client.id": "messaging.client_id",
    "messaging.consumer.group.name": "messaging.kafka.consumer.group",
    "messaging.destination.partition.id": "messaging.kafka.destination.partition",
    "messaging.kafka.offset": "messaging.kafka.message.offset",
}
"""What version 1.24 of the conventions calls an attribute; the other names are the same."""

TYPES: Final = {"send": "send", "poll": "receive", "commit": "settle", "create": "create"}
"""The type of each operation."""


def old_names(attributes: Attributes) -> Attributes:
    """Return the attributes under the names of version 1.24; others than these stay."""
    old: Attributes = {}
    for name, value in attributes.items():
        if name == "messaging.operation.type" and value == "send":
            value = "publish"
        elif name == "messaging.destination.partition.id":
            value = int(value)
        if name != "messaging.operation.name":
            old[OLD_ATTRIBUTES.get(name, name)] = value
    return old
