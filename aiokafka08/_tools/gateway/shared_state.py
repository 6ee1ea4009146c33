"""`SharedState`: what all connections of clients to a gateway share.

`gateway` makes it; `handler` and `translated_requests` work with it. Facts about the target
(`Remembered`) may be noted and read in any thread.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aiokafka08._core.concurrency.remembered import Remembered
from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.limited_log import LimitedLog
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._tools.gateway.addresses import AddressOf
from aiokafka08._tools.gateway.batch_limits import BatchLimits
from aiokafka08._tools.gateway.coordinators import Coordinators
from aiokafka08._tools.gateway.measurements import Measurements
from aiokafka08._tools.gateway.options import GatewayOptions
from aiokafka08._tools.gateway.peers import Peers
from aiokafka08._tools.gateway.topic_creation import KNOWN_S
from aiokafka08._tools.gateway.upstream import Upstreams


@dataclass(frozen=True, slots=True)
class SharedState:
    """See the module.

    Attributes:
        options: the gateway's options.
        measurements: called to measure the work.
        log: takes the warnings that clients cause.
        resources: the work and the memory of all connections.
        address_of: returns the address that clients use for a broker, also for a new one.
        known_address_of: the same, but ("", 0) for a node that isn't a known broker.
        peers: returns the brokers that stand for other gateways.
        learn: prepares `address_of` for brokers, as `PortTable.learn` does.
        count: counts a request, as `ClientTable.count` does.
        tasks: tasks that run until the gateway stops.
        upstreams: the connections to brokers.
        limits: the sizes of batches that the target takes.
        coordinators: the coordinators of groups.
        creation: by the id of a broker, whether it creates topics.
    """

    options: GatewayOptions
    measurements: Measurements
    log: LimitedLog
    resources: ServerResources
    address_of: AddressOf
    known_address_of: AddressOf
    peers: Peers
    learn: Callable[[Iterable[int]], Future[None] | None]
    count: Callable[..., None]
    tasks: TaskSet = field(default_factory=TaskSet)
    upstreams: Upstreams = field(default_factory=Upstreams)
    limits: BatchLimits = field(default_factory=BatchLimits)
    coordinators: Coordinators = field(default_factory=Coordinators)
    creation: Remembered[int, bool] = field(default_factory=lambda: Remembered(KNOWN_S))
