"""Make a case from a seed: valid requests mostly, and wrong ones of many kinds among them.

Pure: the same line, number of brokers and seed give the same case. What two runs of one broker may
answer differently isn't generated: times between a second ago and an hour ahead, limits of bytes
near the size of a wrapper (each implementation compresses to another size), and in three brokers
reads right behind a produce that didn't wait for the followers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.tools.differential.cases import Bytes, Case, Close, HalfClose, Send, Step
from tests.tools.differential.sets import MessageSet, Msg, Repeat, Wrap
from tests.tools.differential.wire import Counted, Request

T = TypeVar("T")

TIME_2020_MS = 1577836800000


class Generator:
    """Random requests for one line.

    Args:
        apis: the line's APIs, each with its highest version.
        topics: the symbols of the kinds of topics that exist.
        brokers: the number of brokers.
        foreign_replicas: whether a fetch may have a replica_id of no broker and no client. On 0.8.0
            that is a follower, and holds back the high watermark.
    """

    def __init__(
        self,
        seed: str,
        apis: dict[str, int],
        topics: Sequence[str],
        brokers: int,
        *,
        foreign_replicas: bool = True,
    ) -> None:
        self._random = random.Random(seed)
        self._apis = apis
        self._topics = list(topics)
        self._brokers = brokers
        self._replica_ids = (-2, -3, 9) if foreign_replicas else (-2,)
        self._has_groups = "JoinGroup" in apis
        self._creates = "CreateTopics" in apis
        self._members: list[str] = []
        self._new_topics = ["$n0", "$n1", "$n2", "$n3"]
        """Names for CreateTopics."""

    def case(self) -> Case:
        """Return a case: single requests, or the life of a group."""
        if self._brokers > 1:
            self._topics = ["$r0", "$r0", "$t0", *(["$r1"] if "$r1" in self._topics else [])]
        else:
            others = [one for one in self._topics if one not in ("$t0", "$t1")]
            self._topics = ["$t0", "$t0", "$t1"]
            if others and self._chance(0.5):
                self._topics += [self._pick(others)] * 2
        steps: list[Step] = []
        in_groups = self._has_groups and self._chance(0.3)
        for _ in range(self._random.randint(3, 14)):
            steps += self._group_steps() if in_groups and self._chance(0.8) else self._steps()
        return Case(self._brokers, (*steps, *self._final()))

    # --- random choices ---------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def _rarely(self, usual: T, *others: Any, probability: float = 0.06) -> Any:
        return self._pick(others) if self._chance(probability) else usual

    def _topic(self) -> Any:
        return self._rarely(self._pick(self._topics), "$x0", "", None, "a b", probability=0.05)

    def _known_topic(self) -> str:
        return self._pick(self._topics)

    def _partition(self) -> int:
        return self._rarely(self._pick((0, 0, 0, 1)), 2, 7, -1, probability=0.08)

    def _group(self) -> Any:
        return self._rarely("$g0", "$g1", "", None, probability=0.12)

    def _connection(self) -> str:
        name = self._pick("aab")
        if self._brokers > 1:
            name += f"@{self._pick(self._nodes())}"
        return name

    def _nodes(self) -> list[str]:
        return ["0", "0", "1", "2", *(["g0", "!g0"] if "GroupCoordinator" in self._apis else [])]

    def _array(self, make: Callable[[], Any], most: int = 2) -> Any:
        count = self._rarely(self._random.randint(1, most), 0, probability=0.05)
        items = [make() for _ in range(count)]
        if self._chance(0.02):
            return Counted(self._pick((-1, -5, 2**31 - 1, len(items) + 1)), tuple(items))
        return items

    def _by_topic(self, partition: Callable[[], Any]) -> Any:
        return self._array(lambda: (self._topic(), self._array(partition)))

    # --- steps ------------------------------------------------------------------------------------

    def _steps(self) -> list[Step]:
        connection = self._connection()
        kind = self._random.random()
        if kind < 0.84:
            return [Send(connection, (self._request(),), split=self._rarely(0, 1, 4, 9, 30))]
        if kind < 0.93:
            requests = tuple(self._request() for _ in range(self._random.randint(2, 4)))
            return [Send(connection, requests)]
        if kind < 0.95:
            reads = (self._fetch, self._list_offsets, self._offset_fetch, self._metadata)
            requests = tuple(self._pick(reads)() for _ in range(self._random.randint(0, 2)))
            return [HalfClose(connection, requests)]
        if kind < 0.97:
            return self._broken_frame(connection)
        if kind < 0.985:
            return self._sleeping_fetch(connection)
        return [Close(connection)]

    def _broken_frame(self, connection: str) -> list[Step]:
        data, is_open = self._pick(
            (
                (b"\0\0\0\0", False),
                (b"\0\0\0\3abc", False),
                (b"\0\0\0\6\0\3\0\0\0\7", False),
                (b"\xff\xff\xff\xff", False),
                (b"\x7f\xff\xff\xff", False),
                (b"GET / HTTP/1.1\r\n\r\n", False),
                (b"\0\0\0\x20\0\3\0\0", True),
                (b"\0\0", True),
            )
        )
        return [Bytes(connection, data, is_open), HalfClose(connection)]

    def _sleeping_fetch(self, connection: str) -> list[Step]:
        """Return a fetch at the end of an empty partition, and what may wake it."""
        topic, partition = self._known_topic(), self._pick((0, 1))
        max_bytes = self._pick((0, 10, 100, 1 << 20))
        min_bytes = self._pick((1, 1, 60, 1 << 20))
        asked = (topic, [(partition, 0, max_bytes)])
        fetch = Request("Fetch", 0, (-1, 8_000, min_bytes, [asked]))
        produce = self._produce_request(topic)
        return [
            Send("w" + connection[1:], (fetch,), waits=True),
            *(Send(connection, (produce,)) for _ in range(self._pick((1, 2)))),
        ]

    def _request(self) -> Request:
        if self._chance(0.02):
            return self._unknown_request()
        request = self._pick(
            (
                *(self._produce,) * 6,
                *(self._fetch,) * 4,
                *(self._list_offsets,) * 2,
                self._metadata,
                *(self._commit,) * 2,
                *(self._offset_fetch,) * 2,
                self._coordinator,
                self._of_groups,
                self._api_versions,
                *((self._create_topics, self._delete_topics) if self._creates else ()),
            )
        )()
        return self._spoilt(request)

    def _spoilt(self, request: Request) -> Request:
        """Return the request, sometimes cut or with something behind it."""
        options: dict[str, Any] = {}
        if self._chance(0.04):
            options["client_id"] = self._pick(("", None))
        if self._chance(0.015):
            options["cut"] = self._random.randint(1, 12)
        if self._chance(0.01):
            options["extra"] = self._pick((b"\0", b"\0" * 9, b"more"))
        if not options:
            return request
        return Request(
            request.api, request.version, request.body, layout=request.layout, joins=request.joins,
            **options,
        )  # fmt: skip

    def _version(self, api: str, lowest: int = 0) -> int:
        """Return a version of the API: one that the line knows, rarely another one."""
        highest = self._apis.get(api, 0)
        return self._rarely(self._random.randint(lowest, max(lowest, highest)), highest + 1, 9,
                            probability=0.02)  # fmt: skip

    def _unknown_request(self) -> Request:
        return Request(self._pick((99, -1, 1000, 31)), self._pick((0, 1)))

    # --- produce ----------------------------------------------------------------------------------

    def _produce(self) -> Request:
        if self._chance(0.6):
            return self._produce_request(self._known_topic())
        acks = self._pick((1, 1, -1, -1, 0, 2, 3, -2, 100))
        if self._brokers > 1:
            acks = self._pick((-1, -1, -1, -1, 2, 3, -2, 5))
        timeout_ms = 5000 if acks < 2 else 30 if self._brokers == 1 or acks > 3 else 400
        body = (acks, timeout_ms, self._by_topic(lambda: (self._partition(), self._set())))
        return Request("Produce", self._version("Produce"), body)

    def _produce_request(self, topic: str) -> Request:
        acks = -1 if self._brokers > 1 else self._pick((1, 1, -1))
        sets = [(self._pick((0, 0, 1)), self._set())]
        return Request("Produce", self._version("Produce"), (acks, 5000, [(topic, sets)]))

    def _magic(self) -> int:
        if self._apis.get("Produce", 0) >= 2:
            return self._rarely(self._pick((0, 1, 1)), 2, 5, -1, probability=0.02)
        return self._rarely(0, 1, 5, probability=0.04)

    def _set(self) -> Any:
        if self._chance(0.02):
            return self._pick((MessageSet(), MessageSet(tail=b"abc"), None, b"\0" * 30))
        magic = self._magic()
        if self._chance(0.3):
            messages: tuple[Any, ...] = tuple(
                self._wrapper(magic) for _ in range(self._rarely(1, 2))
            )
            if self._chance(0.15):
                messages = self._pick(
                    ((self._message(magic), *messages), (*messages, self._message(magic)))
                )
        else:
            messages = tuple(
                self._message(self._rarely(magic, 0, 1)) for _ in range(self._random.randint(1, 3))
            )
        if self._chance(0.03):
            return MessageSet(messages, cut=self._random.randint(1, 20))
        if self._chance(0.02):
            return MessageSet(messages, tail=self._pick((b"stray", b"\0" * 12, b"\0" * 40)))
        return MessageSet(messages)

    def _message(self, magic: int) -> Msg:
        options: dict[str, Any] = {}
        if self._chance(0.04):
            options["crc"] = 1
        if self._chance(0.03):
            options["attributes"] = self._pick((0x08, 0x10, 0x40, 0x80))
        if self._chance(0.015):
            options[self._pick(("key_size", "value_size"))] = self._pick((-2, 50, 2**31 - 1))
        if self._chance(0.015):
            options["size"] = self._pick((0, 5, 13, -1, 2**31 - 1, 3000))
        if self._chance(0.2):
            options["offset"] = self._pick((1, 77, -3))
        if magic == 1:
            options["timestamp"] = self._pick(
                (-1, 0, 1000, TIME_2020_MS, TIME_2020_MS + 5, TIME_2020_MS, TIME_2020_MS)
            )
        return Msg(self._value(), self._pick((None, None, b"", b"k", b"key")), magic, **options)

    def _value(self) -> Any:
        usual = self._pick((b"x", b"value", b"", Repeat("v", 150)))
        return self._rarely(usual, None, Repeat("w", 2000), probability=0.05)

    def _wrapper(self, magic: int, depth: int = 0) -> Wrap:
        codec = self._pick(("gzip", "gzip", "xerial", "xerial", "snappy", "lz4", "legacy-lz4"))
        codec = self._rarely(codec, "codec-4", "codec-7", probability=0.03)
        inner: tuple[Any, ...]
        if self._chance(0.04):
            inner = ()
        elif self._chance(0.04) and depth < 3:
            inner = (self._wrapper(magic, depth + 1),)
        else:
            count = self._random.randint(1, 3)
            inner = tuple(self._inner_message(magic, at) for at in range(count))
        options: dict[str, Any] = {}
        if magic == 1:
            options["timestamp"] = self._pick((-1, TIME_2020_MS, TIME_2020_MS + 9, 5))
        if self._chance(0.05):
            options["key"] = b"wrapper"
        if self._chance(0.03):
            options["attributes"] = self._pick((0x08, 0x20, 0x80))
        if self._chance(0.03):
            options["payload"] = self._pick((None, b"garbage", Repeat("z", 90)))
        if self._chance(0.03):
            options["cut"] = self._random.randint(1, 9)
        if self._chance(0.03):
            options["crc"] = 1
        options["offset"] = self._pick((0, len(inner) - 1, 50))
        return Wrap(codec, inner, magic=magic, **options)

    def _inner_message(self, magic: int, at: int) -> Msg:
        message = self._message(self._rarely(magic, 0, 1, probability=0.05))
        offset = self._rarely(at, 0, 7, probability=0.08)
        return Msg(
            message.value, message.key, message.magic, message.attributes, message.timestamp,
            offset, message.crc if self._chance(0.3) else 0, message.key_size, message.value_size,
            message.size,
        )  # fmt: skip

    # --- the other APIs ---------------------------------------------------------------------------

    def _fetch(self) -> Request:
        def partition() -> tuple[int, int, int]:
            offset = self._rarely(self._pick((0, 0, 0, 1, 2, 3)), -1, 9, 10**12)
            max_bytes = self._rarely(1 << 20, 0, 1, 11, 20, 45, -1, 2**31 - 1, probability=0.15)
            return self._partition(), offset, max_bytes

        replica_id = self._rarely(-1, *self._replica_ids, probability=0.08)
        max_wait_ms = self._pick((0, 0, 0, 20, -1))
        min_bytes = self._rarely(self._pick((0, 1)), 1 << 20, -5, probability=0.1)
        version, topics = self._version("Fetch"), self._by_topic(partition)
        # The layout of versions that aren't known is that of the highest one here.
        limit: tuple[int, ...] = ()
        if version > 2:
            limit = (self._rarely(1 << 20, 0, 1, 30, 100, 300, -1, 2**31 - 1, probability=0.6),)
        body = (replica_id, max_wait_ms, min_bytes, *limit, topics)
        return Request("Fetch", version, body)

    def _list_offsets(self) -> Request:
        version = self._version("ListOffsets")

        def partition() -> tuple[int, ...]:
            time_ms = self._pick((-1, -1, -2, -2, 0, 1000, TIME_2020_MS, TIME_2020_MS + 1))
            time_ms = self._rarely(time_ms, -3, -100, 2**62)
            count = self._rarely(self._pick((1, 1, 10)), 0, -1, 10**6)
            return (self._partition(), time_ms, *((count,) if version == 0 or version > 1 else ()))

        replica_id = self._rarely(-1, -2, 7)
        # Versions above 1 are read in the layout of version 0 where any version is.
        layout = 0 if version > 1 else version
        return Request(
            "ListOffsets", version, (replica_id, self._by_topic(partition)), layout=layout
        )

    def _metadata(self) -> Request:
        def name() -> Any:
            if self._brokers > 1:
                return self._known_topic()
            return self._rarely(self._topic(), "..", Repeat("n", 300), "a/b", probability=0.04)

        topics = self._array(name, 3)
        # A real controller chooses the leaders of topics that CreateTopics has made by chance.
        with_leaders_by_chance = self._creates and self._brokers > 1
        if with_leaders_by_chance and isinstance(topics, Counted):
            topics = list(topics.items)
        elif self._chance(0.04) and not with_leaders_by_chance:
            topics = self._pick(([], None))
        return Request("Metadata", self._version("Metadata"), (topics,))

    def _commit(self) -> Request:
        version = self._version("OffsetCommit")
        layout = min(version, 2)

        def partition() -> tuple[Any, ...]:
            metadata = self._rarely(
                self._pick(("", "meta")), None, Repeat("m", 1024), Repeat("m", 1025),
                Repeat("m", 4097), probability=0.15,
            )  # fmt: skip
            offset = self._pick((0, 3, 42, self._rarely(7, -5)))
            times = (self._rarely(-1, 1000, TIME_2020_MS),) if layout == 1 else ()
            return (self._partition(), offset, *times, metadata)

        member: tuple[Any, ...] = ()
        if layout:
            generation = self._rarely(-1, 0, 1, 5, probability=0.15)
            member = (generation, self._rarely("", "x", None, probability=0.12))
        retention = (self._rarely(-1, 10**9),) if layout == 2 else ()
        body = (self._group(), *member, *retention, self._by_topic(partition))
        return Request("OffsetCommit", version, body)

    def _offset_fetch(self) -> Request:
        return Request(
            "OffsetFetch",
            self._version("OffsetFetch"),
            (self._group(), self._rarely(self._by_topic(self._partition), None, probability=0.03)),
        )

    def _coordinator(self) -> Request:
        return Request("GroupCoordinator", self._version("GroupCoordinator"), (self._group(),))

    def _api_versions(self) -> Request:
        if "SaslHandshake" in self._apis and self._chance(0.2):
            return Request("SaslHandshake", 0, (self._pick(("PLAIN", "", "x")),))
        return Request("ApiVersions", self._pick((0, 0, 1)))

    # --- topics -----------------------------------------------------------------------------------

    def _create_topics(self) -> Request:
        version = self._pick((0, 1))

        def topic() -> tuple[Any, ...]:
            name = self._rarely(self._pick(self._new_topics), "", "a b", "..", Repeat("n", 250),
                                None, self._known_topic(), probability=0.2)  # fmt: skip
            numbers = (
                self._rarely(self._pick((1, 2)), 0, -1, probability=0.15),
                self._rarely(1, 0, -1, 7, probability=0.15),
            )
            assignments: Any = []
            if self._chance(0.2):
                numbers = self._rarely((-1, -1), numbers)
                assignments = self._pick(([(0, [0])], [(1, [0]), (0, [0])], [(0, [0, 0])]))
            configs = self._pick(
                (
                    [], [], [], [("retention.ms", self._pick(("1000", "-1", "x")))],
                    [("cleanup.policy", self._pick(("compact", "delete", "no")))],
                    [("nonsense", "1")], [("min.insync.replicas", self._pick(("1", "0")))],
                    [("flush.messages", "5")], [("preallocate", self._pick(("TRUE", "maybe")))],
                )
            )  # fmt: skip
            return (name, *numbers, assignments, configs)

        timeout_ms = self._rarely(20_000, 0, -1)
        validate_only = (self._rarely(0, 1, probability=0.3),) if version else ()
        return Request("CreateTopics", version, (self._array(topic, 3), timeout_ms, *validate_only))

    def _delete_topics(self) -> Request:
        # Other requests of the case still find the topics that were there before it, and a name is
        # not created again: a real controller responds before all is gone.
        def name() -> Any:
            at = self._random.randrange(len(self._new_topics))
            deleted = self._new_topics[at]
            self._new_topics[at] = f"$n{int(deleted[2:]) + len(self._new_topics)}"
            return self._rarely(deleted, "", "a b", None, probability=0.2)

        return Request("DeleteTopics", 0, (self._array(name, 2), 20_000))

    # --- groups -----------------------------------------------------------------------------------

    def _of_groups(self) -> Request:
        """Return a request about a group from outside its life: mostly for unknown members."""
        return self._pick(
            (
                *(self._heartbeat, self._leave, self._sync, self._describe, self._list_groups),
                lambda: self._join(self._member(), ""),
            )
        )()

    def _member(self) -> Any:
        if self._members:
            return self._rarely(self._pick(self._members), "", "stranger", None, probability=0.1)
        return self._pick(("", "stranger"))

    def _generation(self) -> int:
        return self._rarely(self._pick((1, 1, 2, 2, 3)), 0, -1, 4, probability=0.15)

    def _heartbeat(self) -> Request:
        body = (self._group(), self._generation(), self._member())
        return Request("Heartbeat", self._version("Heartbeat"), body)

    def _leave(self) -> Request:
        return Request("LeaveGroup", self._version("LeaveGroup"), (self._group(), self._member()))

    def _sync(self) -> Request:
        assignments = [(one, self._pick((b"", b"part", b"parts"))) for one in self._members]
        if self._chance(0.3):
            assignments = []
        body = (self._group(), self._generation(), self._member(), assignments)
        return Request("SyncGroup", self._version("SyncGroup"), body)

    def _describe(self) -> Request:
        groups = self._array(self._group)
        return Request("DescribeGroups", self._version("DescribeGroups"), (groups,))

    def _list_groups(self) -> Request:
        return Request("ListGroups", self._version("ListGroups"))

    def _join(self, member: Any, joins: str) -> Request:
        protocols = self._pick(
            (
                [("range", b"r")],
                [("range", b"r")],
                [("range", b"r"), ("robin", b"rr")],
                [("robin", b"q"), ("range", b"r")],
                self._rarely([("range", b"r")], [], [("other", b"")]),
            )
        )
        version = self._version("JoinGroup") if self._has_groups else 0
        limit = (self._rarely(20_000, 60_000, 10**9, probability=0.3),) if version else ()
        body = (
            self._rarely("$g0", "", None, probability=0.03),
            self._rarely(20_000, 10, 10**7, -1, probability=0.03),
            *limit,
            member,
            self._rarely("consumer", "other", "", None, probability=0.04),
            protocols,
        )
        return Request("JoinGroup", version, body, joins=joins)

    def _group_steps(self) -> list[Step]:
        """Return a step in the life of the group "$g0", of up to three members."""
        at = "@g0" if self._brokers > 1 else ""
        kind = self._random.random()
        connection = "m" + self._pick("012") + at
        if kind < 0.35 and len(self._members) < 3:
            symbol = f"$m{len(self._members)}"
            connection = f"m{len(self._members)}{at}"
            self._members.append(symbol)
            return [Send(connection, (self._spoilt(self._join("", symbol)),), waits=True)]
        if kind < 0.55:
            join = self._spoilt(self._join(self._member(), ""))
            return [Send(connection, (join,), waits=True)]
        if kind < 0.75:
            return [Send(connection, (self._spoilt(self._sync()),), waits=True)]
        if kind < 0.85 and self._members:
            generation, member = self._generation(), self._member()
            items = [("$t0", [(0, self._random.randint(0, 99), "of a member")])]
            body = ("$g0", generation, member, -1, items)
            return [Send("c" + at, (Request("OffsetCommit", 2, body),))]
        request = self._pick((self._heartbeat, self._heartbeat, self._leave, self._describe))()
        return [Send("c" + at, (self._spoilt(request),))]

    # --- the end ----------------------------------------------------------------------------------

    def _final(self) -> list[Step]:
        """Return steps that read all logs and committed offsets."""
        steps: list[Step] = []
        versions = [0, *range(2, self._apis["Fetch"] + 1)]
        for topic in dict.fromkeys(self._topics):
            for partition in (0, 1):
                for version in versions:
                    offsets = (0, 1, 2, 4, 6, 9) if topic == "$seg" else (0,)
                    steps += [
                        self._read(
                            partition,
                            *(
                                Request(
                                    "Fetch",
                                    version,
                                    (
                                        *(-1, 0, 0),
                                        *((1 << 24,) if version > 2 else ()),
                                        [(topic, [(partition, at, 1 << 22)])],
                                    ),
                                )
                                for at in offsets
                            ),
                        )
                    ]
                listed = [(topic, [(partition, -1, 100)])]
                steps.append(self._read(partition, Request("ListOffsets", 0, (-1, listed))))
        if "OffsetFetch" in self._apis:
            for group in ("$g0", "$g1", ""):
                committed = [(topic, [0, 1, 2, 7, -1]) for topic in dict.fromkeys(self._topics)]
                for version in range(self._apis["OffsetFetch"] + 1):
                    at_group = self._brokers > 1 and "GroupCoordinator" in self._apis
                    connection = "v@g0" if at_group else "v"
                    request = Request("OffsetFetch", version, (group, committed))
                    steps.append(Send(connection, (request,)))
        return steps

    def _read(self, partition: int, *requests: Request) -> Send:
        return Send(f"v@{partition % self._brokers}", requests)
