"""Reword errors of the admin client for people who don't call it. Pure."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = {
    "total_count": "partitions",
    "num_partitions": "partitions",
    "replication_factor": "replicas",
    "replica_assignments": "assignments",
    "topic_configs": "configs",
}
# A name that a user chose is in quotes, and doesn't match.
_ARGUMENT: Final = re.compile(rf"(?<![\w'\"./-])({'|'.join(_WORDS)})(?![\w'\"/-])")


def in_topic_words(text: str) -> str:
    """Return an error with words in place of the arguments of `NewTopic` and `NewPartitions`."""
    return _ARGUMENT.sub(lambda found: _WORDS[found[1]], text)
