"""Let the faults of a plan strike a simulated world, and mend them when their time is over.

Invariant: a fault loses only what Kafka may lose, and `truncated` and `deleted` operations say what
that is. So at most one fault at a time takes brokers down or lets replicas fall far behind.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.testing.faults import Delay
from aiokafka08.testing.handlers import HANDLERS
from aiokafka08.testing.history import Anomaly
from aiokafka08.testing.simulation import Network, World
from tests.faults.simulation import plan as p

_REQUESTS = {request.__name__: request for request in HANDLERS}
_REQUEST_LIMIT_S: Final = 8.0
"""How long a fault waits for the request that it strikes."""
_COMMITTED: Final = b"7"
"""What the group has committed in the other cluster."""


class Strikes:
    """The faults of one run.

    Args:
        world: what they strike.
        topic: the topic whose partitions they strike.
        group: the group of the members.
        restarts: an event for each member, which lets it leave its group.
        truncated: called with a partition, the first offset that it has lost, and its end before.
        deleted: called with a partition and the first offset that it has kept.
        stored: called with a partition, the values of messages that its log has got, the offset of
            the first one, and that of the damage behind them.

    Attributes:
        found: what was wrong while a fault struck.
        fired: how often each kind of fault had an effect.
        standstills: which process stood still from when until when; None: all.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        group: str,
        restarts: dict[int, asyncio.Event],
        truncated: Callable[[int, int, int], object],
        deleted: Callable[[int, int], object],
        stored: Callable[[int, list[str], int, int], object],
    ) -> None:
        self.found: list[Anomaly] = []
        self.fired: Counter[str] = Counter()
        self._effective = 0
        self.standstills: list[tuple[str | None, float, float]] = []
        self._world = world
        self._cluster = world.cluster
        self._topic = topic
        self._restarts = restarts
        self._truncated = truncated
        self._deleted = deleted
        self._stored = stored
        self._group = group
        self._faults: dict[str, list[Any]] = {}
        self._name_changes: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._lossy: list[tuple[p.Fault, Any]] = []
        self._controller = 0
        self._unclean: int | None = None
        self._is_taken = False
        self._before = self._cluster.version

    async def strike(self, fault: p.Fault) -> None:
        """Let a fault strike, and mend it when its time is over."""
        match fault:
            case p.Strike(request, then, node, nth, times):
                added = self._cluster.fault(
                    _REQUESTS[request], then=then, node=node, nth=nth, times=times
                )
                self._faults.setdefault(type(then).__name__, []).append(added)
            case p.Pause(party, for_s):
                with self._counted(fault, party), self._standstill(party, for_s):
                    self._world.pause(party)
                    await asyncio.sleep(for_s)
                    self._world.resume(party)
            case p.Hold(for_s):
                with self._standstill(None, for_s):
                    self._world.hold(for_s)
                self._fired(fault)
            case p.SkewClock(party, seconds, for_s):
                with self._counted(fault, party):
                    self._world.skew(party, seconds)
                    await asyncio.sleep(for_s)
                    self._world.skew(party, 0.0)
            case p.AnswerLate():
                await self._answer_late(fault)
            case p.RestartMember(member, _):
                if not self._restarts[member].is_set():
                    self._restarts[member].set()
                    self._fired(fault)
            case p.Kill() | p.StopBroker() | p.FillDisk() | p.Upgrade() | p.ElectUnclean():
                await self._take(fault)
            case (
                p.Partition() | p.ResetConnections() | p.HalfOpen() | p.Refuse() | p.SlowLink()
                | p.SlowReader() | p.ChangeDns() | p.HideCoordinator()
            ):  # fmt: skip
                await self._strike_network(fault)
            case (
                p.ZookeeperAway() | p.ExpireSession() | p.LoseZookeeperResponse()
                | p.SlowZookeeper() | p.WrongZookeeper()
            ):  # fmt: skip
                await self._strike_zookeeper(fault)
            case _:
                await self._strike_cluster(fault)

    async def _answer_late(self, fault: p.AnswerLate) -> None:
        request = _REQUESTS[fault.request]
        came = asyncio.wrap_future(self._cluster.next_request(request))
        added = self._cluster.fault(request, then=Delay(fault.delay_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(_REQUEST_LIMIT_S):
                await came
        if not added.hits:
            added.cancel()
            return
        await asyncio.sleep(fault.moves_s)
        for partition in range(p.PARTITIONS):
            await self._strike_cluster(p.MoveLeader(partition))
        await self._strike_cluster(p.MoveCoordinator())
        self._fired(fault)

    def mend(self) -> None:
        """End all faults that strike requests, and all blocks of the network."""
        for name, added in self._faults.items():
            self.fired[name] += sum(fault.hits for fault in added)
        self._effective = self.effective
        self._faults.clear()
        for lossy, client in self._lossy:
            if not client.loses_response:
                self._fired(lossy)
        self._lossy.clear()
        self._cluster.clear_faults()
        self._world.network.heal()

    @property
    def effective(self) -> int:
        """How many of the plan's faults had an effect until now."""
        struck = (fault for added in self._faults.values() for fault in added)
        return self._effective + sum(fault.hits > 0 for fault in struck)

    def _fired(self, fault: p.Fault) -> None:
        kinds = p.kinds_of(fault)
        self.fired.update(kinds)
        self._effective += bool(kinds)

    @contextmanager
    def _counted(self, fault: p.Fault, *parties: str | None) -> Iterator[None]:
        """Count a fault, unless a party is a broker that is down when it begins and ends."""
        were_up = self._are_up(parties)
        yield
        if were_up or self._are_up(parties):
            self._fired(fault)

    def _are_up(self, parties: Iterable[str | None]) -> bool:
        down = {f"broker {node}" for node in self._cluster.nodes} - {
            f"broker {node}" for node in self._alive()
        }
        return down.isdisjoint(parties)

    @contextmanager
    def _standstill(self, party: str | None, for_s: float) -> Iterator[None]:
        begin = asyncio.get_running_loop().time()
        yield
        self.standstills.append((party, begin, begin + for_s + 1))

    # --- brokers that stay up ---------------------------------------------------------------------

    async def _strike_cluster(self, fault: p.Fault) -> None:
        cluster, topic = self._cluster, self._topic
        match fault:
            case p.MoveLeader(partition):
                cluster.restore_isr(topic, partition)
                leader = cluster.leader(topic, partition)
                if leader >= 0 and any(node != leader for node in self._alive()):
                    cluster.move_leader(topic, partition)
                    self._fired(fault)
            case p.MoveCoordinator():
                with suppress(ValueError):
                    cluster.move_coordinator(self._group)
                    self._fired(fault)
            case p.DropConnections(node):
                if cluster.drop_connections(node):
                    self._fired(fault)
            case p.ShrinkIsr(partition, for_s):
                leader = cluster.leader(topic, partition)
                if len(self._alive()) < p.BROKERS or leader < 0:
                    return
                cluster.shrink_isr(topic, partition, (leader + 1) % p.BROKERS)
                self._fired(fault)
                await asyncio.sleep(for_s)
                cluster.restore_isr(topic, partition)
            case p.RollSegments():
                for partition in range(p.PARTITIONS):
                    cluster.roll_segment(topic, partition)
                self._fired(fault)
            case p.Retention(partition, share):
                # A replica that is to become an unclean leader would have to begin anew.
                if partition != self._unclean and cluster.leader(topic, partition) in self._alive():
                    self._delete_old(partition, share, fault)
            case p.StoreDamage(partition, damage, good):
                # As with retention, and another replica wouldn't have what is stored.
                if partition != self._unclean and cluster.leader(topic, partition) in self._alive():
                    self._store_damage(partition, damage, good)
                    self._fired(fault)
            case p.MoveController(node) if node in (alive := self._alive()):
                if node != (self._controller if self._controller in alive else min(alive)):
                    self._fired(fault)
                cluster.move_controller(node)
                self._controller = node
            case p.StaleMetadata(node, for_s) if node in self._alive():
                cluster.hold_metadata(node)
                await asyncio.sleep(for_s)
                cluster.release_metadata(node)
                self._fired(fault)

    def _delete_old(self, partition: int, share: float, fault: p.Fault) -> None:
        offsets = self._cluster.offsets(self._topic, partition)
        kept = offsets.start + math.ceil((offsets.high_watermark - offsets.start) * share)
        if kept > offsets.start:
            self._deleted(partition, kept)
            self._cluster.delete_before(self._topic, partition, kept)
            self._fired(fault)

    def _store_damage(self, partition: int, damage: str, good: int) -> None:
        first = self._cluster.offsets(self._topic, partition).end
        values = [f"stored-{partition}-{first + at}" for at in range(good)]
        magic = int(self._cluster.version == "0.10")
        data = damaged_set(damage, first, [value.encode() for value in values], magic)
        self._cluster.append_raw(self._topic, partition, data, next_offset=first + good + 1)
        self._stored(partition, values, first, first + good)

    def _alive(self) -> list[int]:
        return [node.node_id for node in self._cluster.nodes.values() if node.alive]

    # --- brokers that don't -----------------------------------------------------------------------

    async def _take(self, fault: p.Fault) -> None:
        """Strike brokers or replicas, unless another fault has them."""
        if self._is_taken:
            return
        self._is_taken = True
        try:
            for partition in range(p.PARTITIONS):
                self._cluster.restore_isr(self._topic, partition)
            match fault:
                case p.StopBroker(node, for_s):
                    self._cluster.stop(node)
                    self._fired(fault)
                    await asyncio.sleep(for_s)
                    self._cluster.restart(node)
                case p.Kill():
                    await self._kill(fault)
                case p.FillDisk(node, for_s):
                    self._cluster.fill_disk(node)
                    await asyncio.sleep(for_s)
                    if node not in self._alive():
                        self._fired(fault)
                        self._cluster.restart(node)
                    else:  # nothing was to be stored
                        self._cluster.stop(node)
                        self._cluster.restart(node)
                case p.Upgrade(version, down_s, for_s, back):
                    is_new = version != self._cluster.version
                    await self._change_version(version, down_s)
                    if back:
                        await asyncio.sleep(for_s)
                        await self._change_version(self._before, down_s)
                    if is_new:
                        self._fired(fault)
                case p.ElectUnclean(partition, after_s):
                    await self._elect_unclean(partition, after_s, fault)
        finally:
            self._is_taken = False
            self._unclean = None

    async def _kill(self, fault: p.Kill) -> None:
        cluster = self._cluster
        cluster.kill(fault.node, fault.then, unflushed=fault.unflushed)
        if fault.then != "elect":
            await asyncio.sleep(fault.notice_s)
            if fault.then == "unnoticed":
                cluster.notice(fault.node)
            cluster.elect()
        self._fired(fault)
        await asyncio.sleep(fault.for_s)
        cluster.restart(fault.node, 0 if fault.elsewhere else None)

    async def _change_version(self, version: str, down_s: float) -> None:
        cluster = self._cluster
        self._before = cluster.version
        nodes = list(cluster.nodes)
        for node in nodes:
            cluster.stop(node)
        cluster.change_version(version)
        await asyncio.sleep(down_s)
        for node in reversed(nodes):  # the last one has the whole logs
            cluster.restart(node)

    async def _elect_unclean(self, partition: int, after_s: float, fault: p.Fault) -> None:
        cluster, topic = self._cluster, self._topic
        if cluster.leader(topic, partition) < 0:
            return
        self._unclean = partition
        cluster.shrink_isr(topic, partition)
        await asyncio.sleep(after_s)
        end = cluster.offsets(topic, partition).end
        leader = cluster.leader(topic, partition)
        cluster.move_leader(topic, partition, next(one for one in self._alive() if one != leader))
        lost = cluster.offsets(topic, partition).end
        cluster.restore_isr(topic, partition)
        if lost < end:
            self._truncated(partition, lost, end)
            self._fired(fault)

    # --- the network, ZooKeeper -------------------------------------------------------------------

    async def _strike_network(self, fault: p.Fault) -> None:
        network = self._world.network
        match fault:
            case p.Partition(one, other, both, for_s):
                with self._counted(fault, one, other):
                    network.block(one, other, both=both)
                    await asyncio.sleep(for_s)
                    network.heal()
            case p.ResetConnections(party):
                if network.reset(party):
                    self._fired(fault)
            case p.HalfOpen(party):
                if network.half_open(party):
                    self._fired(fault)
            case p.Refuse(node, for_s):
                broker = f"broker {node}"
                with self._counted(fault, broker):
                    network.refuse(broker)
                    self._cluster.drop_connections(node)
                    await asyncio.sleep(for_s)
                    network.accept(broker)
            case p.ChangeDns(node, addresses, for_s):
                with self._counted(fault, f"broker {node}"):
                    await self._change_dns(node, addresses, for_s)
            case p.HideCoordinator(addresses, for_s):
                coordinator = self._cluster.coordinator(self._group)
                if coordinator is not None:
                    await self._change_dns(coordinator, addresses, for_s)
                    self._fired(fault)
            case p.SlowLink(source, target, latency_ms, bytes_per_s, for_s):
                with self._counted(fault, source, target):
                    network.set_link(source, target, Network(latency_ms, bytes_per_s))
                    await asyncio.sleep(for_s)
                    network.set_link(source, target, None)
            case p.SlowReader(party, bytes_per_s, for_s):
                with self._counted(fault, party):
                    network.read_slowly(party, bytes_per_s)
                    await asyncio.sleep(for_s)
                    network.read_slowly(party, None)

    async def _change_dns(self, node: int, addresses: tuple[str, ...], for_s: float) -> None:
        """Change a broker's addresses for a while, one change after the other."""
        async with self._name_changes[node]:
            await self._change_addresses(node, addresses, for_s)

    async def _change_addresses(self, node: int, addresses: tuple[str, ...], for_s: float) -> None:
        dns = self._world.network.dns
        host, port = self._cluster.nodes[node].host, self._cluster.nodes[node].port
        silent: list[asyncio.StreamWriter] = []
        talkers: dict[str, Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]] = {
            ip: partial(_send_and_close, sent) for ip, sent in p.HALF_DEAD.items()
        }
        talkers[p.MUTE] = lambda _, writer: silent.append(writer)
        servers = [
            await asyncio.start_server(talker, ip, port)
            for ip, talker in talkers.items()
            if ip in addresses
        ]
        dns[host] = list(addresses)
        self._cluster.drop_connections(node)
        await asyncio.sleep(for_s)
        dns[host] = ["127.0.0.1"]
        for server in servers:
            server.close()
        for writer in silent:
            writer.close()

    async def _strike_zookeeper(self, fault: p.Fault) -> None:
        zookeeper = self._world.zookeeper
        clients = zookeeper.clients
        match fault:
            case p.ZookeeperAway(for_s, silent):
                zookeeper.disconnect(for_s, silent=silent)
                await asyncio.sleep(for_s)
                self._fired(fault)
            case p.ExpireSession(number) if clients:
                client = clients[number % len(clients)]
                if client.session is not None:
                    zookeeper.expire(client)
                    self._fired(fault)
            case p.LoseZookeeperResponse(number) if clients:
                client = clients[number % len(clients)]
                if not client.loses_response:
                    zookeeper.lose_response(client)
                    self._lossy.append((fault, client))
            case p.SlowZookeeper(latency_s, for_s):
                zookeeper.latency_s = latency_s
                await asyncio.sleep(for_s)
                zookeeper.latency_s = 0.0
                self._fired(fault)
            case p.WrongZookeeper(for_s, is_empty):
                nodes = {} if is_empty else _nodes_elsewhere(self._topic, self._group)
                tree = self._world.lead_zookeeper_to(nodes)
                before = tree.contents()
                await asyncio.sleep(for_s)
                after = tree.contents()
                self._world.lead_zookeeper_to(None)
                self._fired(fault)
                if after != before:
                    changed = sorted(path for path, _ in before.items() ^ after.items())
                    self.found.append(Anomaly("foreign-write", (), {"paths": changed}))


def _send_and_close(
    sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(sent)
    writer.close()


def _nodes_elsewhere(topic: str, group: str) -> dict[str, bytes]:
    """Return the nodes of another cluster, which has a topic and a group of the same names."""
    broker = {"version": 1, "host": "elsewhere", "port": 9092, "jmx_port": -1}
    partitions = {str(number): [77] for number in range(p.PARTITIONS)}
    nodes = {
        "/cluster/id": json.dumps({"version": "1", "id": "elsewhere"}).encode(),
        "/brokers/ids/77": json.dumps(broker).encode(),
        f"/brokers/topics/{topic}": json.dumps({"version": 1, "partitions": partitions}).encode(),
        f"/consumers/{group}/ids": b"",
        f"/consumers/{group}/owners/{topic}": b"",
        **{f"/consumers/{group}/offsets/{topic}/{number}": _COMMITTED for number in partitions},
    }
    for path in list(nodes):
        while path := path.rpartition("/")[0]:
            nodes.setdefault(path, b"")
    return nodes


def damaged_set(damage: str, first: int, values: list[bytes], magic: int) -> bytes:
    """Return a stored set in which damage follows good messages.

    Args:
        damage: one of `plan.DAMAGES`.
        first: the offset of the first message.
        values: of the good messages.
        magic: the message format.
    """

    def encode(offset: int, value: bytes, attributes: int = 0) -> bytes:
        return encode_entry(offset, None, value, magic=magic, attributes=attributes)

    good = b"".join(encode(first + at, value) for at, value in enumerate(values))
    at = first + len(values)
    bad = encode(at, b"damaged")
    name, _, detail = damage.partition(" ")
    match name:
        case "size":
            return good + bad[:8] + struct.pack(">i", int(detail)) + bad[12:]
        case "zeros":
            return good + bytes(400)
        case "crc":
            return good + bad[:-1] + bytes([bad[-1] ^ 1])
        case "empty":
            return good + encode(at, compress(Codec.GZIP, b""), Codec.GZIP)
    # Format 1 has relative offsets: what stands before the damage can't be told by them.
    outside, inside = (good, b"") if magic else (b"", good)
    return outside + encode(at, compress(Codec.GZIP, inside + bad[:-3]), Codec.GZIP)
