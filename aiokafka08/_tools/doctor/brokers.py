"""Rules about the brokers themselves: whether they respond, and of which releases they are. Pure.

Invariant: the release "0.8" stands for any of 0.8.0 to 0.8.2, because requests that detect the
exact release leave errors in the log of an 0.8.0 broker (docs/brokers.md 2.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import node_list
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample


def unreachable(cluster: ClusterSample) -> Iterator[Finding]:
    """Find brokers that the cluster names, and that don't respond."""
    for broker in cluster.brokers.values():
        if broker.error is not None:
            yield Finding(
                FindingCode.UNREACHABLE_BROKER,
                f"broker {broker.node_id} at {broker.address}",
                f"the cluster names it, but it doesn't respond: {broker.error}. The partitions "
                "that it leads can't be written or read from here",
                "See whether the broker runs, and whether its advertised address can be reached. "
                "After a crash other brokers take over within zookeeper.session.timeout.ms (6 s "
                "by default): look again",
                frozenset({broker.node_id}),
            )


def mixed_lines(releases: Mapping[int, str]) -> Iterator[Finding]:
    """Find that the brokers are of several releases; `releases` is by node id."""
    by_release: dict[str, list[int]] = {}
    for node_id, release in releases.items():
        by_release.setdefault(release, []).append(node_id)
    if any(release.startswith("0.8.") for release in by_release):
        by_release.pop(str(BrokerLine.V0_8), None)  # may be one of the others
    if len(by_release) > 1:
        listed = "; ".join(
            f"{release}: {node_list(node_ids)}" for release, node_ids in sorted(by_release.items())
        )
        yield Finding(
            FindingCode.MIXED_LINES,
            "cluster",
            f"brokers of several releases: {listed}. Clients that detect the version once send "
            "requests that the older brokers don't know, and messages are converted",
            "Finish the upgrade. Until then keep inter.broker.protocol.version and "
            "log.message.format.version at the oldest release",
        )


def releases_of(cluster: ClusterSample) -> dict[int, str]:
    """Return the brokers' releases by node id; those that didn't respond are left out."""
    # `LogSampler.tell_0_8_apart` refines "0.8" by a fetch.
    return {
        node_id: str(BrokerLine.V0_8)
        if broker.version.line < BrokerLine.V0_9
        else broker.version.release
        for node_id, broker in cluster.brokers.items()
        if broker.version is not None
    }
