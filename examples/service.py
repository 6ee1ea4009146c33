"""A complete service (FastAPI): it takes orders, and writes a bill for each in the background.

KAFKA=localhost:9092 uvicorn service:app          brokers of 0.8 need ZOOKEEPER=localhost:2181 too

curl -d '{"item": "tea"}' localhost:8000/orders   -> {"partition": 0, "offset": 42}
curl localhost:8000/live                          -> {"alive": true}
curl localhost:8000/ready                         -> {"producer": true, "consumer": true}
curl localhost:8001/metrics                       the second worker process has port 8002, and so on

An order is acknowledged to its caller once the brokers have it. Each worker process is a member of
the group "billing". It commits after the bills are written: a crash repeats bills, and loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterable
from wsgiref.simple_server import WSGIServer

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.errors import (
    CommitFailedError,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    MessageSizeTooLargeError,
    UnsupportedVersionError,
)
from aiokafka08.prometheus import collector
from aiokafka08.structs import ConsumerRecord

ORDERS = os.environ.get("ORDERS", "orders")
BILLS = os.environ.get("BILLS", "bills")
RESTART_S = 5.0  # the pause before a consumer that has failed is started again
START_TIMEOUT_MS = 600_000  # the app may start before the brokers
STOP_S = 5.0  # how long the end waits for the messages in work, and then for those to be sent

logging.basicConfig(
    level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
)
log = logging.getLogger("orders")


def bill(order: ConsumerRecord[bytes, bytes]) -> bytes:
    """Return the bill of an order. It is the same when the order is read again."""
    return b"bill for " + (order.value or b"")


class Service:
    """The clients of one worker process, made after the fork: `run` until `stop`."""

    def __init__(self) -> None:
        self.servers = os.environ.get("KAFKA", "localhost:9092")
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.servers,
            client_id=client_id("orders"),
            acks="all",
            linger_ms=2,
            delivery_timeout_ms=10_000,  # a request doesn't wait longer
            max_block_ms=2_000,  # nor longer than this for a topic that no broker describes
            start_timeout_ms=START_TIMEOUT_MS,
        )
        self._new_consumer()  # wrong options raise an error here, once
        self.consumer: AIOKafkaConsumer[bytes, bytes] | None = None  # None while it isn't started
        self.registry = CollectorRegistry()
        self.registry.register(collector(self.producer))
        ProcessCollector(registry=self.registry)
        self.metrics = serve_metrics(self.registry)
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def ready(self) -> dict[str, bool]:
        """Return which clients can work now."""
        consumer = self.consumer is not None and self.consumer.ready()
        return {"producer": self.producer.ready(), "consumer": consumer}

    async def _run(self) -> None:
        """Start the producer, then bill orders; start the consumer again after a failure.

        The process goes on, since it also takes orders, for which no consumer is needed.
        """
        try:
            await self.producer.start()
        except Exception as error:  # no broker for ten minutes, or a wrong password
            self._end("producer", error)
        while not self._stopping.is_set():
            try:
                await self._bill_orders()
            except KafkaError as error:
                log.error("billing has failed, and starts again in %g s: %s", RESTART_S, error)
            except Exception:
                log.exception("billing has failed, and starts again in %g s", RESTART_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), RESTART_S)

    def _end(self, client: str, error: Exception) -> None:
        """End this process, which can't work; let its supervisor start a new one."""
        log.critical("the %s can't start: this process ends", client, exc_info=error)
        self._stopping.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def _new_consumer(self) -> AIOKafkaConsumer[bytes, bytes]:
        return AIOKafkaConsumer(
            ORDERS,
            bootstrap_servers=self.servers,
            client_id=client_id("billing"),
            group_id="billing",
            zookeeper_connect=os.environ.get("ZOOKEEPER") or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # only where the group has no offset yet
            allow_auto_create_topics=False,
            start_timeout_ms=START_TIMEOUT_MS,
        )

    async def _bill_orders(self) -> None:
        consumer = self._new_consumer()
        try:
            await consumer.start()
        except (IllegalArgumentError, KafkaConfigurationError, UnsupportedVersionError) as error:
            self._end("consumer", error)  # a later start would fail, too: 0.8 without ZOOKEEPER
            return
        metrics = collector(consumer)
        try:
            self.registry.register(metrics)
            self.consumer = consumer
            while not self._stopping.is_set():
                found = await consumer.getmany(timeout_ms=500, max_records=1000)
                for partition, orders in found.items():
                    await self._write_bills(orders)
                    try:
                        await consumer.commit({partition: orders[-1].offset + 1})
                    except CommitFailedError as error:
                        # Another member has the partition, and bills these orders again.
                        log.warning("%s", error)
                        break
        finally:
            self.consumer = None
            self.registry.unregister(metrics)
            await consumer.stop()

    async def _write_bills(self, orders: Iterable[ConsumerRecord[bytes, bytes]]) -> None:
        written = []
        for order in orders:
            key = f"{order.partition}/{order.offset}".encode()
            written.append(await self.producer.send(BILLS, bill(order), key=key))
        await asyncio.gather(*written)

    async def stop(self) -> None:
        """End the orders in work, commit them, leave the group, and send what is buffered."""
        self._stopping.set()
        if self.consumer is None:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=STOP_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.producer.stop(timeout=STOP_S)
        await asyncio.to_thread(self.metrics.shutdown)
        self.metrics.server_close()


def client_id(name: str) -> str:
    """Return a client's name in the brokers' logs and in metrics; the pid tells workers apart."""
    return f"{name}-{os.getpid()}"


def serve_metrics(registry: CollectorRegistry) -> WSGIServer:
    """Serve metrics on the first free port from METRICS_PORT on: each worker has its own.

    On the app's own port a scrape would get the metrics of any one of the workers.
    """
    first = int(os.environ.get("METRICS_PORT", "8001"))
    address = os.environ.get("METRICS_ADDRESS", "127.0.0.1")
    for port in range(first, first + 100):
        try:
            server, _ = start_http_server(port, address, registry)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            log.info("metrics on http://%s:%d/metrics", address, server.server_port)
            return server
    raise OSError(f"METRICS_PORT={first}: none of the next 100 ports is free")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the service as long as the app.

    It starts beside the app: a server answers no request, and acts on no SIGTERM, before the
    lifespan has yielded, and the brokers may come later.
    """
    app.state.service = service = Service()
    try:
        yield
    finally:
        await service.stop()


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def post_order(request: Request) -> dict[str, int]:
    """Respond when the brokers have acknowledged the order; concurrent requests share batches."""
    producer: AIOKafkaProducer = request.app.state.service.producer
    sent = await producer.send_and_wait(ORDERS, await request.body())
    return {"partition": sent.partition, "offset": sent.offset}


@app.exception_handler(KafkaError)
async def kafka_error(request: Request, error: Exception) -> JSONResponse:
    """Respond with 413 if the caller is at fault, else with 503: try again later.

    The text of an error may name brokers: it goes to the log, and not to the caller.
    """
    if isinstance(error, MessageSizeTooLargeError):
        return JSONResponse({"error": "the order is too large"}, status_code=413)
    log.warning("%s not served: %s", request.url.path, error)
    return JSONResponse({"error": "Kafka is unavailable, try again later"}, status_code=503)


@app.get("/live")
async def live() -> dict[str, bool]:
    """Respond while the event loop runs. A new process would not bring Kafka back."""
    return {"alive": True}


@app.get("/ready")
async def ready(request: Request) -> JSONResponse:
    """Respond with 503 until both clients can work, and while one can't."""
    found = request.app.state.service.ready()
    return JSONResponse(found, status_code=200 if all(found.values()) else 503)
