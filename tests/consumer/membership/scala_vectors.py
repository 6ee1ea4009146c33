"""Generate groups in ZooKeeper, and let the classes of Kafka 0.8.2.2 assign their partitions.

`vectors/scala.json` has the groups with the assignments that `vectors/Vectors.java` computed. To
write it again:

    python -m tests.consumer.membership.scala_vectors
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from tests.brokers import RealCluster

FOLDER = Path(__file__).parent / "vectors"
FILE = FOLDER / "scala.json"
VERSION = "0.8.2.2"

Case = dict[str, Any]

MEMBERS = (
    *("g_host-9-1405951234000-0a", "g_host-10-1405951234000-0a", "g_Host-9-1405951234000-0a"),
    *("g_host-9-1405951234000-0A", "g_host-9-140595123400-f", "g_host.9-1405951234000-ff"),
    *("c", "c-1", "c-10", "c-2", "C-1", "c_1", "c.1", "~c", "0"),
)
"""Ids that numeric or case-insensitive orders would sort differently, and ids that are prefixes of
others."""

TOPICS = ("a", "b", "Orders", "orders", "orders-10", "orders-9", "x.y_z", "a-long-name-of-a-topic")


def cases() -> dict[str, Case]:
    """Return the groups: "members" with their registrations, and partition numbers of "topics"."""
    found = {
        "numbers-as-text": _case({"host-10": {"t": 1}, "host-9": {"t": 1}}, {"t": 3}),
        "upper-and-lower": _case({"a": {"t": 1}, "B": {"t": 1}, "_": {"t": 1}}, {"t": 5}),
        "eleven-threads": _case({"m": {"t": 11}, "n": {"t": 1}}, {"t": 17}),
        "begins-alike": _case({"c": {"t": 3}, "c-1": {"t": 3}, "c-10": {"t": 1}}, {"t": 17}),
        "more-threads-than-partitions": _case({"a": {"t": 3}, "b": {"t": 3}}, {"t": 2}),
        "no-partitions": _case({"a": {"t": 1, "u": 1}, "b": {"t": 1, "u": 1}}, {"t": 0, "u": 1}),
        "no-such-topic": _case({"a": {"t": 1, "u": 1}, "b": {"t": 1, "u": 1}}, {"u": 3}),
        "different-threads": _case({"a": {"t": 2}, "b": {"t": 1}}, {"t": 4}),
        "different-topics": _case({"a": {"t": 1}, "b": {"u": 1}}, {"t": 4, "u": 4}),
        "hashes-below-zero": _case(
            {"a": {"payments-eu": 1, "zzzzzzzz": 1}, "b": {"payments-eu": 1, "zzzzzzzz": 1}},
            {"payments-eu": 13, "zzzzzzzz": 12},
        ),
    }
    # Among partitions of equal hash Scala's order follows from that in which a member wrote its
    # Scala orders partitions of equal hash by the order of topics in a member's registration. Its
    # own members disagree if their orders differ, so here all are sorted.
    for names in (("Aa", "BB"), ("AaAa", "AaBB", "BBAa", "x")):
        found[f"equal-hashes-{len(names)}"] = _case(
            {member: dict.fromkeys(names, 1) for member in ("a", "b", "c")},
            dict.fromkeys(names, 5),
        )
    for pattern in ("white_list", "black_list"):
        case = _case({"a": {"orders.*": 2}, "b": {"a": 1, "orders": 1}}, {"a": 3, "orders": 5})
        case["members"]["a"]["pattern"] = pattern
        found[pattern] = case
    # Registrations of other programs: an unknown pattern means static, and of several expressions
    # the first one of Scala's map counts, which isn't the first one written from five on.
    for pattern in ("", "Static", "regex"):
        case = _case({"a": {"t": 2, "u": 1}, "b": {"t": 1}}, {"t": 5, "u": 2})
        case["members"]["a"]["pattern"] = pattern
        found[f"pattern-{pattern or 'empty'}"] = case
    several = ("orders.*", "a", "b", "x.*", "Orders", "a.*", "none")
    for count in (2, 4, 5, 7):
        for pattern in ("white_list", "black_list"):
            for turn in range(3):
                expressions = (*several[turn:count], *several[:turn])
                case = _case(
                    {"m": dict.fromkeys(expressions, 2), "n": {"orders": 1}},
                    dict.fromkeys(TOPICS, 3),
                )
                case["members"]["m"]["pattern"] = pattern
                found[f"{pattern}-{count}-{turn}"] = case
    for pattern in ("white_list", "black_list"):
        case = _case({"a": {}, "b": {"t": 1}}, {"t": 2})
        case["members"]["a"]["pattern"] = pattern
        found[f"{pattern}-of-nothing"] = case
    chance = random.Random(822)
    for number in range(36):
        found[f"random-{number}"] = _random(chance, alike=number % 2 == 0)
    return found


def _random(chance: random.Random, *, alike: bool) -> Case:
    topics = {topic: chance.randint(0, 17) for topic in chance.sample(TOPICS, chance.randint(1, 4))}

    def subscription() -> dict[str, int]:
        chosen = topics if alike else chance.sample(list(topics), chance.randint(1, len(topics)))
        threads = chance.randint(1, 3)
        return {topic: threads if alike else chance.randint(1, 3) for topic in chosen}

    members = chance.sample(MEMBERS, chance.randint(1, 5))
    return _case({member: subscription() for member in members}, topics)


def _case(members: dict[str, dict[str, int]], topics: dict[str, int]) -> Case:
    return {
        "members": {
            member: {"version": 1, "subscription": subscription, "pattern": "static"}
            for member, subscription in members.items()
        },
        "topics": {topic: list(range(count)) for topic, count in topics.items()},
    }


def run_scala(cluster: RealCluster, cases: dict[str, Case]) -> dict[str, Case]:
    """Return the cases with the assignments "range" and "roundrobin" of the classes in the jars."""
    root = f"/vectors-{random.SystemRandom().getrandbits(32)}"
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        for name, case in cases.items():
            for member, written in case["members"].items():
                _write(client, f"{root}/{name}/consumers/g/ids/{member}", written)
            client.ensure_path(f"{root}/{name}/brokers/topics")
            for topic, numbers in case["topics"].items():
                replicas = {"version": 1, "partitions": {str(number): [0] for number in numbers}}
                _write(client, f"{root}/{name}/brokers/topics/{topic}", replicas)
        ran = cluster.run_java(
            str(FOLDER / "Vectors.java"), cluster.zookeeper_connect + root, *cases, timeout=120
        )
    finally:
        client.stop()
        client.close()
    assert ran.returncode == 0, ran.stderr
    assignments = json.loads(ran.stdout)
    return {name: {**case, **assignments[name]} for name, case in cases.items()}


def _write(client: KazooClient, path: str, written: object) -> None:
    client.create(path, json.dumps(written).encode(), makepath=True)


def main() -> None:
    """Write the file."""
    with RealCluster(VERSION, 1) as cluster:
        vectors = run_scala(cluster, cases())
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(vectors[name])}" for name in vectors)
    FILE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
