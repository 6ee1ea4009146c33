"""The two targets of a case: an embedded cluster and a real one of the same line.

Both have the same topics under the same names: `Topics.take` returns the names of one run. Real
topics are created ahead, many at a time, since each takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.broker_lines import LINES, LineRules
from tests.brokers import NewTopic, RealCluster
from tests.conformance.contract.targets import RELEASES
from tests.tools.differential.cases import Case
from tests.tools.differential.compare import Difference
from tests.tools.differential.generate import Generator
from tests.tools.differential.known import Known, find_known
from tests.tools.differential.topics import KINDS
from tests.tools.differential.wire import Request, decode_any

LINE_OF_RELEASE = {release: LINES[line] for line, release in RELEASES.items()}
_FIRST_BATCH, _BATCH = 8, 40
PROPERTIES = {
    # 0.9 loses responses of other connections of a thread behind a bad request (docs/brokers.md
    # 2.2). With so many threads the connections that are open at a time have one each.
    "num.network.threads": 100,
    # Leaders and ISRs stay as they are on a machine that is slow for some seconds.
    "zookeeper.session.timeout.ms": 60_000,
    "replica.lag.time.max.ms": 60_000,
}
"""The settings of the brokers, where they don't have those of other tests."""
_COORDINATED = 11
"""With this many groups, each of four partitions of the offsets topic has one."""


@dataclass
class ClusterTarget:
    """A cluster by the addresses of its brokers; coordinators are asked for and remembered."""

    addresses: list[tuple[str, int]]
    _coordinators: dict[str, int] = field(default_factory=dict)

    async def address(self, role: str, names: Mapping[str, str]) -> tuple[str, int]:
        """Return the address for a connection: "2", "g0" or "!g0"."""
        return self.addresses[await self.node(role, names)]

    async def node(self, role: str, names: Mapping[str, str]) -> int:
        """Return the id of the broker for a connection."""
        if role.isdigit():
            return int(role) % len(self.addresses)
        symbol = "$" + role.removeprefix("!")
        coordinator = await self.coordinator(names.get(symbol, symbol))
        away = role.startswith("!")
        return (coordinator + 1) % len(self.addresses) if away else coordinator

    async def coordinator(self, group: str) -> int:
        """Return the group's coordinator, once there is one."""
        if len(self.addresses) == 1:
            return 0
        while group not in self._coordinators:
            response = await ask(self.addresses[0], Request("GroupCoordinator", 0, (group,)))
            if not response["error"]:
                self._coordinators[group] = response["coordinator"]
            else:
                await asyncio.sleep(0.05)
        return self._coordinators[group]

    def forget_coordinators(self) -> None:
        """Ask anew for the coordinator of each group."""
        self._coordinators.clear()

    async def settle(self, topics: list[str]) -> None:
        """Wait until topics that a request may have created have leaders."""
        for topic in topics:
            for address in self.addresses:
                while True:
                    [state] = (await ask(address, Request("Metadata", 0, ([topic],))))["topics"]
                    leaders = [one["leader"] for one in state["partitions"]]
                    if not state["error"] and leaders and min(leaders) >= 0:
                        break
                    await asyncio.sleep(0.02)

    async def wait_for_coordinators(self, topic: str) -> None:
        """Wait until the brokers serve groups: the offsets topic is created and loaded."""
        for number in range(_COORDINATED):
            group = f"probe-{number}"
            while True:
                found = await ask(self.addresses[0], Request("GroupCoordinator", 0, (group,)))
                if not found["error"]:
                    address = self.addresses[found["coordinator"]]
                    body = (group, [(topic, [0])])
                    answer = await ask(address, Request("OffsetFetch", 1, body))
                    if not answer["topics"][0]["partitions"][0]["error"]:
                        break
                await asyncio.sleep(0.05)


async def ask(address: tuple[str, int], request: Request) -> dict[str, Any]:
    """Send one request on a connection of its own; return the decoded response."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request.frame(1, {}))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        frame = await reader.readexactly(size)
    finally:
        writer.close()
    assert isinstance(request.api, str)
    return decode_any(request.api, frame[4:])[1]


class Pair(ABC):
    """Two clusters that are compared, with the same topics.

    Args:
        line: how the brokers behave.
        embedded: the cluster that is to be like the real one.
        real: the real one.
    """

    def __init__(self, line: LineRules, embedded: ClusterTarget, real: RealCluster) -> None:
        self.line = line
        self.release = real.version
        self.brokers = len(real.nodes)
        self.embedded = embedded
        self.real = ClusterTarget([("127.0.0.1", real.port(node)) for node in sorted(real.nodes)])
        self._run = os.urandom(3).hex()
        self._numbers = itertools.count(1)
        self._ready: dict[str, list[str]] = {}
        self.internal_errors: list[str] = []
        """What the embedded cluster has logged as errors: its own bugs."""
        self._filling = asyncio.Lock()

    async def prepare(self) -> None:
        """Wait until both clusters have brokers and coordinators."""
        names = await self.take(["$t0"])
        for target in (self.embedded, self.real):
            # Brokers of 0.8 know each other, and can choose coordinators, once there is a topic.
            await ask(target.addresses[0], Request("Metadata", 0, ([names["$t0"]],)))
            if "GroupCoordinator" in self.apis():
                await target.wait_for_coordinators(names["$t0"])

    async def refresh(self) -> None:
        """Learn again what changes in clusters that are slow."""
        return  # by default nothing does

    @abstractmethod
    def apis(self) -> dict[str, int]:
        """Return the names of the APIs of cases, and their highest versions."""

    @abstractmethod
    def make_case(self, seed: int) -> Case:
        """Return the case of a seed."""

    @abstractmethod
    def find_known(self, difference: Difference) -> Known | None:
        """Return the entry that explains a difference; None if it is a new one."""

    def passes(self, difference: Difference) -> bool:
        """Return whether the rest of a case can be compared behind a difference."""
        return False

    @abstractmethod
    async def _create(self, symbol: str, count: int) -> None:
        """Create topics of a kind in both clusters, and note them in `_ready`."""

    async def take(self, symbols: Iterable[str]) -> dict[str, str]:
        """Create new topics of the symbols' kinds; return all names of a run, by symbol."""
        prefix = f"d{self._run}-{next(self._numbers)}"
        names = {}
        for symbol in symbols:
            if symbol in KINDS:
                names[symbol] = await self._topic(symbol)
            else:
                names[symbol] = f"{prefix}-{symbol[1:]}"
        return names

    async def _topic(self, symbol: str) -> str:
        async with self._filling:
            if not self._ready.get(symbol):
                await self._create(symbol, _BATCH if symbol in self._ready else _FIRST_BATCH)
        return self._ready[symbol].pop()

    def _new_names(self, symbol: str, count: int) -> list[str]:
        return [
            f"d{self._run}{symbol.replace('$', '-')}-{next(self._numbers)}" for _ in range(count)
        ]


class EmbeddedPair(Pair):
    """An embedded and a real cluster of one line."""

    def __init__(self, embedded: EmbeddedCluster, real: RealCluster) -> None:
        addresses = [(one.host, one.port) for one in embedded.nodes.values()]
        super().__init__(LINE_OF_RELEASE[real.version], ClusterTarget(addresses), real)
        self._embedded, self._real = embedded, real

    async def prepare(self) -> None:
        await super().prepare()
        if "GroupCoordinator" in self.apis() and self.brokers > 1:
            await self._equal_coordinators()
        await self._equal_controllers()

    async def refresh(self) -> None:
        # The leaders of a slow cluster may have moved.
        if self.brokers > 1:
            self._ready.clear()
            for target in (self.embedded, self.real):
                target.forget_coordinators()
            if "GroupCoordinator" in self.apis():
                await self._equal_coordinators()
            await self._equal_controllers()

    async def _equal_controllers(self) -> None:
        """Let the embedded cluster have the controller of the real one."""
        if "CreateTopics" in self.apis():
            metadata = await ask(self.real.addresses[0], Request("Metadata", 1, ([],)))
            self._embedded.move_controller(metadata["controller"])

    async def _equal_coordinators(self) -> None:
        """Let the embedded offsets topic have the leaders that the real one got by chance."""
        address = self.real.addresses[0]
        [offsets] = (await ask(address, Request("Metadata", 0, (["__consumer_offsets"],))))[
            "topics"
        ]
        for one in offsets["partitions"]:
            self._embedded.move_leader("__consumer_offsets", one["partition"], to=one["leader"])

    def apis(self) -> dict[str, int]:
        names = {key.name: key for key in self.line.apis}
        return {
            "".join(part.capitalize() for part in name.split("_")): versions.known.stop - 1
            for name, versions in ((name, self.line.apis[key]) for name, key in names.items())
        }

    def kinds(self) -> list[str]:
        """Return the symbols of the kinds of topics that the line and the clusters can have."""
        return [
            symbol
            for symbol, kind in KINDS.items()
            if set(kind.config) <= self.line.topic_configs
            and (self.brokers > 1 or not kind.replicated)
        ]

    def make_case(self, seed: int) -> Case:
        """Return the case of a seed; it depends on the line and the number of brokers too."""
        text = f"{self.line.name} {self.brokers} {seed}"
        foreign = self.line.unknown_replicas_fail
        generator = Generator(
            text, self.apis(), self.kinds(), self.brokers, foreign_replicas=foreign
        )
        return generator.case()

    def find_known(self, difference: Difference) -> Known | None:
        return find_known(self.line.name, difference)

    async def _create(self, symbol: str, count: int) -> None:
        kind = KINDS[symbol]
        replicas = self.brokers if kind.replicated else 1
        names = self._new_names(symbol, count)
        for name in names:
            self._embedded.create_topic(name, kind.partitions, replicas, kind.config)
        new = NewTopic(kind.partitions, replicas, kind.config or None)
        await asyncio.to_thread(self._real.create_topics, dict.fromkeys(names, new))
        self._ready[symbol] = names


@asynccontextmanager
async def pair_of(real: RealCluster) -> AsyncIterator[EmbeddedPair]:
    """Start the embedded counterpart of a real cluster."""
    embedded = EmbeddedCluster(
        len(real.nodes),
        LINE_OF_RELEASE[real.version].name,
        default_partitions=3,
        group_min_session_timeout_ms=1000,
        # As the real brokers of 0.10 here. On older lines the age counts from the last append: none
        # of the real ones deletes anything in the time of a test.
        retention_ms=None,
    )
    async with embedded:
        pair = EmbeddedPair(embedded, real)
        errors = Errors(pair.internal_errors)
        logger = logging.getLogger("aiokafka08.testing")
        logger.addHandler(errors)
        try:
            await pair.prepare()
            yield pair
        finally:
            logger.removeHandler(errors)


class Errors(logging.Handler):
    """Collects errors, with their tracebacks."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(self.format(record))
