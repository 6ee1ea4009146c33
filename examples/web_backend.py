"""A web back end (FastAPI) that writes each posted event to Kafka, with one producer per app.

KAFKA=localhost:9092 uvicorn web_backend:app

curl -d '{"user": 7}' localhost:8000/events/clicks     -> {"partition": 0, "offset": 42}
curl localhost:8000/health                             -> {"kafka": true}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)

CALLERS_FAULT = (
    IllegalArgumentError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
logger = logging.getLogger("uvicorn.error")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run one producer as long as the app; at the end it sends the buffered messages.

    It starts beside the app: a server answers no request, and acts on no SIGTERM, before the
    lifespan has yielded, and the brokers may come later.
    """
    app.state.producer = producer = AIOKafkaProducer(
        bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"),
        acks="all",
        linger_ms=2,
        delivery_timeout_ms=10_000,  # a request doesn't wait longer
        max_block_ms=2_000,  # nor longer than this for a topic that no broker describes
        start_timeout_ms=600_000,  # the app may start before the brokers
    )
    start = asyncio.create_task(producer.start())
    try:
        yield
    finally:
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await producer.stop(timeout=5)


app = FastAPI(lifespan=lifespan)


@app.post("/events/{topic}")
async def post_event(topic: str, request: Request) -> dict[str, int]:
    """Respond when the brokers have acknowledged the event; concurrent requests share batches."""
    producer: AIOKafkaProducer = request.app.state.producer
    sent = await producer.send_and_wait(topic, await request.body())
    return {"partition": sent.partition, "offset": sent.offset}


@app.exception_handler(KafkaError)
async def kafka_error(request: Request, error: Exception) -> JSONResponse:
    """Respond with 400 or 404 if the caller is at fault, else with 503: try again later.

    The text of another error may name brokers: it goes to the log, and not to the caller.
    """
    if isinstance(error, CALLERS_FAULT):
        status = 404 if isinstance(error, UnknownTopicOrPartitionError) else 400
        return JSONResponse({"error": str(error)}, status_code=status)
    logger.warning("%s not served: %s", request.url.path, error)
    return JSONResponse({"error": "Kafka is unavailable, try again later"}, status_code=503)


@app.get("/health")
async def health(request: Request) -> JSONResponse:
    """Respond with 503 until the producer has started, and while no broker can be reached."""
    ready = request.app.state.producer.ready()
    return JSONResponse({"kafka": ready}, status_code=200 if ready else 503)
