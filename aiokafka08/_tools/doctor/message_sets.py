"""Rules about the messages in the logs: their formats, and the size of their sets. Pure.

To find an offset, a broker searches the log message by message from the last index entry. Index
entries exist only where a produced set begins, so large uncompressed sets make the search slow
(docs/brokers.md 7.15).

Invariant: the duration of the search is measured, not guessed. Nothing in a response shows where
sets begin, but a fetch of a few bytes takes little more than the search and a round trip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import place
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08._wording import some_of
from aiokafka08.structs import TopicPartition

# A search that takes less doesn't matter.
LONG_SEARCH_S: Final = 0.002

# With the sets that producers send by default, the search takes a smaller share of a fetch, even on
# a slow broker (docs/performance.md), and readers don't suffer from it.
LARGE_SHARE: Final = 2 / 3


@dataclass(frozen=True, slots=True)
class SearchCost:
    """Measured times of fetches from one partition.

    Each is the shortest of several; `search_s` and `fetch_s` are the medians over some offsets.

    Attributes:
        empty_s: A fetch without partitions: the network and the client.
        search_s: A fetch of a few bytes.
        fetch_s: A fetch of 1 MiB at the same offsets.
    """

    empty_s: float
    search_s: float
    fetch_s: float

    @property
    def share(self) -> float:
        """The search's share of a whole fetch, from 0 to 1."""
        whole_s = self.fetch_s - self.empty_s
        return min((self.search_s - self.empty_s) / whole_s, 1.0) if whole_s > 0 else 0.0

    @property
    def is_mostly_search(self) -> bool:
        """Whether the search is long, and takes at least `LARGE_SHARE` of the fetch."""
        return self.search_s - self.empty_s >= LONG_SEARCH_S and self.share >= LARGE_SHARE


def shows_formats(release: str | None) -> bool:
    """Return whether brokers of a release send messages in the format in which they store them."""
    # Brokers from 0.11 on convert format 2 to 1 for this client.
    return release is not None and release.startswith(("0.8", "0.9", "0.10"))


def formats(
    topic_formats: Mapping[str, Collection[int]],
    cluster: ClusterSample,
    releases: Mapping[int, str],
) -> Iterator[Finding]:
    """List the message formats in use, and find topics with several or with a foreign one.

    Args:
        topic_formats: per topic the formats of the sampled messages.
        cluster: the cluster.
        releases: the brokers' releases, by node id.
    """
    topics: dict[str, set[str]] = {}
    for name, used in topic_formats.items():
        for number in used:
            topics.setdefault(f"format {number}", set()).add(name)
    for tp, partition in cluster.partitions():
        release = None if partition.leader is None else releases.get(partition.leader)
        if partition.start != partition.end and release is not None and not shows_formats(release):
            topics.setdefault("unknown", set()).add(tp.topic)
    if topics:
        shown = {key: some_of(sorted(names)) for key, names in sorted(topics.items())}
        listed = "; ".join(f"{key}: {names}" for key, names in shown.items())
        yield Finding(
            FindingCode.MESSAGE_FORMATS,
            "cluster",
            f"{listed}. (Of the first and the last message of each partition. Brokers from 0.11 on "
            "convert messages for this client, so theirs is unknown)",
            "Nothing, if it is what you expect",
        )
    is_old = bool(releases) and all(
        release.startswith(("0.8", "0.9")) for release in releases.values()
    )
    for name, used in sorted(topic_formats.items()):
        if is_old and max(used, default=0) > 0:
            yield Finding(
                FindingCode.FOREIGN_FORMAT,
                f"topic {name!r}",
                f"it has messages of format {max(used)}, which brokers below 0.10 don't know, and "
                "send unchanged to consumers. Consumers of 0.8 and 0.9 can't read them, or read "
                "them wrongly",
                "Find the producer (a client of 0.10 or later that was told a wrong broker "
                "version), and have it detect the version",
            )
        elif len(set(used)) > 1:
            yield Finding(
                FindingCode.MIXED_FORMATS,
                f"topic {name!r}",
                "it has messages of formats 0 and 1: a search by time skips those of format 0, and "
                "may find nothing; the broker converts messages for older clients, which costs it "
                "CPU",
                "After an upgrade: wait until retention has deleted the messages of format 0. Else "
                "set message.format.version of the topic to the version of its oldest consumers",
            )


def large_sets(costs: Mapping[TopicPartition, SearchCost]) -> Iterator[Finding]:
    """Find topics whose fetches are mostly search."""
    for tp, cost in sorted(costs.items()):
        if cost.is_mostly_search:
            yield Finding(
                FindingCode.LARGE_SETS,
                place(tp.topic, [tp.partition]),
                f"the broker searches for {(cost.search_s - cost.empty_s) * 1000:.1f} ms before it "
                f"sends a byte, {cost.share:.0%} of a fetch of 1 MiB: its producers send large "
                "uncompressed sets, which have one index entry each",
                "Let producers compress (a compressed set is one message to the search), or send "
                "sets of 16 to 64 KiB (batch.size, batch.num.messages). Until then let consumers "
                "fetch more at once (fetch.message.max.bytes, max.partition.fetch.bytes)",
            )
