"""Compare the gateway in front of 4.1.0 with 3.9.1, which takes the same requests itself.

The real side of a pair is 3.9.1; the gateway takes the place of the embedded cluster. Cases have
requests of the versions that the gateway translates. Offsets are committed and fetched in one
version in a case: 3.9.1 keeps those of version 0 apart, in ZooKeeper.

As `targets`, this module may import of `aiokafka08`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.testing.broker_lines import LINES
from tests.brokers import RealCluster
from tests.brokers.ports import free_port
from tests.tools.differential.cases import Case, Send, Step
from tests.tools.differential.compare import Difference
from tests.tools.differential.generate import Generator
from tests.tools.differential.known import Known
from tests.tools.differential.targets import ClusterTarget, Errors, Pair
from tests.tools.differential.topics import KINDS
from tests.tools.differential.wire import Request

REFERENCE, TARGET = "3.9.1", "4.1.0"
APIS = {
    "Produce": 2, "Fetch": 3, "ListOffsets": 0, "OffsetCommit": 1, "OffsetFetch": 1,
    "GroupCoordinator": 0,
}  # fmt: skip
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
    api: str, matches: Callable[[dict[str, Any], dict[str, Any]], bool]
) -> Callable[[Difference], bool]:
    """Return whether each partition that differs does so as `matches` says."""

    def check(difference: Difference) -> bool:
        parts = _parts(difference, api)
        return bool(parts) and all(a == b or matches(a, b) for a, b in parts)

    return check


KNOWN: tuple[Known, ...] = (
    Known(
        "one-offset-of-each-partition",
        "3.9.1 lists the starts of segments; the gateway asks by timestamps, and lists one offset.",
        ("gateway",),
        _all(
            "ListOffsets",
            lambda real, ours: real["error"] == ours["error"] == 0,
        ),
        None,
    ),
)
"""In the order in which they are tried."""
