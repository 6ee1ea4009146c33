"""Clients whose parts a test can read, and make with other limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.lifecycle import Lifecycle
from aiokafka08._core.net.limits import NET_LIMITS, NetLimits
from aiokafka08._core.net.router import Router
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.engine import ConsumerEngine
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.partitioner import Partitioner
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.engine import ProducerEngine
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.telemetry import Telemetry

NO_PARTS: Mapping[str, Any] = {}


class OpenConsumer(AIOKafkaConsumer[Any, Any]):
    """A consumer with its parts as attributes.

    Args:
        net_limits: the limits of its network layer.
        decoding: replaces fields of `Decoding`.
        parts: further arguments of `ConsumerEngine`.
        options: those of `AIOKafkaConsumer`.
    """

    router: Router
    engine: ConsumerEngine
    subscribed: Subscription

    def __init__(
        self,
        *topics: str,
        net_limits: NetLimits = NET_LIMITS,
        decoding: Mapping[str, Any] = NO_PARTS,
        parts: Mapping[str, Any] = NO_PARTS,
        **options: Any,
    ) -> None:
        self.net_limits, self.decoding, self.parts = net_limits, decoding, parts
        super().__init__(*topics, **options)

    def _make_router(self, config: NetConfig, telemetry: Telemetry) -> Router:
        self.router = super()._make_router(replace(config, limits=self.net_limits), telemetry)
        return self.router

    def _make_engine(
        self,
        router: Router,
        config: ConsumerConfig,
        subscription: Subscription,
        lifecycle: Lifecycle,
    ) -> ConsumerEngine:
        config = replace(config, decoding=replace(config.decoding, **self.decoding))
        self.subscribed = subscription
        self.engine = ConsumerEngine(router, config, subscription, lifecycle, **self.parts)
        return self.engine


class OpenProducer(AIOKafkaProducer):
    """A producer with its parts as attributes; the engine is made at the start.

    Args:
        net_limits: the limits of its network layer.
        parts: further arguments of `ProducerEngine`.
        options: those of `AIOKafkaProducer`.
    """

    router: Router
    engine: ProducerEngine
    checked: ProducerOptions

    def __init__(
        self,
        *,
        net_limits: NetLimits = NET_LIMITS,
        parts: Mapping[str, Any] = NO_PARTS,
        **options: Any,
    ) -> None:
        self.net_limits, self.parts = net_limits, parts
        super().__init__(**options)

    def _make_router(self, config: NetConfig, telemetry: Telemetry) -> Router:
        self.router = super()._make_router(replace(config, limits=self.net_limits), telemetry)
        return self.router

    def _make_engine(
        self, router: Router, options: ProducerOptions, new_partitioner: Callable[[], Partitioner]
    ) -> ProducerEngine:
        self.checked = options
        self.engine = ProducerEngine(router, options, new_partitioner, **self.parts)
        return self.engine
