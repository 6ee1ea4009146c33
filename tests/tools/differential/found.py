"""Cases that random requests have found, as the shortest ones; embedded and real brokers agree now.

Each runs on each line, also on those where it never differed.
"""

from __future__ import annotations

from tests.tools.differential.cases import Case, HalfClose, Send
from tests.tools.differential.generate import TIME_2020_MS
from tests.tools.differential.sets import MessageSet, Msg, Repeat, Wrap
from tests.tools.differential.wire import Counted, Request


def _case(*requests: Request) -> Case:
    """Return a case of requests that are sent one after another."""
    return Case(1, tuple(Send("a", (request,)) for request in requests))


def _produce(*messages: Msg | Wrap, version: int = 0, acks: int = 1, tail: bytes = b"") -> Request:
    sets = [("$t0", [(0, MessageSet(messages, tail=tail))])]
    return Request("Produce", version, (acks, 50, sets))


def _fetch(version: int = 0, replica_id: int = -1, max_bytes: int = 1 << 20) -> Request:
    return Request("Fetch", version, (replica_id, 0, 0, [("$t0", [(0, 0, max_bytes)])]))


def _commit(
    version: int, group: str | None, topic: str, *member: object, metadata: str = "m"
) -> Request:
    times = (-1,) if version == 1 else ()
    body = (group, *member, [(topic, [(0, 5, *times, metadata)])])
    return Request("OffsetCommit", version, body)


_ONE = [(0, 5, -1, "m")]
_STAMPED = (Msg(magic=1, timestamp=5), Msg(magic=1, timestamp=9, offset=1))
_THREE = MessageSet((Msg(), Msg(), Msg()))
_READ = (_fetch(0), _fetch(2))

FOUND: dict[str, Case] = {
    # docs/brokers.md 3.10
    "null client_id": _case(
        Request("Produce", 0, (1, 50, [("$t0", [(0, MessageSet((Msg(),)))])]), client_id=None),
        Request("Produce", 1, (0, 50, [("$t0", [(0, MessageSet((Msg(),)))])]), client_id=None),
        Request("Fetch", 1, (-1, 0, 0, [("$t0", [(0, 0, 100)])]), client_id=None),
        Request("Metadata", 0, (["$t0"],), client_id=None),
        Request("ListOffsets", 0, (-1, [("$t0", [(0, -1, 1)])]), client_id=None),
        Request("Heartbeat", 0, ("$g0", 1, "x"), client_id=None),
        Request("JoinGroup", 0, ("$g0", 20_000, "x", "t", [("p", b"")]), client_id=None),
    ),
    "null client_id at the end of the log": Case(
        1,
        (
            Send(
                "a",
                (Request("Fetch", 0, (-1, 60, 1, [("$t0", [(0, 0, 9)])]), client_id=None),),
                waits=True,
            ),
        ),
    ),
    # 5.13
    "acks beside an unknown partition": _case(
        *(
            Request("Produce", 0, (acks, 50, [("$t0", [(0, _THREE), (9, _THREE)])]))
            for acks in (-1, 1, 2, 3, -2)
        )
    ),
    # 8.8
    "all commits of a group": _case(
        _commit(1, "$g0", "$t0", -1, ""),
        _commit(1, "$g0", "$t1", -1, ""),
        Request("OffsetFetch", 1, ("$g0", [])),
        Request("OffsetFetch", 0, ("$g0", [])),
    ),
    # 8.17
    "segments roll by timestamp": _case(
        _produce(Msg(magic=1, timestamp=TIME_2020_MS), version=2),
        _produce(Msg(magic=1, timestamp=TIME_2020_MS + 86_400_000), version=2),
        _produce(Msg(magic=1, timestamp=2 * TIME_2020_MS), version=2),
        _produce(Msg(magic=1, timestamp=5), version=2),
        _fetch(2),
        Request("ListOffsets", 0, (-1, [("$t0", [(0, -1, 9)])])),
    ),
    # 3.15, 8.4 - 8.8
    "null strings": _case(
        _commit(1, "$g0", "$t0", -1, None),
        _commit(1, None, "$t0", -1, ""),
        _commit(0, None, "$t0"),
        Request("OffsetFetch", 1, (None, [("$t0", [0])])),
        Request("OffsetFetch", 0, (None, [("$t0", [0])])),
        Request("OffsetFetch", 0, ("", [("$t0", [0])])),
        Request("Metadata", 0, (["$t0", None],)),
        Request("GroupCoordinator", 0, (None,)),
        Request("Heartbeat", 0, (None, 1, "x")),
        Request("JoinGroup", 0, ("$g0", 20_000, "", "consumer", [])),
    ),
    # 8.5
    "null topic beside a good one": _case(
        Request("OffsetCommit", 1, ("$g0", -1, "", [("$t0", _ONE), (None, _ONE)])),
        Request("OffsetFetch", 1, ("$g0", [("$t0", [0])])),
    ),
    # 8.5, 8.7
    "order of the checks of a commit": _case(
        _commit(0, "", "$t0"),
        Request("OffsetCommit", 0, ("", [("$t0", [(0, 1, Repeat("m", 5000))])])),
        _commit(1, "$g0", "$x0", 5, "x"),
        _commit(1, "$g0", "$t0", 5, "x"),
    ),
    # 5.4, 5.9, 6.1
    "wrappers and checks": _case(
        _produce(Wrap("gzip", _STAMPED, magic=1, timestamp=5)),
        _produce(Wrap("gzip", (Msg(magic=1), Msg(offset=1)), magic=1), version=2),
        _produce(Msg(magic=1, attributes=8), version=2),
        _produce(Wrap("gzip", _STAMPED, magic=1, attributes=8), version=2),
        _produce(Msg(key_size=50, magic=1, timestamp=5), Msg(), version=2),
        _produce(Msg(), Msg(size=2**31 - 1)),
        _produce(Wrap("legacy-lz4", (Msg(Repeat("v", 1_100_000)),))),
        Request("Produce", 0, (2, 50, [("$x0", [(0, MessageSet((Msg(),)))])])),
        *(_produce(acks=acks) for acks in (-1, 2)),
        *_READ,
    ),
    "stored messages that can't be converted": _case(
        _produce(Msg(magic=1, timestamp=5, value_size=50), version=2),
        Request("Fetch", 0, (-1, 0, 0, [("$t0", [(0, 0, 99), (7, 0, 9)])])),
    ),
    # 8.7, 8.13
    "a refused commit makes a group": _case(
        Request("OffsetCommit", 1, ("$g0", -1, "", [("$t0", [(0, 1, -1, Repeat("m", 5000))])])),
        Request("DescribeGroups", 0, (["$g0"],)),
        Request("ListGroups", 0),
    ),
    # 6.7
    "nested wrappers": _case(
        _produce(_nested := Wrap("gzip", (Wrap("gzip", (Wrap("gzip", (Msg(),)),)),))),
        _produce(Wrap("snappy", (_nested, Msg()))),
        *_READ,
    ),
    # 6.3
    "a wrapper of format 1 stays as it is": _case(
        _produce(Wrap("snappy", _STAMPED, magic=1, attributes=0x80, key=b"k", offset=1), version=2),
        _produce(Wrap("snappy", _STAMPED, magic=1, offset=50), version=2),
        _produce(Wrap("gzip", _STAMPED, magic=1), version=2),
        _produce(Wrap("lz4", _STAMPED, magic=1), version=2),
        _produce(Wrap("legacy-lz4", _STAMPED, magic=1), version=2),
        *_READ,
    ),
    # 7.2, 7.7, 7.16
    "limits and replicas of a fetch": _case(
        _fetch(max_bytes=-1),
        Request("Fetch", 0, (-2, 0, 0, [("$t0", [(7, 0, 9)]), ("$x0", [(0, 0, 9)])])),
        Request("ListOffsets", 0, (-2, [("$t0", [(7, -1, 1)])])),
        _produce(Msg()),
        _fetch(max_bytes=-1),
    ),
    "a fetch that waits for more than max_bytes": Case(
        1,
        (
            Send("w", (Request("Fetch", 0, (-1, 8000, 60, [("$t0", [(0, 0, 10)])])),), waits=True),
            Send("a", (_produce(Msg()),)),
            Send("a", (_produce(Msg(Repeat("v", 100))),)),
        ),
    ),
    # 3.4, 3.15
    "negative counts": _case(
        Request("Produce", 0, (1, 50, Counted(-1))),
        Request("Fetch", 0, (-1, 0, 0, [("$t0", Counted(-5))])),
        Request("ListOffsets", 0, (-1, Counted(-(2**31)))),
        Request("OffsetFetch", 0, ("$g0", Counted(-1))),
        Request("DescribeGroups", 0, (Counted(-1),)),
    ),
    "a bad name repeats a topic": _case(Request("Metadata", 0, (["$t0", "$t0", "a b"],))),
    # 6.3, 6.7
    "attributes of messages in wrappers": _case(
        _produce(Wrap("gzip", (Msg(attributes=8), Msg(attributes=0x10)))),
        _produce(Msg(attributes=8), Wrap("snappy", (Msg(key=b"k", attributes=0x88),)), version=2),
        _produce(Wrap("gzip", (Wrap("codec-4", magic=1),), magic=1), version=2),
        *_READ,
    ),
    # 8.2
    "followers that list offsets of unknown topics": _case(
        Request("ListOffsets", 0, (-2, [("a b", [(0, -2, 10)]), ("$t0", [(7, -2, 10)])])),
        Request("ListOffsets", 1, (-2, [("a b", [(0, -2)])])),
    ),
    # 8.8
    "any negative count is null": _case(
        _commit(1, "$g0", "$t0", -1, ""),
        Request("OffsetFetch", 2, ("$g0", Counted(-5))),
        Request("Metadata", 1, (Counted(-5),)),
    ),
    # 8.14
    "offsets by time of messages with wrong sizes": _case(
        _produce(Msg(magic=1, timestamp=5, key_size=-2, key=b"k"), version=2),
        _produce(Msg(magic=1, timestamp=9, value_size=99), version=2),
        *(Request("ListOffsets", 1, (-1, [("$t0", [(0, time)])])) for time in (4, 6, 10)),
    ),
    # 3.7
    "half-closed": Case(1, (HalfClose("a", (_fetch(), Request("Metadata", 0, (["$t0"],)))),)),
}
"""Name → case."""
