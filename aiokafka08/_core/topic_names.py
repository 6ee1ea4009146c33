"""The rules for names of topics, existing and new. Pure.

Invariant: all code that creates topics uses `check_new_topic_name` or `NewTopicNames`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aiokafka08._wording import shorten
from aiokafka08.errors import InvalidTopicError

MAX_NEW_NAME: Final = 249
"""The length of the longest name of a new topic. Brokers up to 0.9 create longer ones, up to 255.
The name of a partition's folder may then exceed 255 characters, and such a broker leads nothing
after its next restart (docs/brokers.md 4.16). Newer brokers refuse such names."""

_MAX_NAME: Final = 255
_TOPIC_NAME: Final = rf"[a-zA-Z0-9._-]{{1,{_MAX_NAME}}}"


def is_topic_name(name: str) -> bool:
    return re.fullmatch(_TOPIC_NAME, name) is not None and name not in (".", "..")


def check_topic_name(topic: object, longest: int = _MAX_NAME) -> str:
    """Return `topic` if it is a valid topic name.

    Raises InvalidTopicError unless it is 1 to 255 letters, digits, ".", "_", "-", and not "." or
    "..".
    """
    if not isinstance(topic, str):
        kind = type(topic).__name__
        raise InvalidTopicError(
            f"invalid topic name {shorten(topic)}: expected a string, not {kind}"
        )
    # Check before the name is sent: one invalid name empties the whole response of an 0.8 broker.
    if not is_topic_name(topic):
        raise InvalidTopicError(
            f"invalid topic name {shorten(topic)}: expected 1 to {longest} characters of "
            'a-z A-Z 0-9 . _ -, but not "." or ".."'
        )
    return topic


def may_be_new(topic: str) -> bool:
    """Return whether a valid name is short enough for a topic that doesn't exist yet."""
    return len(topic) <= MAX_NEW_NAME


def check_new_topic_name(topic: object) -> str:
    """Return `topic` if it can name a new topic; else raise InvalidTopicError."""
    name = check_topic_name(topic, MAX_NEW_NAME)
    if not may_be_new(name):
        raise InvalidTopicError(f"topic {name!r} can't be created: {too_long_text(name)}")
    return name


class NewTopicNames:
    """The names of topics that may be created in a cluster, one after the other.

    `existing`: the names of the cluster's topics.
    """

    def __init__(self, existing: Iterable[str] = ()) -> None:
        self._names = set(existing)
        self._by_metric = {_metric_name(name): name for name in sorted(self._names)}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add(self, topic: object) -> str:
        """Return `topic` if it exists or may be created; else raise InvalidTopicError."""
        if topic in self._names:
            return check_topic_name(topic)
        name = check_new_topic_name(topic)
        other = self._by_metric.setdefault(_metric_name(name), name)
        # In the names of metrics brokers write "_" for ".", so Kafka's tools from 0.9 on refuse a
        # name that differs from another one in these characters only. Old brokers don't check it.
        if other != name:
            raise InvalidTopicError(
                f"topic {name!r} can't be created: it collides with {other!r}. Names of metrics "
                "have '_' in place of '.', so both would have the same metrics. Choose a name that "
                "differs in another character"
            )
        self._names.add(name)
        return name


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")


def too_long_text(topic: str) -> str:
    return (
        f"its name has {len(topic)} characters: expected at most {MAX_NEW_NAME} for a new topic. "
        "With more, brokers up to 0.9 can't open the folders of its partitions after a restart"
    )


def check_topic_names(topics: Iterable[object]) -> list[str]:
    """Return the topics; raise InvalidTopicError for an invalid name, or a plain string."""
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise InvalidTopicError(f"topics={shorten(topics)}: expected a list of topic names")
    return [check_topic_name(topic) for topic in topics]
