"""The results of the admin client's calls that change topics, as aiokafka returns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicErrors:
    """The outcome of each topic.

    Attributes:
        topic_errors: (topic, error code, text) of each topic; (topic, 0, None) if it succeeded.
        throttle_time_ms: always 0, since no broker throttles calls that go through ZooKeeper.
    """

    topic_errors: list[tuple[str, int, str | None]]
    throttle_time_ms: int = 0

    def to_object(self) -> dict[str, Any]:
        """Return everything as dicts and lists, as the responses of aiokafka do."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "topic_errors": [
                {"topic": topic, "error_code": code, "error_message": text}
                for topic, code, text in self.topic_errors
            ],
        }


@dataclass(frozen=True, slots=True)
class DeletionErrors(TopicErrors):
    """The outcome of each topic in `delete_topics()`; see `TopicErrors`."""

    @property
    def topic_error_codes(self) -> list[tuple[str, int]]:
        """(topic, error code) of each topic; 0 if it was deleted."""
        return [(topic, code) for topic, code, _ in self.topic_errors]

    def to_object(self) -> dict[str, Any]:
        """See `TopicErrors`. The texts are left out, as in aiokafka."""
        return {
            "throttle_time_ms": self.throttle_time_ms,
            "topic_error_codes": [
                {"topic": topic, "error_code": code} for topic, code in self.topic_error_codes
            ],
        }
