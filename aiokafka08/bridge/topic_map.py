"""`TopicMap`: which topics of the source are copied, and their names at the target. Pure.

Invariants:
- The map depends on a topic's name alone, so every part of the bridge (copy, groups, verification)
  sees the same pairs.
- Two topics of the source never share a topic of the target (`pairs`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from aiokafka08._core.names import NamePatterns, compile_pattern
from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._core.topic_names import check_new_topic_name
from aiokafka08.bridge.wording import nothing_matches
from aiokafka08.errors import IllegalArgumentError, InvalidTopicError

_OWN_PREFIX: Final = "aiokafka08-bridge."


@dataclass(frozen=True, slots=True)
class RenameRule:
    """Rename topics whose whole name matches `pattern`; `to` is the new name, such as `old.\\1`."""

    pattern: re.Pattern[str]
    to: str


@dataclass(frozen=True, slots=True)
class TopicMap:
    """The topics to copy, and their names at the target.

    A pattern is a regular expression that must match the whole name, so a plain name means itself.
    Topics of Kafka itself and of a bridge are never copied.

    Args:
        include: patterns; a topic is copied if one of them matches.
        exclude: patterns; a topic isn't copied if one of them matches.
        rename: the first rule that matches names the topic; without one it keeps its name.
        append: patterns of topics whose copies may have messages that the bridge hasn't written.
    """

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()
    rename: tuple[RenameRule, ...] = ()
    append: tuple[re.Pattern[str], ...] = ()

    def includes(self, topic: str) -> bool:
        """Return whether a topic of the source is copied."""
        if _is_internal(topic):
            return False
        return NamePatterns(self.include, self.exclude).includes(topic)

    def appends(self, topic: str) -> bool:
        """Return whether a topic's copy may have messages of another writer before its own."""
        return any(pattern.fullmatch(topic) for pattern in self.append)

    def mismatch(self, topics: Iterable[str]) -> str | None:
        """Return which patterns match no topic of the source, or that all topics are excluded.

        In the first case the text lists the topics that were found. None if nothing is wrong.
        """
        names = [topic for topic in topics if not _is_internal(topic)]
        if patterns := unmatched(self.include, names):
            return nothing_matches("topic", patterns, names)
        if not any(map(self.includes, names)):
            return "topics.exclude leaves no topic of the source"
        return None

    def target_name(self, topic: str) -> str:
        """Return the name at the target of a topic that is copied.

        Raises:
            IllegalArgumentError: a rule makes a name that Kafka refuses.
        """
        for rule in self.rename:
            if match := rule.pattern.fullmatch(topic):
                name = match.expand(rule.to)
                try:
                    return check_new_topic_name(name)
                except InvalidTopicError as error:
                    raise IllegalArgumentError(
                        f"topics.rename or --rename: topic {topic!r} would get the name {name!r}: "
                        f"{error.text}"
                    ) from None
        return topic

    def pairs(self, topics: Iterable[str]) -> dict[str, str]:
        """Return source name → target name of the topics that are copied, sorted.

        Raises:
            IllegalArgumentError: two topics would get the same name, or one an illegal name.
        """
        names: dict[str, str] = {}
        sources: dict[str, str] = {}
        for topic in sorted(filter(self.includes, topics)):
            name = self.target_name(topic)
            if (other := sources.setdefault(name, topic)) != topic:
                raise IllegalArgumentError(
                    f"topics.rename or --rename: topics {other!r} and {topic!r} would both become "
                    f"{name!r}; expected a name of its own for each"
                )
            names[topic] = name
        return names


def unmatched(patterns: Iterable[re.Pattern[str]], names: Collection[str]) -> list[str]:
    """Return the patterns that match none of the names as a whole."""
    return [pattern.pattern for pattern in patterns if not any(map(pattern.fullmatch, names))]


def _is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS or topic.startswith(_OWN_PREFIX)


def rename_rule(option: str, pattern: str, to: str) -> RenameRule:
    """Return a checked rule.

    Raises:
        IllegalArgumentError: the pattern isn't a regular expression, or `to` names a group that the
            pattern doesn't have.
    """
    rule = RenameRule(compile_pattern(option, pattern), to)
    try:
        # The empty alternative always matches, so `to` is expanded and checked without a topic's
        # name.
        re.compile(f"(?:{pattern})|").sub(to, "")
    except (re.error, IndexError) as error:
        raise IllegalArgumentError(
            f"{option}: to={to!r}: {error}; expected a name in which \\1 is what the first group "
            f"of {pattern!r} matched"
        ) from None
    return rule
