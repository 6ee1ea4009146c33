"""What names topics have, and which ones may be created. Pure.

Invariant: all that create topics use `check_new_topic_name` or `NewTopicNames`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from aiokafka08.errors import InvalidTopicError

MAX_NEW_NAME: Final = 249
"""The length of the longest name of a new topic. Brokers up to 0.9 create longer ones, up to 255.
If the name of a partition's folder has more than 255 characters then, the broker leads nothing
after its next restart (docs/brokers.md 4.16). Newer brokers refuse such names."""

_MAX_NAME: Final = 255
_TOPIC_NAME: Final = rf"[a-zA-Z0-9._-]{{1,{_MAX_NAME}}}"


def is_topic_name(name: str) -> bool:
    """Return True if a topic can have this name."""
    return re.fullmatch(_TOPIC_NAME, name) is not None and name not in (".", "..")


def check_topic_name(topic: object, longest: int = _MAX_NAME) -> str:
    """Return `topic` if it is a valid topic name.

    Checked before the name is sent: one invalid name empties the whole response of an 0.8 broker.

    Raises:
        InvalidTopicError: it isn't 1 to 255 letters, digits, ".", "_", "-", or it is "." or "..".
    """
    if not isinstance(topic, str) or not is_topic_name(topic):
        raise InvalidTopicError(
            f"invalid topic name {shortened(topic)}: expected 1 to {longest} characters of "
            f"a-z A-Z 0-9 "
            '. _ -, but not "." or ".."'
        )
    return topic


def may_be_new(topic: str) -> bool:
    """Return whether a valid name is short enough for a topic that doesn't exist yet."""
    return len(topic) <= MAX_NEW_NAME


def check_new_topic_name(topic: object) -> str:
    """Return `topic` if a topic of this name may be created in a cluster without other topics.

    The rule of all that create topics; `NewTopicNames` adds the other topics. A topic that a first
    request would create is checked by `metadata_fetcher`.

    Raises:
        InvalidTopicError: it isn't a valid name, or has more than `MAX_NEW_NAME` characters.
    """
    name = check_topic_name(topic, MAX_NEW_NAME)
    if not may_be_new(name):
        raise InvalidTopicError(f"topic {name!r} can't be created: {too_long_text(name)}")
    return name


class NewTopicNames:
    """The names of topics that may be created in a cluster, one after the other.

    In the names of metrics brokers write "_" for ".", so Kafka's tools from 0.9 on refuse a name
    that differs from another one in these characters only. Old brokers don't check it.

    Args:
        existing: the names of the cluster's topics.
    """

    def __init__(self, existing: Iterable[str] = ()) -> None:
        self._names = set(existing)
        self._by_metric = {_metric_name(name): name for name in sorted(self._names)}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add(self, topic: object) -> str:
        """Return `topic` if it exists, or may be created; later names are compared with it too.

        Raises:
            InvalidTopicError: as `check_new_topic_name`, or the name collides with another one.
        """
        if topic in self._names:
            return check_topic_name(topic)
        name = check_new_topic_name(topic)
        other = self._by_metric.setdefault(_metric_name(name), name)
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


def missing_topics_text(topics: Collection[str]) -> str:
    """Return that brokers don't list these topics.

    They leave out one that the principal may not describe; some answer as if it didn't exist
    (docs/brokers.md 14.9).
    """
    names = ", ".join(map(repr, topics))
    if len(topics) == 1:
        return f"topic {names} doesn't exist, or this principal may not describe it"
    return f"topics {names} don't exist, or this principal may not describe them"


def too_long_text(topic: str) -> str:
    """Return why a topic of this name can't be created."""
    return (
        f"its name has {len(topic)} characters: expected at most {MAX_NEW_NAME} for a new topic. "
        "With more, brokers up to 0.9 can't open the folders of its partitions after a restart"
    )


def shortened(value: object) -> str:
    """Return what an error shows of a wrong value."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 300 else f"{text[:297]}…"


def check_topic_names(topics: Iterable[object]) -> list[str]:
    """Return the topics if all names are valid. A single string is an error: it isn't a list."""
    if isinstance(topics, str):
        raise InvalidTopicError(
            f"topics={shortened(topics)}: expected a list of topics, not a string"
        )
    return [check_topic_name(topic) for topic in topics]
