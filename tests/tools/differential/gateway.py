"""Compare the gateway in front of 4.1.0 with 3.9.1, which takes the same requests itself.

The real side of a pair is 3.9.1; the gateway takes the place of the embedded cluster. Cases have
requests of the versions that the gateway translates. Offsets are committed and fetched in one
version in a case: 3.9.1 keeps those of version 0 apart, in ZooKeeper.

As `targets`, this module may import of `aiokafka08`.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.testing.broker_lines import LINES
from tests.brokers import RealCluster
from tests.brokers.ports import free_port
from tests.tools.differential.cases import Case, Send, Step
from tests.tools.differential.compare import NO_ANSWER, Difference
from tests.tools.differential.generate import Generator
from tests.tools.differential.known import Known
from tests.tools.differential.schemas import APIS as SCHEMAS
from tests.tools.differential.sets import MessageSet
from tests.tools.differential.targets import ClusterTarget, Errors, Pair
from tests.tools.differential.topics import KINDS
from tests.tools.differential.wire import Counted, Request

REFERENCE, TARGET = "3.9.1", "4.1.0"
APIS = {
    "Produce": 2, "Fetch": 3, "ListOffsets": 0, "OffsetCommit": 1, "OffsetFetch": 1,
    "GroupCoordinator": 0,
}  # fmt: skip
_LATEST, _EARLIEST = -1, -2
_SYMBOLS = ("$t0", "$t1", "$cmp", "$lat", "$gz")


class OldRequests(Generator):
    """Random requests of the versions that are translated."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed, APIS, _SYMBOLS, 1, foreign_replicas=False)
        self._store = self._pick((0, 1))

    def _version(self, api: str, lowest: int = 0) -> int:
        if api in ("OffsetCommit", "OffsetFetch"):
            return self._store
        return self._random.randint(lowest, APIS[api])

    def _request(self) -> Request:
        return self._spoilt(
            self._pick(
                (
                    *(self._produce,) * 6,
                    *(self._fetch,) * 4,
                    *(self._list_offsets,) * 2,
                    *(self._commit,) * 2,
                    *(self._offset_fetch,) * 2,
                )
            )()
        )

    def _by_topic(self, partition: Callable[[], Any]) -> Any:
        """Mostly name each partition once."""
        topics = super()._by_topic(partition)
        if isinstance(topics, Counted) or self._chance(0.05):
            return topics
        named: dict[Any, Any] = {}
        for topic, parts in topics:
            if isinstance(parts, Counted):
                named[topic] = parts
            elif parts:
                named.setdefault(topic, list({_number(one): one for one in parts}.values()))
        return list(named.items())

    def _metadata(self) -> Request:
        return self._fetch()  # Metadata passes

    def _set(self) -> Any:
        """Mostly return sets that 3.9.1 takes, too: behind others the logs aren't the same."""
        if self._chance(0.1):
            return super()._set()
        magic = self._pick((0, 1))
        if self._chance(0.4):
            wrapper = self._wrapper(magic)
            if wrapper.codec in ("lz4", "legacy-lz4"):
                wrapper = dataclasses.replace(wrapper, codec="lz4" if magic else "legacy-lz4")
            return MessageSet((wrapper,))
        return MessageSet(tuple(self._message(magic) for _ in range(self._random.randint(1, 3))))

    def _broken_frame(self, connection: str) -> list[Step]:
        return self._steps()  # what isn't a request isn't translated

    def _final(self) -> list[Step]:
        steps: list[Step] = []
        for topic in dict.fromkeys(self._topics):
            for partition in range(KINDS[topic].partitions):
                for version in range(4):
                    limit = (1 << 24,) if version > 2 else ()
                    asked = [(topic, [(partition, 0, 1 << 22)])]
                    steps.append(Send("v", (Request("Fetch", version, (-1, 0, 0, *limit, asked)),)))
                listed = [(topic, [(partition, -1, 1)])]
                steps.append(Send("v", (Request("ListOffsets", 0, (-1, listed)),)))
        committed = [(topic, [0, 1, 2, 7]) for topic in dict.fromkeys(self._topics)]
        steps += [
            Send("v", (Request("OffsetFetch", self._store, (group, committed)),))
            for group in ("$g0", "$g1")
        ]
        return steps


def _number(part: Any) -> Any:
    return part[0] if isinstance(part, tuple) else part


class GatewayPair(Pair):
    """The gateway in front of 4.1.0, and 3.9.1."""

    def __init__(self, gateway: Gateway, target: RealCluster, reference: RealCluster) -> None:
        rules = dataclasses.replace(LINES["0.10"], name="gateway", responds_after_fin=False)
        [port] = gateway.ports.values()
        gateway_side = ClusterTarget([("127.0.0.1", port)])
        super().__init__(rules, gateway_side, reference)
        self._clusters = (target, reference)

    def apis(self) -> dict[str, int]:
        return APIS

    def make_case(self, seed: int) -> Case:
        return OldRequests(f"gateway {seed}").case()

    def find_known(self, difference: Difference) -> Known | None:
        return next((one for one in KNOWN if one.matches(difference)), None)

    def passes(self, difference: Difference) -> bool:
        known = self.find_known(difference)  # behind most of them the logs are still the same
        if known is None or known.name in _LOGS_DIFFER:
            return False
        return not (known.name == _ODD and getattr(difference.request, "api", "") == "Produce")

    async def _create(self, symbol: str, count: int) -> None:
        kind = KINDS[symbol]
        names = self._new_names(symbol, count)
        config = {**kind.config, "retention.ms": "-1"}  # messages have times long ago
        new = [NewTopic(name, kind.partitions, 1, config=config) for name in names]
        for cluster in self._clusters:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            for created in admin.create_topics(new).values():
                await asyncio.to_thread(created.result, 60)
        for side in (self.embedded, self.real):
            await side.settle(names)
        self._ready[symbol] = names


@asynccontextmanager
async def gateway_pair(target: RealCluster, reference: RealCluster) -> AsyncIterator[GatewayPair]:
    """Start a gateway between two clusters that run."""
    options = gateway_options(target.bootstrap_servers, f"127.0.0.1:{free_port()}")
    gateway = Gateway(options, PortTable())
    async with AsyncExitStack() as stack:
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        pair = GatewayPair(gateway, target, reference)
        errors = Errors(pair.internal_errors)
        logger = logging.getLogger("aiokafka08.gateway")
        logger.addHandler(errors)
        stack.callback(logger.removeHandler, errors)
        await pair.prepare()
        yield pair


# --- differences that stay ------------------------------------------------------------------------


def _parts(difference: Difference, api: str) -> list[tuple[Any, Any]]:
    """Return the results of each partition of both sides; none if they can't be compared."""
    request, sides = difference.request, (difference.real.value, difference.embedded.value)
    if not (isinstance(request, Request) and request.api == api):
        return []
    if difference.real.end != difference.embedded.end or not all(
        isinstance(one, dict) for one in sides
    ):
        return []
    real, ours = (
        [
            {"topic": topic["topic"], **one}
            for topic in side["topics"]
            for one in topic["partitions"]
        ]
        for side in sides
    )
    same = [(one["topic"], one["partition"]) for one in real] == [
        (one["topic"], one["partition"]) for one in ours
    ]
    return list(zip(real, ours, strict=True)) if same else []


def _all(
    api: str, matches: Callable[[Request, dict[str, Any], dict[str, Any]], bool]
) -> Callable[[Difference], bool]:
    """Return whether each partition that differs does so as `matches` says."""

    def check(difference: Difference) -> bool:
        parts = _parts(difference, api)
        request = difference.request
        assert isinstance(request, Request)
        differing = [(a, b) for a, b in parts if a != b]
        return bool(differing) and all(matches(request, a, b) for a, b in differing)

    return check


def _is_older_code(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    assert isinstance(request.api, str)
    key = SCHEMAS[request.api].key
    return bool(real["error"]) and ours == real | {
        "error": old_code(key, request.version, real["error"])
    }


def _is_refused_early(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    return real["error"] in (3, 17, 21) and ours["error"] in (-1, 0, 2, 32) and ours["offset"] == -1


def _is_refused_otherwise(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    return real["error"] in (-1, 2, 87) and (ours["error"] in (-1, 2, 32) or ours["offset"] == -1)


def _is_listed_otherwise(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Return whether the gateway lists at most one offset: for -1 and -2 the first of 3.9.1's."""
    times = [
        part[1]
        for topic, parts in _items(request.body[1])
        for part in _items(parts)
        if (topic, part[0]) == (real["topic"], real["partition"])
    ]
    if ours["error"] or real["error"] not in (0, -1) or len(ours["offsets"]) > 1:
        return False
    compares = not real["error"] and times in ([_LATEST], [_EARLIEST])
    return not compares or bool(ours["offsets"] == real["offsets"][:1])


def _is_stricter(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    return real["error"] == 0 and ours["error"] in (-1, 2, 32) and _has_odd_message(request)


def _has_odd_message(request: Request) -> bool:
    text = repr(request)
    return "_size=" in text or "attributes=8" in text or "cut=" in text


def _ends_otherwise(difference: Difference) -> bool:
    request = difference.request
    if not isinstance(request, Request):
        return False
    values = difference.real.value, difference.embedded.value
    before = [one for one in difference.before if isinstance(one, Request)]
    silent = [one for one in before if one.api == "Produce" and one.body[0] == 0]
    if difference.embedded.value == NO_ANSWER and any(map(_has_odd_message, silent)):
        return True
    if request.api in ("Fetch", "ListOffsets"):
        return request.body[0] >= 0
    if request.api != "Produce":
        return False
    if ", None)" in repr(request.body):
        return difference.embedded.value == NO_ANSWER
    return values == (NO_ANSWER, NO_ANSWER) and request.body[0] == 0


def _is_better(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    return real["error"] in (-1, 2, 87) and ours["error"] == 0 and ours["offset"] >= 0


def _is_cut_elsewhere(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    real, ours = dict(real), dict(ours)
    theirs = [one for one in real.pop("message_set") or () if "cut" not in one]
    mine = ours.pop("message_set") or ()
    same = all(map(_is_same_entry, theirs, mine))
    return real == ours and same and (bool(mine) or not theirs)


def _is_same_entry(real: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Return whether entries are the same, but for messages of a wrapper below the fetch offset."""
    count = len(ours.get("messages", ()))
    return ours == (real | {"messages": real["messages"][-count:]} if count else real)


def _is_grouped_otherwise(difference: Difference) -> bool:
    parts = _parts(difference, "Fetch")
    if not parts or any(a != b for a, b in parts):
        return False
    values = difference.real.value, difference.embedded.value
    real, ours = ({topic["topic"] for topic in value["topics"]} for value in values)
    return real == ours


def _items(array: Any) -> Any:
    return array.items if isinstance(array, Counted) else array or ()


def _is_odd(difference: Difference) -> bool:
    """Return whether only those partitions differ that a request names twice, or none of a topic.

    The others are as known differences of a partition allow it.
    """
    request = difference.request
    if not isinstance(request, Request) or difference.real.end != difference.embedded.end:
        return False
    topics: Any = next((one for one in request.body if isinstance(one, list | Counted)), [])
    by_topic = [
        [(topic[0], _number(part)) for part in _items(topic[1])] for topic in _items(topics)
    ]
    times = collections.Counter(one for some in by_topic for one in some)
    if all(by_topic) and not any(count > 1 for count in times.values()):
        return False
    sides = difference.real.value, difference.embedded.value
    if not all(isinstance(one, dict) for one in sides):
        return sides == (NO_ANSWER, NO_ANSWER)
    real, ours = (
        {
            (topic["topic"], one["partition"]): {"topic": topic["topic"], **one}
            for topic in side["topics"]
            for one in topic["partitions"]
            if times[topic["topic"], one["partition"]] == 1
        }
        for side in sides
    )
    assert isinstance(request.api, str)
    matches = _ALLOWED.get(request.api, _is_older_code)
    return real.keys() == ours.keys() and all(
        one == ours[key] or matches(request, one, ours[key]) for key, one in real.items()
    )


def _is_of_zookeeper(request: Request, real: dict[str, Any], ours: dict[str, Any]) -> bool:
    if request.version:
        return False
    if not request.body[0]:
        return real["error"] == -1
    return real == ours | {"metadata": ""}


def _any_of(*checks: Callable[[Request, dict[str, Any], dict[str, Any]], bool]) -> Any:
    return lambda request, real, ours: any(one(request, real, ours) for one in checks)


def _known(name: str, matches: Callable[[Difference], bool], reason: str) -> Known:
    return Known(name, reason, ("gateway",), matches, None)


_REFUSED = (_is_older_code, _is_refused_otherwise, _is_refused_early)
_ALLOWED = {
    "Produce": _any_of(*_REFUSED, _is_better, _is_stricter),
    "Fetch": _any_of(_is_older_code, _is_cut_elsewhere),
    "ListOffsets": _any_of(_is_older_code, _is_listed_otherwise),
    "OffsetCommit": _any_of(_is_older_code, _is_of_zookeeper),
    "OffsetFetch": _any_of(_is_older_code, _is_of_zookeeper),
}
"""By API: how a partition may differ."""
_STORED, _REFUSED_HERE, _ENDS = "stored-all-the-same", "refused-here", "ends-otherwise"
_ODD = "odd-arrays"
_LOGS_DIFFER = {_STORED, _REFUSED_HERE, _ENDS}

KNOWN: tuple[Known, ...] = (
    _known(
        "older-codes",
        lambda difference: any(
            _all(api, _is_older_code)(difference) for api in APIS if api != "GroupCoordinator"
        ),
        "Codes that came after the oldest line of a version become older ones.",
    ),
    _known(
        "refused-otherwise",
        _all("Produce", _any_of(_is_older_code, _is_refused_otherwise)),
        "Both refuse a damaged set, with different codes, or the gateway finds nothing to store in"
        " it.",
    ),
    _known(
        "refused-early",
        _all("Produce", _any_of(*_REFUSED)),
        "The target isn't asked about a set that is damaged or has no message, so other errors of"
        " the partition, or of the request, don't show.",
    ),
    _known(
        _STORED,
        _all(
            "Produce", _any_of(_is_older_code, _is_refused_otherwise, _is_refused_early, _is_better)
        ),
        "Several wrappers, both formats in one set, and old lz4 checksums are stored, and a damaged"
        " set harms no other partition.",
    ),
    _known(
        "cut-elsewhere",
        _all("Fetch", _ALLOWED["Fetch"]),
        "3.9.1 cuts what it converts to the size that the batches had, and fills up the rest; the"
        " gateway cuts to the client's limit, and sends at least one message, but none before the"
        " offset that is asked for.",
    ),
    _known(
        _REFUSED_HERE,
        _all("Produce", _ALLOWED["Produce"]),
        "3.9.1 takes any negative size of a key or value as null, leaves out what is behind a value"
        " whose size is smaller than it should be, stores the whole messages of a"
        " wrapper that is cut off, and takes the attribute of LogAppendTime in old versions.",
    ),
    _known(
        _ENDS,
        _ends_otherwise,
        "The gateway authorizes no replica id, and closes the connection of a null set; with acks=0"
        " it stores sets that end the connection to 3.9.1, and ends it for those that it refuses"
        " alone.",
    ),
    _known(
        "one-offset-of-each-partition",
        _all("ListOffsets", _ALLOWED["ListOffsets"]),
        "3.9.1 lists the starts of segments, and fails for a negative number of them; the gateway"
        " asks by timestamps, and lists one offset at most.",
    ),
    _known(
        "topics-twice",
        _is_grouped_otherwise,
        "A response of the target may name a topic again for partitions that have an error.",
    ),
    _known(
        _ODD,
        _is_odd,
        "A partition that is named twice in a request, or a topic without partitions: what brokers"
        " make of it has changed since.",
    ),
    _known(
        "offsets-in-zookeeper",
        lambda difference: any(
            _all(api, _is_of_zookeeper)(difference) for api in ("OffsetCommit", "OffsetFetch")
        ),
        "3.9.1 has the offsets of version 0 in ZooKeeper, without metadata, and not for a group"
        " without a name.",
    ),
)
"""In the order in which they are tried."""
