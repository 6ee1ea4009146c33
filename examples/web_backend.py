"""A web back end that writes each posted event to Kafka, with one producer per app.

KAFKA=localhost:9092 uvicorn examples.web_backend:app

curl -d '{"user": 7}' localhost:8000/events/clicks     -> {"partition": 0, "offset": 42}
curl localhost:8000/health
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Run one producer as long as the app; at the end it sends the buffered messages.

    It starts beside the app: a server answers no request, and acts on no SIGTERM, before the
    lifespan has yielded, and the brokers may come later.
    """
    app.state.producer = producer = AIOKafkaProducer(
        bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"),
        acks="all",
        linger_ms=2,
        delivery_timeout_ms=10_000,
        start_timeout_ms=600_000,
        max_block_ms=2_000,  # an unknown topic doesn't keep a request waiting
    )
    start = asyncio.create_task(producer.start())
    try:
        yield
    finally:
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await producer.stop()


async def post_event(request: Request) -> JSONResponse:
    """Respond when the brokers have acknowledged the event; concurrent requests share batches."""
    producer: AIOKafkaProducer = request.app.state.producer
    try:
        sent = await producer.send_and_wait(request.path_params["topic"], await request.body())
    except (IllegalArgumentError, InvalidTopicError, MessageSizeTooLargeError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    except KafkaError as error:
        return JSONResponse({"error": str(error)}, status_code=503)
    return JSONResponse({"partition": sent.partition, "offset": sent.offset})


async def health(request: Request) -> JSONResponse:
    """Respond with 503 until the producer has started, and while no broker can be reached."""
    ready = request.app.state.producer.ready()
    return JSONResponse({"kafka": ready}, status_code=200 if ready else 503)


app = Starlette(
    routes=[Route("/events/{topic}", post_event, methods=["POST"]), Route("/health", health)],
    lifespan=lifespan,
)
